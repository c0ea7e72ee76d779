package metal

// SampleArgs are the arguments of the sample kernel.
type SampleArgs = sampleArgs

// SampleSharedBytes is sampleSharedBytes.
const SampleSharedBytes = sampleSharedBytes
