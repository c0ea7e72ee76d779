package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/quant"
)

// numberAdvice says what to do about a number that no model can have.
const numberAdvice = "the file is damaged, or the model was never sound: fetch it again, or take another revision"

// Describe writes a number type and a shape, such as "BF16 [2, 3]".
func Describe(d DType, shape []int) string {
	return fmt.Sprintf("%s %s", d, strings.ReplaceAll(fmt.Sprint(shape), " ", ", "))
}

// Check reports a tensor that does not have the number type and one of the shapes, as a
// *TensorError; why says what asks for them.
func (t Tensor) Check(why string, dtype DType, shapes ...[]int) error {
	if t.DType == dtype && slices.ContainsFunc(shapes, func(shape []int) bool { return slices.Equal(shape, t.Shape) }) {
		return nil
	}
	var want []string
	for _, shape := range shapes {
		want = append(want, Describe(dtype, shape))
	}
	return &TensorError{Tensor: t.Name, Problem: why, Want: strings.Join(want, " or "), Got: Describe(t.DType, t.Shape)}
}

// Floats returns the numbers of a tensor of BF16, F16 or F32, which float32 holds exactly.
// A tensor of anything else, or with a number that is not finite, is a *TensorError.
func (t Tensor) Floats() ([]float32, error) {
	size := t.DType.Size()
	var read func(at []byte) float32
	switch t.DType {
	case F32:
		read = func(at []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(at)) }
	case BF16:
		read = func(at []byte) float32 { return quant.BF16ToF32(binary.LittleEndian.Uint16(at)) }
	case F16:
		read = func(at []byte) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(at)) }
	default:
		return nil, &TensorError{Tensor: t.Name, Problem: "not floats", Want: "BF16, F16 or F32", Got: string(t.DType)}
	}
	values := make([]float32, len(t.Data)/size)
	for i := range values {
		values[i] = read(t.Data[i*size:])
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, NotFinite(t.Name, i, values[i])
		}
	}
	return values, nil
}

// NotFinite reports number i of a tensor, which is not finite.
func NotFinite(tensor string, i int, v float32) error {
	return &TensorError{Tensor: tensor, Problem: fmt.Sprintf("number %d is %v, which no model can have", i, v), Advice: numberAdvice}
}
