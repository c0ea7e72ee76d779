package metal

// The arguments of kernels and their grids.
type (
	AttentionArgs    = attentionArgs
	VecAttentionArgs = vecAttentionArgs
	VecCombineArgs   = vecCombineArgs
	NormArgs         = normArgs
	AddNormArgs      = addNormArgs
	AddMulArgs       = addMulArgs
	GELUMulArgs      = geluMulArgs
	SoftcapArgs      = softcapArgs
	PeaksArgs        = peaksArgs
	SelectArgs       = selectArgs
	StoreArgs        = storeArgs
	Launch           = launch
)

// MaxHeadDim is maxHeadDim.
const MaxHeadDim = maxHeadDim

var (
	HeadsPerGroup      = headsPerGroup
	AttentionLaunch    = (*attentionArgs).launch
	VecAttentionLaunch = (*vecAttentionArgs).launch
	VecCombineLaunch   = (*vecCombineArgs).launch
	NewEmbedArgs       = newEmbedArgs
	EmbedLaunch        = (*embedArgs).launch
	NormLaunch         = (*normArgs).launch
	AddNormLaunch      = (*addNormArgs).launch
	AddMulLaunch       = (*addMulArgs).launch
	GELUMulLaunch      = (*geluMulArgs).launch
	SoftcapLaunch      = (*softcapArgs).launch
	PeaksLaunch        = (*peaksArgs).launch
	SelectLaunch       = (*selectArgs).launch
	StoreLaunch        = (*storeArgs).launch
)
