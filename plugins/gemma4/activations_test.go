package gemma4_test

import (
	"math"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/engine"
)

// activationSteps is the number of tokens over which kinds of activations are compared.
const activationSteps = 200

// TestActivations measures on a random model what activations of 16 and of 8 bits make of the
// logits of float ones. Random weights amplify noise far more than trained ones do.
func TestActivations(t *testing.T) {
	t.Parallel()
	m := open(t, "e4b-tiny/q4_0")
	// The bits are the same on every machine, and so are the figures.
	for acts, want := range map[backends.Activations]struct {
		relL2  float64
		agreed int
	}{
		backends.Activations16: {0.00883, 199},
		backends.Activations8:  {0.777, 34},
	} {
		relL2, agreed := activationError(t, m, acts)
		t.Logf("%s-bit activations against float: logits off by %.3g of their length, %d of %d tokens agree", acts, relL2, agreed, activationSteps)
		if !(math.Abs(relL2/want.relL2-1) <= 1e-3) || agreed != want.agreed {
			t.Errorf("%s-bit activations: want %.3g and %d tokens", acts, want.relL2, want.agreed)
		}
	}
}

// activationError feeds a prompt, and then the likeliest tokens with float activations,
// to two models that differ in the activations. It returns the error of the logits by
// their length, and how many of the likeliest tokens are the same.
func activationError(t *testing.T, m *model, acts backends.Activations) (relL2 float64, agreed int) {
	t.Helper()
	var sessions [2]*engine.Session
	for i, a := range []backends.Activations{backends.ActivationsFloat, acts} {
		e, err := engine.Load(t.Context(), m.program, m.weights, cpu.New(""), backends.Options{Cache: backends.CacheFloat, Activations: a, Context: 512})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		sessions[i] = session(t, e)
		defer sessions[i].Close()
	}
	ids := []int32{2, 1121, 204, 1089, 1079, 1022, 653}
	var square, length float64
	for range activationSteps {
		for _, s := range sessions {
			if err := s.Feed(t.Context(), ids, 1); err != nil {
				t.Fatal(err)
			}
		}
		want, got := sessions[0].Logits(0), sessions[1].Logits(0)
		for i, w := range want {
			d := float64(got[i]) - float64(w)
			square += d * d
			length += float64(w) * float64(w)
		}
		ids = []int32{argmax(want)}
		if argmax(got) == ids[0] {
			agreed++
		}
	}
	return math.Sqrt(square / length), agreed
}
