package litertlm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	// modelID stands at byte 4 of a model.
	modelID = "TFL3"
	// modelVersion is the version of the schema that is understood.
	modelVersion = 3
	// maxRank bounds the number of dimensions of a tensor.
	maxRank = 16
	// maxOperands bounds the inputs of an operator, and its outputs. What joins the
	// per-layer tables has an input for each layer.
	maxOperands = 1024
)

// The numbers of the options of operators, in two lists: those of a composite
// operator are in the second.
const (
	concatenationOptions  = 10
	fullyConnectedOptions = 8
	mulOptions            = 21
	compositeOptions      = 21
)

// TensorType is the number type of a tensor.
type TensorType byte

// The number types that weights and activations have; others of the schema pass through.
const (
	Float32  TensorType = 0
	Float16  TensorType = 1
	Int32    TensorType = 2
	UInt8    TensorType = 3
	Int64    TensorType = 4
	Bool     TensorType = 6
	Int16    TensorType = 7
	Int8     TensorType = 9
	Int4     TensorType = 17
	BFloat16 TensorType = 18
	Int2     TensorType = 19
)

// Bits returns the bits of one number, or 0 for a type that is not known here.
func (t TensorType) Bits() int {
	switch t {
	case Int2:
		return 2
	case Int4:
		return 4
	case UInt8, Int8, Bool:
		return 8
	case Float16, BFloat16, Int16:
		return 16
	case Float32, Int32:
		return 32
	case Int64:
		return 64
	}
	return 0
}

// String returns the type's name in the schema, or its number.
func (t TensorType) String() string {
	names := map[TensorType]string{Float32: "FLOAT32", Float16: "FLOAT16", Int32: "INT32", UInt8: "UINT8", Int64: "INT64", Bool: "BOOL", Int16: "INT16", Int8: "INT8", Int4: "INT4", BFloat16: "BFLOAT16", Int2: "INT2"}
	if name, ok := names[t]; ok {
		return name
	}
	return "type " + strconv.Itoa(int(t))
}

// Op is the number of a builtin operator.
type Op int

// The operators that tell weights apart.
const (
	Concatenation   Op = 2
	EmbeddingLookup Op = 7
	FullyConnected  Op = 9
	Mul             Op = 18
	Pack            Op = 83
	// Composite is an operator with a name of its own and a subgraph that says what it computes.
	Composite Op = 206
)

// Model is a TFLite model. It is read-only and safe for concurrent use.
type Model struct {
	Subgraphs  []Subgraph
	Signatures []Signature
}

// Signature is a named entry into a model.
type Signature struct {
	// Key is its name, unique in the model.
	Key string
	// Subgraph is the number of the subgraph that it runs.
	Subgraph int
}

// Subgraph is a list of operators over tensors.
type Subgraph struct {
	Name      string
	Tensors   []Tensor
	Operators []Operator
}

// Operator is one step of a subgraph.
type Operator struct {
	Op Op
	// Name is that of a composite operator, such as "odml.rms_norm", or "".
	Name string
	// Inputs and Outputs are numbers of tensors; an input that is left out is -1.
	Inputs, Outputs []int32
	// Activation is the number of the function that is fused into an operator of type
	// FullyConnected, Mul or Concatenation; 0 is none.
	Activation byte
	// WeightsFormat is the number of the order in which a FullyConnected has its weights;
	// 0 is the rows one after the other.
	WeightsFormat byte
	// Attributes are those of a composite operator, a FlexBuffer; see [Operator.Attribute].
	// They are a slice of the file.
	Attributes []byte
}

// Attribute returns a number among the attributes of a composite operator, and
// whether it is there. An error says that they are damaged or the attribute is no number.
func (o Operator) Attribute(name string) (value float64, found bool, err error) {
	if len(o.Attributes) == 0 {
		return 0, false, nil
	}
	return flexbuffer(o.Attributes).mapNumber(name)
}

// Tensor is a tensor of a subgraph: a constant or an activation.
type Tensor struct {
	// Name is free text and need not be unique. For models that were converted from
	// others it is the path of the operation there.
	Name string
	Type TensorType
	// Shape is the size of each dimension; a scalar has none.
	Shape []int
	// Data holds the numbers of a constant, the last dimension fastest, and is nil
	// for an activation. It is a slice of the file.
	Data []byte
	// External says that the data is in another section or file.
	External bool
	// Sparse says that the data holds only some of the numbers, and its size does not follow from the shape.
	Sparse bool
	// Quantization is nil if the numbers are what they are.
	Quantization *Quantization
}

