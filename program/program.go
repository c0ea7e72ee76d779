package program

import "github.com/zoo-sdk/zoo/quant"

// Version is the version of the operations below. A host refuses programs of another version.
const Version = 1

// None stands for an absent weight or rotation.
const None = -1

// Indices into the lists of a Program.
type (
	// WeightID is an index into Program.Weights.
	WeightID int
	// BufferID is an index into Program.Buffers.
	BufferID int
	// CacheID is an index into Program.Caches.
	CacheID int
	// RotationID is an index into Program.Rotations.
	RotationID int
)

// Program is a decoder as data. It is immutable once recorded.
type Program struct {
	// Version is the version of the operations.
	Version int `json:"version"`
	// Vocab is the number of logits.
	Vocab int `json:"vocab"`
	// TokenLimit is one more than the largest token id that may be fed.
	TokenLimit int `json:"token_limit"`
	// Context is the largest number of positions that the model was made for.
	Context int `json:"context"`
	// Weights lists the tensors of the pack that the operations read.
	Weights []Weight `json:"weights"`
	// Buffers lists the activations, each a float32 vector for each row.
	Buffers []Buffer `json:"buffers"`
	// Caches lists the key and value caches of a slot.
	Caches []Cache `json:"caches"`
	// Rotations lists the rotary frequencies.
	Rotations []Rotation `json:"rotations"`
	// Ops lists the operations in order.
	Ops []Op `json:"ops"`
	// State is the buffer that carries the hidden state from layer to layer. It is written before the first.
	State BufferID `json:"state"`
	// Hidden is the buffer that holds the output of the final norm.
	Hidden BufferID `json:"hidden"`
	// Logits is the buffer of Vocab logits.
	Logits BufferID `json:"logits"`
	// Layers tells which operations make up each layer, in order and without overlap.
	Layers []Layer `json:"layers"`
}

// Weight names a tensor of the pack and the matrix that it must hold.
type Weight struct {
	// Name is the tensor's name in the pack.
	Name string `json:"name"`
	quant.Matrix
}

// Buffer is a float32 vector for each row of the batch.
type Buffer struct {
	// Name is for people.
	Name string `json:"name"`
	// Cols is the length of the vector.
	Cols int `json:"cols"`
}

// Cache holds the keys and values of one attention layer for each position of a slot.
type Cache struct {
	// Name is for people.
	Name string `json:"name"`
	// KVHeads and HeadDim give the shape of a position: [KVHeads, HeadDim] each for keys and values.
	KVHeads int `json:"kv_heads"`
	HeadDim int `json:"head_dim"`
	// Window is the number of latest positions that attention sees, itself included; 0 means all.
	Window int `json:"window,omitempty"`
	// KeyScale and ValueScale are the steps of the static int8 grid; 0 where the checkpoint has none.
	KeyScale   float32 `json:"key_scale,omitempty"`
	ValueScale float32 `json:"value_scale,omitempty"`
}

// Rotation holds rotary frequencies in radians a position.
type Rotation struct {
	// Freqs has one frequency for each pair (i, i+len(Freqs)) of a head; 0 leaves a pair as it is.
	Freqs []float32 `json:"freqs"`
}

// Layer is the run of operations Ops[First:End] that makes up a layer.
type Layer struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// Op is one operation: exactly one of its fields is set.
type Op struct {
	Embed     *Embed     `json:"embed,omitempty"`
	Linear    *Linear    `json:"linear,omitempty"`
	GateUp    *GateUp    `json:"gate_up,omitempty"`
	Norm      *Norm      `json:"norm,omitempty"`
	AddNorm   *AddNorm   `json:"add_norm,omitempty"`
	Store     *Store     `json:"store,omitempty"`
	Attention *Attention `json:"attention,omitempty"`
	AddMul    *AddMul    `json:"add_mul,omitempty"`
	GELUMul   *GELUMul   `json:"gelu_mul,omitempty"`
	Softcap   *Softcap   `json:"softcap,omitempty"`
	Select    *Select    `json:"select,omitempty"`
}

