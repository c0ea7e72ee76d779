package gate_test

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/gate"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// The fake model reads and writes bytes: tokens 0 to 255 are bytes, and 256
// ends an answer. A prompt is a question and a line end. It is sure of itself:
// the logit of the right next byte is 8 above all others.
const (
	fakeStop   = 256
	fakeVocab  = 257
	fakeMargin = 8
)

// fakeAnswers is all that the fake model knows.
var fakeAnswers = map[string]string{
	"Why is the sky blue?":                    "Light is scattered.",
	"What is the capital of France?":          "Paris.",
	"Explain photosynthesis in one sentence.": "Light becomes sugar.",
	"One?":   "1",
	"Two?":   "2, and a longer answer than fits in one step.",
	"Three?": "3",
}

// fakeLogits writes the logits after tokens.
func fakeLogits(tokens []int32, dst []float32) {
	text := make([]byte, len(tokens))
	for i, id := range tokens {
		text[i] = byte(id)
	}
	h := fnv.New32a()
	_, _ = h.Write(text)
	seed := h.Sum32()
	for i := range dst {
		seed = seed*1664525 + 1013904223
		dst[i] = float32(seed>>8) / (1 << 24)
	}
	next := int32(fakeStop)
	question, given, asked := strings.Cut(string(text), "\n")
	if answer := fakeAnswers[question]; asked && len(given) < len(answer) {
		next = int32(answer[len(given)])
	}
	best := slices.Max(dst)
	dst[next] = best + fakeMargin
}

// situation is what a fault of the fake backend may depend on.
type situation struct {
	tokens  []int32 // of the slot, up to the row
	rows    int     // of the batch
	wanted  int     // rows of the batch that want logits
	threads int
}

// text returns the tokens as text.
func (s situation) text() string { return fakeText{}.Decode(s.tokens) }

// fakeBackend runs the fake model.
type fakeBackend struct {
	// bend, if set, spoils logits.
	bend func(logits []float32, at situation)
	// forgetful backends do not shorten slots, short ones refuse to.
	forgetful, short bool
	// fail, if set, is the error of every step with such a text.
	fail func(text string) error
	// plain, if set, has the kernels that define what this one computes.
	plain *fakeBackend
}

func (b *fakeBackend) Plain() backends.Backend {
	if b.plain == nil {
		return nil
	}
	return b.plain
}

func (b *fakeBackend) Name() string     { return "fake" }
func (b *fakeBackend) Describe() string { return "fake <kernels>" }
func (b *fakeBackend) Available() error { return nil }

func (b *fakeBackend) Compile(_ context.Context, _ *program.Program, _ backends.Weights, o backends.Options) (backends.Executor, error) {
	return &fakeExecutor{backend: b, options: o, slots: map[backends.Slot][]int32{}}, nil
}

type fakeExecutor struct {
	backend *fakeBackend
	options backends.Options
	slots   map[backends.Slot][]int32
	last    backends.Slot
	logits  [][]float32
}

func (e *fakeExecutor) NewSlot() (backends.Slot, error) {
	e.last++
	e.slots[e.last] = nil
	return e.last, nil
}

func (e *fakeExecutor) FreeSlot(s backends.Slot) { delete(e.slots, s) }
func (e *fakeExecutor) Len(s backends.Slot) int  { return len(e.slots[s]) }

func (e *fakeExecutor) Truncate(s backends.Slot, n int) error {
	switch {
	case e.backend.short && n > 0:
		return backends.ErrTruncate
	case e.backend.forgetful && n > 0:
		// Keeps the length, and with it the wrong tokens.
		kept := e.slots[s][:n]
		kept[n-1]++
		e.slots[s] = kept
	default:
		e.slots[s] = e.slots[s][:n]
	}
	return nil
}

func (e *fakeExecutor) Step(ctx context.Context, b *backends.Batch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	at := situation{rows: len(b.Rows), threads: max(2, e.options.Threads)}
	if e.options.Threads == 1 {
		at.threads = 1
	}
	for _, r := range b.Rows {
		if r.Logits {
			at.wanted++
		}
	}
	e.logits = e.logits[:0]
	for _, r := range b.Rows {
		at.tokens = append(e.slots[r.Slot], r.Token)
		e.slots[r.Slot] = at.tokens
		if e.backend.fail != nil {
			if err := e.backend.fail(at.text()); err != nil {
				return err
			}
		}
		if r.Logits {
			l := make([]float32, fakeVocab)
			fakeLogits(at.tokens, l)
			if e.backend.bend != nil {
				e.backend.bend(l, at)
			}
			e.logits = append(e.logits, l)
		}
	}
	return nil
}

