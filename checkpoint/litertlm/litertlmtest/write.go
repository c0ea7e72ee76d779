// Package litertlmtest writes .litertlm files and TFLite models for tests, with the
// FlatBuffers library: what the reader sees is made by other code than its own.
package litertlmtest

import (
	"bytes"
	"encoding/binary"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/zoo-sdk/zoo/checkpoint/litertlm"
)

// blockBytes is what the places of sections are multiples of.
const blockBytes = 16 << 10

// Item is a key with a text as its value.
type Item struct{ Key, Value string }

// Section is a section to be written.
type Section struct {
	Type  litertlm.SectionType
	Items []Item
	Data  []byte
	// Place, if set, may change where the header says that the section is.
	Place func(begin, end uint64) (uint64, uint64)
}

// Container returns a .litertlm file of these sections, in their order.
func Container(metadata []Item, sections []Section) []byte {
	type place struct{ begin, end uint64 }
	// The size of the header does not depend on the places, so that it is made twice.
	header := func(places []place) []byte {
		b := flatbuffers.NewBuilder(1 << 10)
		objects := make([]flatbuffers.UOffsetT, len(sections))
		for i, s := range sections {
			items := writeItems(b, s.Items)
			b.StartObject(4)
			b.PrependUOffsetTSlot(0, items, 0)
			// A place of 0 would be left out.
			b.PrependUint64Slot(1, places[i].begin, 1<<63)
			b.PrependUint64Slot(2, places[i].end, 1<<63)
			b.PrependByteSlot(3, byte(s.Type), 0)
			objects[i] = b.EndObject()
		}
		list := offsets(b, objects)
		b.StartObject(1)
		b.PrependUOffsetTSlot(0, list, 0)
		table := b.EndObject()
		items := writeItems(b, metadata)
		b.StartObject(1)
		b.PrependUOffsetTSlot(0, items, 0)
		system := b.EndObject()
		b.StartObject(2)
		b.PrependUOffsetTSlot(0, system, 0)
		b.PrependUOffsetTSlot(1, table, 0)
		b.Finish(b.EndObject())
		return b.FinishedBytes()
	}
	places := make([]place, len(sections))
	size := 32 + uint64(len(header(places)))
	at := size
	for i, s := range sections {
		at = (at + blockBytes - 1) / blockBytes * blockBytes
		places[i] = place{at, at + uint64(len(s.Data))}
		at = places[i].end
	}
	out := make([]byte, at)
	for i, s := range sections {
		copy(out[places[i].begin:], s.Data)
		if s.Place != nil {
			places[i].begin, places[i].end = s.Place(places[i].begin, places[i].end)
		}
	}
	copy(out, "LITERTLM")
	binary.LittleEndian.PutUint32(out[8:], 1)
	binary.LittleEndian.PutUint32(out[12:], 7)
	binary.LittleEndian.PutUint64(out[24:], size)
	copy(out[32:], header(places))
	return out
}

// writeItems writes keys with values.
func writeItems(b *flatbuffers.Builder, items []Item) flatbuffers.UOffsetT {
	pairs := make([]flatbuffers.UOffsetT, len(items))
	for i, item := range items {
		text := b.CreateString(item.Value)
		b.StartObject(1)
		b.PrependUOffsetTSlot(0, text, 0)
		value := b.EndObject()
		key := b.CreateString(item.Key)
		b.StartObject(3)
		b.PrependUOffsetTSlot(0, key, 0)
		b.PrependByteSlot(1, 9, 0)
		b.PrependUOffsetTSlot(2, value, 0)
		pairs[i] = b.EndObject()
	}
	return offsets(b, pairs)
}

// offsets writes a vector of tables.
func offsets(b *flatbuffers.Builder, tables []flatbuffers.UOffsetT) flatbuffers.UOffsetT {
	b.StartVector(4, len(tables), 4)
	for i := len(tables) - 1; i >= 0; i-- {
		b.PrependUOffsetT(tables[i])
	}
	return b.EndVector(len(tables))
}

// Tensor is a tensor to be written.
type Tensor struct {
	Name  string
	Type  litertlm.TensorType
	Shape []int
	// Data makes it a constant.
	Data []byte
	// Scales puts it on a grid, with as many zero points, all of them ZeroPoint.
	Scales    []float32
	ZeroPoint int64
	// Dimension is what has a scale for each index.
	Dimension int
	// External gives it a number of an external buffer.
	External uint32
	// Sparse says that it is sparse, without saying how.
	Sparse Sparsity
}

// Sparsity says whether a tensor is sparse.
type Sparsity int

// The kinds of tensors.
const (
	Dense Sparsity = iota
	Sparse
)

