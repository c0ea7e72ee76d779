package gemma3_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/plugins/gemma3"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/golden"
)

// llamacpp is a folder with a pack of a GGUF file in "pack", with what llama.cpp answers with
// that file in "rounded", and with its weights in float32 in "exact": see .ci/gemma3.
var llamacpp = flag.String("llamacpp", "", "hold the tokens of a pack against those of llama.cpp, which both lie in this folder")

const (
	// enough is the share of tokens that come before the first difference from llama.cpp,
	// where that does not round activations.
	enough = 0.95
	// noise is by how much logits differ from one processor that llama.cpp is run on to
	// another. A fork takes up to a twentieth of the tokens with it: those at closer ties say nothing.
	noise = 0.001
	// tie is how much likelier one of two tokens may be here where llama.cpp, without rounding,
	// takes the other, and far the same where it does round.
	tie, far = 0.005, 2.5
)

// fork is where an answer departs from another's.
type fork struct {
	// at is the number of tokens before it.
	at int
	// ours and theirs are the tokens, of which ours has a logit that is so much larger here.
	ours, theirs int32
	margin       float32
}

// TestLlamaCpp answers prompts greedily and counts the tokens before the first that is another
// than llama.cpp's. What follows on a fork are answers to different texts.
//
// llama.cpp rounds activations to 8 bits where weights are quantised, and no more where they
// are floats. The numbers of the weights are the same, so that what its two answers differ in
// comes from that rounding alone.
func TestLlamaCpp(t *testing.T) {
	if *llamacpp == "" {
		t.Skip("needs -llamacpp DIR, as .ci/gemma3 makes it")
	}
	pack, err := zoo.OpenPack(filepath.Join(*llamacpp, "pack"))
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	p, err := gemma3.New().Run(t.Context(), zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		t.Fatal(err)
	}
	answers := func(name string) []zoo.ReferenceRun {
		ref, err := golden.Read(t.Context(), filepath.Join(*llamacpp, name), golden.Model{Vocab: p.Vocab, TokenLimit: p.TokenLimit, Context: p.Context})
		if err != nil {
			t.Fatal(err)
		}
		return ref.Runs
	}
	rounded, exact := answers("rounded"), answers("exact")
	if len(rounded) != len(exact) {
		t.Fatalf("%d answers, and %d of float32", len(rounded), len(exact))
	}
	var self tally
	for i, run := range exact {
		if !slices.Equal(run.Prompt, rounded[i].Prompt) || len(run.Greedy) != len(rounded[i].Greedy) {
			t.Fatalf("prompt %d is another for float32", i)
		}
		self.add(i, firstFork(rounded[i].Greedy, exact[i].Greedy), len(exact[i].Greedy))
	}
	t.Logf("llama.cpp against itself: %s", &self)
	for _, activations := range []backends.Activations{backends.Activations16, backends.ActivationsFloat} {
		t.Run(string(activations), func(t *testing.T) {
			a := agreement{pack: pack, program: p, activations: activations}
			a.compare(t, rounded, exact)
			share := a.report(t, "with its weights in float32", &a.exact, tie)
			a.report(t, "with the file as it is", &a.rounded, far)
			t.Logf("at %d of those %d forks llama.cpp, with its weights in float32, takes our token as well", a.agreed, len(a.rounded.forks))
			if share < enough && a.exact.widest > noise {
				t.Errorf("%.1f%% of the tokens come before the first fork, fewer than %.0f%%", 100*share, 100*enough)
			}
		})
	}
}

// agreement compares answers of a pack with two sets of llama.cpp's.
type agreement struct {
	pack        *zoo.Pack
	program     *program.Program
	activations backends.Activations

	rounded, exact tally
	// agreed counts the forks from rounded answers at which the exact ones go with ours.
	agreed int
}

// tally is what a comparison comes to.
type tally struct {
	// before counts the tokens before the first fork of each answer, of all tokens.
	before, of int
	forks      []string
	// widest is the largest margin of a fork.
	widest float32
}

// compare answers each prompt.
func (a *agreement) compare(t *testing.T, rounded, exact []zoo.ReferenceRun) {
	t.Helper()
	m, err := engine.Load(t.Context(), a.program, a.pack, cpu.New(""), backends.Options{Activations: a.activations, MaxRows: 256, MaxLogits: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i, run := range exact {
		forks := a.forks(t, m, run.Prompt, rounded[i].Greedy, run.Greedy)
		a.rounded.add(i, forks[0], len(run.Greedy))
		a.exact.add(i, forks[1], len(run.Greedy))
		if f := forks[0]; f != nil && (forks[1] == nil || forks[1].at > f.at) {
			a.agreed++
		}
	}
}

// forks answers a prompt and returns where the answer departs from each of others, or nil.
func (a *agreement) forks(t *testing.T, m *engine.Model, prompt []int32, others ...[]int32) []*fork {
	t.Helper()
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := make([]*fork, len(others))
	next := prompt
	for at := range others[0] {
		if err := s.Feed(t.Context(), next, 1); err != nil {
			t.Fatal(err)
		}
		logits := s.Logits(0)
		best := int32(0)
		for id, x := range logits {
			if x > logits[best] {
				best = int32(id)
			}
		}
		for i, other := range others {
			if theirs := other[at]; found[i] == nil && theirs != best {
				found[i] = &fork{at, best, theirs, logits[best] - logits[theirs]}
			}
		}
		if !slices.Contains(found, nil) {
			break
		}
		next = []int32{best}
	}
	return found
}

// add counts an answer of so many tokens, which has a fork or none.
func (c *tally) add(prompt int, f *fork, tokens int) {
	c.of += tokens
	if f == nil {
		c.before += tokens
		return
	}
	c.before += f.at
	c.widest = max(c.widest, f.margin)
	c.forks = append(c.forks, fmt.Sprintf("prompt %d, token %d: %d, and not %d, by %.3g", prompt, f.at, f.ours, f.theirs, f.margin))
}

// report logs what a comparison came to, and returns the share of tokens before the first fork.
func (a *agreement) report(t *testing.T, what string, c *tally, limit float32) float64 {
	t.Helper()
	t.Logf("llama.cpp %s: %s, the widest by %.3g", what, c, c.widest)
	for _, f := range c.forks {
		t.Log("  ", f)
	}
	if c.widest > limit {
		t.Errorf("a fork by %g, where %g may be", c.widest, limit)
	}
	return c.share()
}

// share returns the share of tokens that come before the first fork of their answer.
func (c *tally) share() float64 { return float64(c.before) / float64(c.of) }

// String sums up.
func (c *tally) String() string {
	return fmt.Sprintf("%d of %d tokens before the first fork (%.1f%%), %d forks", c.before, c.of, 100*c.share(), len(c.forks))
}

// firstFork returns where two answers of the same length part, or nil.
func firstFork(ours, theirs []int32) *fork {
	for i, id := range ours {
		if id != theirs[i] {
			return &fork{at: i, ours: id, theirs: theirs[i]}
		}
	}
	return nil
}