// Embed gathers the table row of each row's token: out = table[token] * Mul.
type Embed struct {
	Table WeightID `json:"table"`
	Out   BufferID `json:"out"`
	// Mul is multiplied to the unpacked value.
	Mul float32 `json:"mul"`
}

// Rounding is the static 8-bit grid around a product: x becomes
// clamp(round_half_even(x/scale), -128, 127) * scale. A scale of 0 leaves x as it is.
type Rounding struct {
	// InScale is the step of the grid of the product's input.
	InScale float32 `json:"in_scale,omitempty"`
	// OutScale is the step of the grid of the product.
	OutScale float32 `json:"out_scale,omitempty"`
}

// Linear multiplies In with row ranges of a matrix, each into a buffer of its own.
type Linear struct {
	Weight WeightID `json:"weight"`
	In     BufferID `json:"in"`
	Parts  []Part   `json:"parts"`
	// Mul is multiplied to every product after its rounding; 0 means 1.
	Mul float32 `json:"mul,omitempty"`
}

// Part is a range of matrix rows and where its products go.
type Part struct {
	// First is the first row; for codes a multiple of 16.
	First int `json:"first"`
	// Rows is the number of rows, which is the length of Out.
	Rows int      `json:"rows"`
	Out  BufferID `json:"out"`
	Rounding
}

// GateUp computes out = gelu_tanh(gate(in)) * up(in) from one matrix in which
// 16-row blocks of gate and up alternate, gate first.
type GateUp struct {
	Weight WeightID `json:"weight"`
	In     BufferID `json:"in"`
	Out    BufferID `json:"out"`
	Gate   Rounding `json:"gate"`
	Up     Rounding `json:"up"`
}

// Norm is RMSNorm over every run of Cols numbers of a row, then, if Rotation is
// set, the rotation of the run's halves by the row's position. In may be Out.
type Norm struct {
	In  BufferID `json:"in"`
	Out BufferID `json:"out"`
	// Weight is a float32 matrix [1, Cols], or None.
	Weight WeightID `json:"weight"`
	// Cols is the length of a run: the whole buffer, or a head.
	Cols     int        `json:"cols"`
	Eps      float32    `json:"eps"`
	Rotation RotationID `json:"rotation"`
}

// AddNorm adds a normed branch to the state: state = (state + norm(in)) * Mul.
type AddNorm struct {
	State  BufferID `json:"state"`
	In     BufferID `json:"in"`
	Weight WeightID `json:"weight"`
	Eps    float32  `json:"eps"`
	// Mul is multiplied to the sum; 0 means 1.
	Mul float32 `json:"mul,omitempty"`
}

// Store writes the row's key and value into a cache at the row's position.
type Store struct {
	Cache CacheID  `json:"cache"`
	Key   BufferID `json:"key"`
	Value BufferID `json:"value"`
}

// Attention is softmax(query·key * Scale)·value over the positions of the row's
// slot up to its own. Query heads share key heads in equal, neighbouring groups.
type Attention struct {
	Cache CacheID  `json:"cache"`
	Query BufferID `json:"query"`
	Out   BufferID `json:"out"`
	// Heads is the number of query heads.
	Heads int     `json:"heads"`
	Scale float32 `json:"scale"`
}

// AddMul computes out = (a + b) * Mul. Out may be A or B.
type AddMul struct {
	A   BufferID `json:"a"`
	B   BufferID `json:"b"`
	Out BufferID `json:"out"`
	Mul float32  `json:"mul"`
}

// GELUMul computes out = gelu_tanh(a) * b[First : First+len(a)]. Out may be A.
type GELUMul struct {
	A     BufferID `json:"a"`
	B     BufferID `json:"b"`
	First int      `json:"first"`
	Out   BufferID `json:"out"`
}

// Softcap computes x = Cap * tanh(x / Cap) in place.
type Softcap struct {
	Buffer BufferID `json:"buffer"`
	Cap    float32  `json:"cap"`
}

// Select keeps, in the listed buffers, only the rows that want logits. All
// later operations work on those rows alone.
type Select struct {
	Buffers []BufferID `json:"buffers"`
}