// Operator is an operator to be written.
type Operator struct {
	Op litertlm.Op
	// Name is that of a composite operator.
	Name            string
	Inputs, Outputs []int
	// Activation is the number of a fused function, WeightsFormat that of an order of weights.
	Activation, WeightsFormat byte
	// Attributes are those of a composite operator, see [Attribute].
	Attributes []byte
}

// Attribute returns attributes that are one number of 32 bits.
func Attribute(name string, value float32) []byte {
	// The name; a vector of the offset back to it, behind their number.
	out := append([]byte(name), 0, 1, byte(len(name)+2))
	at := len(out) - 1
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	// The map: the offset back to the names, their width, the number of values, the
	// value and its type. The end is the offset back to the values, its type and its width.
	for _, n := range []uint32{uint32(len(out) - at), 1, 1, math.Float32bits(value)} {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	const floatOf4, mapOf4 = 3<<2 | 2, 9<<2 | 2
	return append(out, floatOf4, 5, mapOf4, 1)
}

// Subgraph is a subgraph to be written.
type Subgraph struct {
	Name      string
	Tensors   []Tensor
	Operators []Operator
}

// Model is a model to be written.
type Model struct {
	Subgraphs  []Subgraph
	Signatures []litertlm.Signature
	// Appended puts the data behind the FlatBuffer.
	Appended bool
}

// Bytes returns the model as a TFLite file.
func (m *Model) Bytes() []byte {
	if !m.Appended {
		out, _ := m.build(nil)
		return out
	}
	// Where the data lies depends on the size of the FlatBuffer, which does not depend on the places.
	_, data := m.build(nil)
	places := make([]uint64, len(data))
	out, _ := m.build(places)
	at := uint64(len(out))
	for i, d := range data {
		at = (at + 15) / 16 * 16
		places[i] = at
		at += uint64(len(d))
	}
	out, _ = m.build(places)
	for i, d := range data {
		out = append(out, make([]byte, int(places[i])-len(out))...)
		out = append(out, d...)
	}
	return out
}

// build writes the FlatBuffer and returns the data of its buffers but the first,
// which is empty. With places they are left out and said to be there.
func (m *Model) build(places []uint64) (out []byte, data [][]byte) {
	b := flatbuffers.NewBuilder(1 << 16)
	var codes []litertlm.Op
	var graphs, buffers []flatbuffers.UOffsetT
	b.StartObject(3)
	buffers = append(buffers, b.EndObject())
	addBuffer := func(d []byte) uint32 {
		if len(d) == 0 {
			return 0
		}
		var at flatbuffers.UOffsetT
		if places == nil {
			at = b.CreateByteVector(d)
		}
		b.StartObject(3)
		if places == nil {
			b.PrependUOffsetTSlot(0, at, 0)
		} else {
			b.PrependUint64Slot(1, places[len(data)], 1<<63)
			b.PrependUint64Slot(2, uint64(len(d)), 0)
		}
		buffers = append(buffers, b.EndObject())
		data = append(data, d)
		return uint32(len(data))
	}
	for _, g := range m.Subgraphs {
		tensors := make([]flatbuffers.UOffsetT, len(g.Tensors))
		for i, t := range g.Tensors {
			tensors[i] = t.write(b, addBuffer(t.Data))
		}
		operators := make([]flatbuffers.UOffsetT, len(g.Operators))
		for i, o := range g.Operators {
			code := 0
			for code < len(codes) && codes[code] != o.Op {
				code++
			}
			if code == len(codes) {
				codes = append(codes, o.Op)
			}
			operators[i] = o.write(b, uint32(code))
		}
		name := b.CreateString(g.Name)
		tensorList, operatorList := offsets(b, tensors), offsets(b, operators)
		b.StartObject(5)
		b.PrependUOffsetTSlot(0, tensorList, 0)
		b.PrependUOffsetTSlot(3, operatorList, 0)
		b.PrependUOffsetTSlot(4, name, 0)
		graphs = append(graphs, b.EndObject())
	}
	opcodes := make([]flatbuffers.UOffsetT, len(codes))
	for i, c := range codes {
		b.StartObject(4)
		b.PrependByteSlot(0, byte(min(int(c), 127)), 0)
		b.PrependInt32Slot(3, int32(c), 0)
		opcodes[i] = b.EndObject()
	}
	signatures := make([]flatbuffers.UOffsetT, len(m.Signatures))
	for i, s := range m.Signatures {
		key := b.CreateString(s.Key)
		b.StartObject(5)
		b.PrependUOffsetTSlot(2, key, 0)
		b.PrependUint32Slot(4, uint32(s.Subgraph), 0)
		signatures[i] = b.EndObject()
	}
	codeList, graphList, bufferList, signatureList := offsets(b, opcodes), offsets(b, graphs), offsets(b, buffers), offsets(b, signatures)
	b.StartObject(8)
	b.PrependUint32Slot(0, 3, 0)
	b.PrependUOffsetTSlot(1, codeList, 0)
	b.PrependUOffsetTSlot(2, graphList, 0)
	b.PrependUOffsetTSlot(4, bufferList, 0)
	b.PrependUOffsetTSlot(7, signatureList, 0)
	b.FinishWithFileIdentifier(b.EndObject(), []byte("TFL3"))
	return bytes.Clone(b.FinishedBytes()), data
}

// write writes a tensor whose data is in that buffer.
func (t *Tensor) write(b *flatbuffers.Builder, buffer uint32) flatbuffers.UOffsetT {
	name, shape := b.CreateString(t.Name), integers(b, t.Shape)
	var grid flatbuffers.UOffsetT
	if t.Scales != nil {
		b.StartVector(4, len(t.Scales), 4)
		for i := len(t.Scales) - 1; i >= 0; i-- {
			b.PrependFloat32(t.Scales[i])
		}
		scales := b.EndVector(len(t.Scales))
		b.StartVector(8, len(t.Scales), 8)
		for range t.Scales {
			b.PrependInt64(t.ZeroPoint)
		}
		zeros := b.EndVector(len(t.Scales))
		b.StartObject(7)
		b.PrependUOffsetTSlot(2, scales, 0)
		b.PrependUOffsetTSlot(3, zeros, 0)
		b.PrependInt32Slot(6, int32(t.Dimension), 0)
		grid = b.EndObject()
	}
	var sparsity flatbuffers.UOffsetT
	if t.Sparse == Sparse {
		b.StartObject(0)
		sparsity = b.EndObject()
	}
	b.StartObject(11)
	b.PrependUOffsetTSlot(0, shape, 0)
	b.PrependByteSlot(1, byte(t.Type), 0)
	b.PrependUint32Slot(2, buffer, 0)
	b.PrependUOffsetTSlot(3, name, 0)
	b.PrependUOffsetTSlot(4, grid, 0)
	b.PrependUOffsetTSlot(6, sparsity, 0)
	b.PrependUint32Slot(10, t.External, 0)
	return b.EndObject()
}

// write writes an operator of that kind.
func (o *Operator) write(b *flatbuffers.Builder, code uint32) flatbuffers.UOffsetT {
	inputs, outputs := integers(b, o.Inputs), integers(b, o.Outputs)
	kind, options := o.options(b)
	b.StartObject(14)
	b.PrependUint32Slot(0, code, 0)
	b.PrependUOffsetTSlot(1, inputs, 0)
	b.PrependUOffsetTSlot(2, outputs, 0)
	slot := 3
	if o.Op == litertlm.Composite {
		slot = 11
	}
	b.PrependByteSlot(slot, kind, 0)
	b.PrependUOffsetTSlot(slot+1, options, 0)
	return b.EndObject()
}

// options writes the options of an operator, and returns their kind, 0 without any.
func (o *Operator) options(b *flatbuffers.Builder) (kind byte, at flatbuffers.UOffsetT) {
	switch o.Op {
	case litertlm.Concatenation:
		b.StartObject(2)
		b.PrependByteSlot(1, o.Activation, 0)
		return 10, b.EndObject()
	case litertlm.FullyConnected:
		b.StartObject(5)
		b.PrependByteSlot(0, o.Activation, 0)
		b.PrependByteSlot(1, o.WeightsFormat, 0)
		return 8, b.EndObject()
	case litertlm.Mul:
		b.StartObject(1)
		b.PrependByteSlot(0, o.Activation, 0)
		return 21, b.EndObject()
	case litertlm.Composite:
		name := b.CreateString(o.Name)
		var attributes flatbuffers.UOffsetT
		if len(o.Attributes) > 0 {
			attributes = b.CreateByteVector(o.Attributes)
		}
		b.StartObject(5)
		b.PrependUOffsetTSlot(0, name, 0)
		b.PrependUOffsetTSlot(2, attributes, 0)
		return 21, b.EndObject()
	}
	return 0, 0
}

// integers writes a vector of 32-bit numbers.
func integers(b *flatbuffers.Builder, numbers []int) flatbuffers.UOffsetT {
	b.StartVector(4, len(numbers), 4)
	for i := len(numbers) - 1; i >= 0; i-- {
		b.PrependInt32(int32(numbers[i]))
	}
	return b.EndVector(len(numbers))
}