func (e *fakeExecutor) Logits(i int) []float32 { return e.logits[i] }
func (e *fakeExecutor) Hidden(int) []float32   { return []float32{0} }
func (e *fakeExecutor) Peaks(i int) (peaks []float32) {
	for run := range slices.Chunk(e.logits[i], backends.PeakRun) {
		peaks = append(peaks, backends.Peak(run))
	}
	return peaks
}

func (e *fakeExecutor) Profile() []backends.OpProfile { return nil }

func (e *fakeExecutor) Stats() backends.Stats {
	return backends.Stats{Threads: max(2, e.options.Threads)}
}
func (e *fakeExecutor) Close() error { return nil }

// fakeText is the tokenizer and the chat template of the fake model.
type fakeText struct{ lossy bool }

func (t fakeText) Prompt(_ context.Context, question string) ([]int32, error) {
	return t.Encode(question + "\n"), nil
}

func (t fakeText) Encode(text string) []int32 {
	ids := make([]int32, 0, len(text))
	for _, b := range []byte(text) {
		if t.lossy && b == ' ' {
			continue
		}
		ids = append(ids, int32(b))
	}
	return ids
}

func (t fakeText) Decode(ids []int32) string {
	var text []byte
	for _, id := range ids {
		if id < 256 {
			text = append(text, byte(id))
		}
	}
	return string(text)
}

func (t fakeText) StopIDs() []int32 { return []int32{fakeStop} }

// fakePack holds nothing: the fake backend reads no weights.
type fakePack struct{}

func (fakePack) Digest() catalog.Digest { return catalog.DigestOf([]byte("fake")) }
func (fakePack) Tensor(string) ([]byte, quant.Matrix, bool) {
	return nil, quant.Matrix{}, false
}

// fakeProgram is exact, or has a static grid.
func fakeProgram(rounded bool) *program.Program {
	p := &program.Program{Vocab: fakeVocab, TokenLimit: fakeVocab, Context: 1000, Buffers: []program.Buffer{{Name: "hidden", Cols: 1}}}
	part := program.Part{Rows: 1}
	if rounded {
		part.InScale = 0.5
	}
	p.Ops = []program.Op{{Linear: &program.Linear{Parts: []program.Part{part}}}}
	return p
}

// fakeRun is what the fake model itself says after a prompt.
func fakeRun(prompt string, n int) zoo.ReferenceRun {
	run := zoo.ReferenceRun{Prompt: fakeText{}.Encode(prompt)}
	logits := make([]float32, fakeVocab)
	for i := range run.Prompt {
		fakeLogits(run.Prompt[:i+1], logits)
		run.PromptLogits = append(run.PromptLogits, slices.Clone(logits))
	}
	tokens := slices.Clone(run.Prompt)
	for range n {
		fakeLogits(tokens, logits)
		sorted := slices.Sorted(slices.Values(logits))
		next := int32(slices.Index(logits, sorted[fakeVocab-1]))
		run.Greedy = append(run.Greedy, next)
		run.Margin = append(run.Margin, sorted[fakeVocab-1]-sorted[fakeVocab-2])
		tokens = append(tokens, next)
	}
	fakeLogits(tokens, logits)
	run.LastLogits = slices.Clone(logits)
	return run
}

// fakeReference is what the fake model says of itself.
func fakeReference() *zoo.Reference {
	r := &zoo.Reference{Runs: []zoo.ReferenceRun{fakeRun("Why is the sky blue?\n", 15), fakeRun("What is the capital of France?\n", 10)}}
	for _, q := range []string{"One?", "Two?", "Three?", "Why is the sky blue?", "What is the capital of France?"} {
		r.Questions = append(r.Questions, zoo.Question{Question: q, Expected: fakeAnswers[q], Reference: fakeAnswers[q]})
	}
	return r
}

// fakeRequest is one that passes.
func fakeRequest() gate.Request {
	return gate.Request{
		Pack:      fakePack{},
		Plugin:    zoo.PluginID{Name: "fakes", Version: "1.2.3"},
		Program:   fakeProgram(false),
		Backend:   &fakeBackend{},
		Text:      fakeText{},
		Reference: fakeReference(),
	}
}
