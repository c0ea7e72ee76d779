package program_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/program"
)

// TestOperands makes every kind of operation with numbers of its own in all
// places for buffers and weights: each must be among what it reads or writes.
func TestOperands(t *testing.T) {
	t.Parallel()
	kinds := reflect.TypeFor[program.Op]()
	for i := range kinds.NumField() {
		name := kinds.Field(i).Name
		var buffers []program.BufferID
		var weights []program.WeightID
		var number func(v reflect.Value, name string)
		number = func(v reflect.Value, name string) {
			switch v.Interface().(type) {
			case program.BufferID:
				id := program.BufferID(10 + len(buffers))
				buffers = append(buffers, id)
				v.SetInt(int64(id))
				return
			case program.WeightID:
				id := program.WeightID(20 + len(weights))
				if name != "Table" { // of which a row is gathered
					weights = append(weights, id)
				}
				v.SetInt(int64(id))
				return
			}
			switch v.Kind() {
			case reflect.Struct:
				for f := range v.NumField() {
					number(v.Field(f), v.Type().Field(f).Name)
				}
			case reflect.Slice:
				v.Set(reflect.MakeSlice(v.Type(), 2, 2))
				for e := range v.Len() {
					number(v.Index(e), "")
				}
			}
		}
		var op program.Op
		field := reflect.ValueOf(&op).Elem().Field(i)
		field.Set(reflect.New(field.Type().Elem()))
		number(field.Elem(), "")

		all := append(op.Reads(), op.Writes()...)
		for _, id := range buffers {
			if !slices.Contains(all, id) {
				t.Errorf("%s: buffer %d of %d is neither read nor written", name, id-9, len(buffers))
			}
		}
		for _, id := range all {
			if !slices.Contains(buffers, id) {
				t.Errorf("%s: buffer %d is not one of its own", name, id)
			}
		}
		if got := op.Weights(); !slices.Equal(got, weights) {
			t.Errorf("%s: weights %v, want %v", name, got, weights)
		}
	}
}
