package sdk

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/plugins/gemma4e2b"
)

// TestSameTokens tells where answers begin to differ.
func TestSameTokens(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		got, want []int32
		text      string // "" if they are the same
	}{
		{"none", nil, nil, ""},
		{"same", []int32{1, 2, 3}, []int32{1, 2, 3}, ""},
		{"another", []int32{1, 2, 3, 4, 5, 6, 7}, []int32{1, 9, 3, 4, 5, 6, 7}, "from token 1 on it has [2 3 4 5], want [9 3 4 5]"},
		{"last", []int32{1, 2}, []int32{1, 3}, "from token 1 on it has [2], want [3]"},
		{"short", []int32{1}, []int32{1, 3}, "from token 1 on it has [], want [3]"},
		{"long", []int32{1, 2}, []int32{1}, "from token 1 on it has [2], want []"},
	} {
		text := ""
		if err := sameTokens(test.got, test.want); err != nil {
			text = err.Error()
		}
		if text != test.text {
			t.Errorf("%s: %q, want %q", test.name, text, test.text)
		}
	}
}

// TestArrivals wants some tokens of a submission before its end.
func TestArrivals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		came         arrivals
		detail, text string
	}{
		{"one by one", arrivals{tokens: 17, steps: 16, submissions: 2, early: 14}, "17 tokens, 8.0 a submission; 14 came before their submission had ended", ""},
		{"together", arrivals{tokens: 17, steps: 16, submissions: 2}, "17 tokens, 8.0 a submission; 0 came before their submission had ended", "all at its end"},
		{"single", arrivals{tokens: 17, steps: 16, submissions: 16, single: "top-k 0"}, "", "one token: top-k 0"},
	} {
		detail, err := test.came.judge(t.Context())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if detail != test.detail || !strings.HasSuffix(text, test.text) || (text == "") != (test.text == "") {
			t.Errorf("%s: %q, %q", test.name, detail, text)
		}
	}
}

// TestPromises passes a context on to what checks the contract.
func TestPromises(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what should come out is computed, which takes long under the race detector")
	}
	z, _ := tinyZoo(t, t.TempDir(), plainPlugin{gemma4e2b.New()})
	cpu, err := chooseBackend(z.backends, cpuName)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newMetalDiagnosis(z, metaltest.New(metaltest.Options{NoDevice: true})).contract(ctx, cpu.device); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestSpeed measures random weights on a device.
func TestSpeed(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	z, _ := tinyZoo(t, t.TempDir(), tinyPlugin{Plugin: gemma4e2b.New(), made: new(int)})
	x := newMetalDiagnosis(z, metaltest.New(metaltest.Options{}))
	detail, err := x.speed(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"tiny: ", " tokens/s (", " after 128, which read 0.0 GB/s of weights, ", " tokens a submission; a prompt of 128 at "} {
		if !strings.Contains(detail, want) {
			t.Errorf("%q lacks %q", detail, want)
		}
	}
	if strings.Contains(detail, " 1.0 tokens a submission") {
		t.Errorf("no bursts: %q", detail)
	}
}
