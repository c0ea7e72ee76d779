package kernels_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
)

func TestInterleave(t *testing.T) {
	t.Parallel()
	for _, s := range kernels.Variants() {
		for rows := 1; rows <= 13; rows++ {
			for _, n := range []int{0, 1, 3, 4, 5, 8, 23, 64} {
				for gap := range 3 {
					stride := rows + gap
					src := guarded[uint32](t, rows*n)
					for i := range src {
						src[i] = uint32(i + 1)
					}
					want := make([]uint32, max(0, (n-1)*stride+rows))
					for i := range src {
						want[i%n*stride+i/n] = src[i]
					}
					got := guarded[uint32](t, len(want))
					s.Interleave(got, stride, src, rows)
					if !slices.Equal(got, want) {
						t.Fatalf("%s: %d rows of %d words, stride %d: %v, want %v", s.Name(), rows, n, stride, got, want)
					}
				}
			}
		}
	}
}

func BenchmarkInterleave(b *testing.B) {
	for _, s := range kernels.Variants() {
		b.Run(fmt.Sprintf("%s/4x384", s.Name()), func(b *testing.B) {
			src, dst := make([]uint32, 4*384), make([]uint32, 24*384)
			b.SetBytes(4 * int64(len(src)))
			for b.Loop() {
				s.Interleave(dst, 24, src, 4)
			}
		})
	}
}
