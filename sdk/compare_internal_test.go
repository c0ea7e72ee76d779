package sdk

import (
	"math/rand/v2"
	"testing"
)

// TestCountCodes holds the count of whole words against that of single codes.
func TestCountCodes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, width := range []int{2, 4, 8} {
		for n := range 40 {
			a, b := make([]byte, n), make([]byte, n)
			want := int64(0)
			for i := range a {
				a[i] = byte(r.Uint32())
				b[i] = a[i]
				if r.IntN(2) == 0 {
					b[i] ^= byte(r.Uint32())
				}
				for at := 0; at < 8; at += width {
					if mask := byte(1<<width - 1); (a[i]^b[i])>>at&mask != 0 {
						want++
					}
				}
			}
			if got := countCodes(a, b, width); got != want {
				t.Errorf("%d of %d bytes of %d-bit codes differ, want %d", got, n, width, want)
			}
		}
	}
}

func TestFamilyOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"layers.12.mlp.gate_up_proj": "layers.*.mlp.gate_up_proj",
		"layers.0.experts.7.up":      "layers.*.experts.*.up",
		"norm":                       "norm",
		"a..b2.3x":                   "a..b2.3x",
	} {
		if got := familyOf(name); got != want {
			t.Errorf("%q is of family %q, want %q", name, got, want)
		}
	}
}