// Quantization is the grid that integers lie on: number = (code - zero point) * scale.
type Quantization struct {
	// Scales are float32 and ZeroPoints 64-bit numbers, little-endian: one, or one
	// for each index of a dimension. They are slices of the file.
	Scales, ZeroPoints []byte
	// Dimension is the dimension that has a scale for each index.
	Dimension int
	// Custom says that there are details beyond this, such as blocks.
	Custom bool
}

// NumScales returns the number of scales.
func (q *Quantization) NumScales() int { return len(q.Scales) / 4 }

// Scale returns scale i.
func (q *Quantization) Scale(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(q.Scales[4*i:]))
}

// Symmetric reports whether all zero points are 0.
func (q *Quantization) Symmetric() bool {
	for _, b := range q.ZeroPoints {
		if b != 0 {
			return false
		}
	}
	return true
}

// ParseModel reads a TFLite model, such as the data of a section of type
// [TFLiteModel]. Every number of a tensor, buffer, operator or subgraph that it
// mentions exists, and the data of every constant of a known type has the size
// that its shape asks for, unless it is sparse. It copies names and lists of numbers
// only, which are bounded. Errors are *FormatError without a file, or the cause of ctx.
func ParseModel(ctx context.Context, data []byte) (*Model, error) {
	bad := func(format string, args ...any) error {
		return &FormatError{Problem: "model: " + fmt.Sprintf(format, args...)}
	}
	if len(data) < 8 || string(data[4:8]) != modelID {
		return nil, bad("%d bytes without the mark %q are no TFLite model", len(data), modelID)
	}
	fb := newFlatbuffer(data)
	root := fb.root()
	version := root.number32(0)
	if fb.err == nil && version != modelVersion {
		return nil, bad("version %d of the schema is not known, only %d", version, modelVersion)
	}
	p := &modelParser{fb: fb}
	m := p.model(ctx, root)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := errors.Join(fb.err, p.err); err != nil {
		return nil, bad("%v", err)
	}
	return m, nil
}

// modelParser reads a model. It keeps the first error.
type modelParser struct {
	fb      *flatbuffer
	codes   []Op
	buffers [][]byte
	err     error
}

// fail records the first error.
func (p *modelParser) fail(format string, args ...any) {
	if p.err == nil && p.fb.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// done reports whether there was an error or ctx has ended, after which nothing more is read.
func (p *modelParser) done(ctx context.Context) bool {
	return p.err != nil || p.fb.err != nil || ctx.Err() != nil
}

// model reads the outermost table.
func (p *modelParser) model(ctx context.Context, root table) *Model {
	m := &Model{}
	codes := root.tables(1)
	for i := 0; i < codes.n && !p.done(ctx); i++ {
		c := codes.get(i)
		// Small numbers are in the older field alone, larger ones in the newer.
		p.codes = append(p.codes, max(Op(int8(c.byteAt(0))), Op(int32(c.number32(3)))))
	}
	buffers := root.tables(4)
	for i := 0; i < buffers.n && !p.done(ctx); i++ {
		p.buffers = append(p.buffers, p.buffer(i, buffers.get(i)))
	}
	graphs := root.tables(2)
	for i := 0; i < graphs.n && !p.done(ctx); i++ {
		m.Subgraphs = append(m.Subgraphs, p.subgraph(ctx, i, graphs.get(i)))
	}
	signatures := root.tables(7)
	seen := map[string]bool{}
	for i := 0; i < signatures.n && !p.done(ctx); i++ {
		t := signatures.get(i)
		key, graph := t.text(2), t.number32(4)
		switch {
		case int64(graph) >= int64(len(m.Subgraphs)):
			p.fail("signature %q: subgraph %d of %d", fault.Shorten(key), graph, len(m.Subgraphs))
		case seen[key]:
			p.fail("signature %q occurs twice", fault.Shorten(key))
		}
		seen[key] = true
		m.Signatures = append(m.Signatures, Signature{Key: key, Subgraph: int(graph)})
	}
	return m
}

// buffer reads a buffer: data within the FlatBuffer, or the place of data behind it.
func (p *modelParser) buffer(i int, t table) []byte {
	data := t.bytes(0, 1)
	offset, size := t.number64(1), t.number64(2)
	if offset <= 1 { // 1 is what writers put there before they know better
		return data
	}
	all := uint64(len(p.fb.data))
	switch {
	case len(data) > 0:
		p.fail("buffer %d has data and says that it has it at byte %d", i, offset)
	case offset > all || size > all-offset:
		p.fail("buffer %d: %d bytes at byte %d, the model ends at %d: it is truncated", i, size, offset, all)
	default:
		return p.fb.data[offset : offset+size : offset+size]
	}
	return nil
}

// subgraph reads subgraph number g.
func (p *modelParser) subgraph(ctx context.Context, g int, t table) Subgraph {
	out := Subgraph{Name: t.text(4)}
	tensors := t.tables(0)
	out.Tensors = make([]Tensor, 0, tensors.n)
	for i := 0; i < tensors.n && !p.done(ctx); i++ {
		out.Tensors = append(out.Tensors, p.tensor(g, i, tensors.get(i)))
	}
	operators := t.tables(3)
	out.Operators = make([]Operator, 0, operators.n)
	for i := 0; i < operators.n && !p.done(ctx); i++ {
		out.Operators = append(out.Operators, p.operator(g, i, operators.get(i), len(out.Tensors)))
	}
	return out
}

// operator reads operator i of subgraph g, which has that many tensors.
func (p *modelParser) operator(g, i int, t table, tensors int) Operator {
	code := t.number32(0)
	if int64(code) >= int64(len(p.codes)) {
		p.fail("operator %d of subgraph %d is of kind %d of %d", i, g, code, len(p.codes))
		return Operator{}
	}
	o := Operator{Op: p.codes[code], Inputs: integers[int32](t, 1, maxOperands, "inputs of an operator"), Outputs: integers[int32](t, 2, maxOperands, "outputs of an operator")}
	for _, list := range []struct {
		what    string
		numbers []int32
		least   int32
	}{{"takes", o.Inputs, -1}, {"gives", o.Outputs, 0}} {
		for _, n := range list.numbers {
			if n < list.least || int(n) >= tensors {
				p.fail("operator %d of subgraph %d %s tensor %d of %d", i, g, list.what, n, tensors)
			}
		}
	}
	p.options(&o, g, i, t)
	return o
}

// options reads the options of operator i of subgraph g. Without options all have their defaults.
func (p *modelParser) options(o *Operator, g, i int, t table) {
	want, slot := byte(0), 3
	switch o.Op {
	case Concatenation:
		want = concatenationOptions
	case FullyConnected:
		want = fullyConnectedOptions
	case Mul:
		want = mulOptions
	case Composite:
		want, slot = compositeOptions, 11
	default:
		return
	}
	switch kind := t.byteAt(slot); kind {
	case 0:
		return
	case want:
	default:
		p.fail("operator %d of subgraph %d is of kind %d and has options of kind %d", i, g, o.Op, kind)
		return
	}
	options := t.child(slot + 1)
	switch o.Op {
	case Concatenation:
		o.Activation = options.byteAt(1)
	case FullyConnected:
		o.Activation, o.WeightsFormat = options.byteAt(0), options.byteAt(1)
	case Mul:
		o.Activation = options.byteAt(0)
	case Composite:
		o.Name, o.Attributes = options.text(0), options.bytes(2, 1)
		if format := options.byteAt(3); len(o.Attributes) > 0 && format != 0 {
			p.fail("operator %d of subgraph %d has attributes in format %d, not in FlexBuffers", i, g, format)
		}
	}
}

// tensor reads tensor i of subgraph g.
func (p *modelParser) tensor(g, i int, t table) Tensor {
	out := Tensor{Name: t.text(3), Type: TensorType(t.byteAt(1)), Shape: integers[int](t, 0, maxRank, "dimensions"), External: t.number32(10) != 0, Quantization: quantization(t.child(4))}
	_, out.Sparse = t.field(6, 4)
	buffer := t.number32(2)
	bad := func(format string, args ...any) {
		p.fail("tensor %d of subgraph %d (%s): %s", i, g, fault.Shorten(out.Name), fmt.Sprintf(format, args...))
	}
	switch {
	case p.err != nil || p.fb.err != nil:
		return out
	case int64(buffer) >= int64(len(p.buffers)):
		bad("buffer %d of %d", buffer, len(p.buffers))
		return out
	}
	out.Data = p.buffers[buffer]
	if bits := out.Type.Bits(); len(out.Data) > 0 && bits > 0 && !out.Sparse {
		size, ok := sizeBytes(out.Shape, bits)
		if !ok || size != int64(len(out.Data)) {
			bad("%d bytes of data are not what shape %v of %s asks for", len(out.Data), out.Shape, out.Type)
		}
	}
	return out
}

// quantization reads a tensor's grid, nil if it has none.
func quantization(t table) *Quantization {
	q := &Quantization{Scales: t.bytes(2, 4), ZeroPoints: t.bytes(3, 8), Dimension: int(int32(t.number32(6))), Custom: t.byteAt(4) != 0}
	if len(q.Scales) == 0 && !q.Custom {
		return nil
	}
	return q
}

// sizeBytes returns the size of a constant, and false if its shape is none.
func sizeBytes(shape []int, bits int) (int64, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/64/int64(d) {
			return 0, false
		}
		n *= int64(d)
	}
	return (n*int64(bits) + 7) / 8, true
}
