package sdk

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// What a benchmark measures unless its options say otherwise.
const (
	benchPrompt   = 128
	benchGenerate = 64
	benchRounds   = 5
	// benchContext is the least context that is made room for, if the model has it.
	benchContext = 4096
)

// maxBenchRounds bounds the rounds that a user may ask for.
const maxBenchRounds = 1000

// BenchOptions says what is measured. The zero value takes the defaults.
type BenchOptions struct {
	// Prompt is the number of tokens of the prompt; 0 means 128.
	Prompt int
	// Generate is the number of tokens that are decoded; 0 means 64.
	Generate int
	// Depth is the number of tokens in the context before the first is decoded; 0
	// means those of the prompt.
	Depth int
	// Rounds is how often everything is measured; 0 means 5.
	Rounds int
	// CurveTo, if not 0, asks for the speed of decoding at contexts of 128, 512,
	// 1024 and further doubled tokens up to this many.
	CurveTo int
	// Profile asks for the time of each operation, from runs of their own.
	Profile bool
}

// BenchSpread is a figure that was measured several times.
type BenchSpread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// BenchReport is what [Zoo.Bench] has measured. It tells all that is needed to
// compare it with another.
type BenchReport struct {
	// Info says what ran and how.
	Info
	// Synthetic says that the weights are random, in the shapes of the model of this name.
	Synthetic bool `json:"synthetic"`
	// Zoo is the version of this module.
	Zoo     string       `json:"zoo"`
	Machine BenchMachine `json:"machine"`

	// PromptTokens, GenerateTokens, Depth and Rounds are as in [BenchOptions].
	PromptTokens   int `json:"prompt_tokens"`
	GenerateTokens int `json:"generate_tokens"`
	Depth          int `json:"depth"`
	Rounds         int `json:"rounds"`

	// Load is the time in seconds from opening the pack, which lies in the system's
	// cache of files, to where the first token can be fed.
	Load BenchSpread `json:"load_seconds"`
	// FirstPrompt is the time in seconds that the very first prompt after that takes
	// to its first token. The system maps the weights meanwhile.
	FirstPrompt float64 `json:"first_prompt_seconds"`
	// FirstToken is the time in seconds from the prompt's tokens to the first of the
	// answer, once the model has answered before.
	FirstToken BenchSpread `json:"first_token_seconds"`
	// Prefill is the number of prompt tokens a second.
	Prefill BenchSpread `json:"prefill_tokens_per_second"`
	// Decode is the number of tokens a second that follow Depth tokens, each the
	// likeliest, with all that it takes to pick it.
	Decode BenchSpread `json:"decode_tokens_per_second"`
	// TokensPerSubmission is how many tokens the backend decoded at a time, and
	// SingleStep says why it was one where it is not "".
	TokensPerSubmission float64 `json:"tokens_per_submission"`
	SingleStep          string  `json:"single_step,omitempty"`

	Memory BenchMemory `json:"memory"`
	// StepBytes is the number of weight bytes that one decoded token reads.
	StepBytes int64 `json:"bytes_per_token"`
	// Bandwidth is nil where it cannot be measured, and BandwidthProblem then says why.
	Bandwidth        *BenchBandwidth `json:"bandwidth"`
	BandwidthProblem string          `json:"bandwidth_problem,omitempty"`

	// PrefillProfile and DecodeProfile are nil unless they were asked for.
	PrefillProfile *BenchProfile `json:"prefill_profile,omitempty"`
	DecodeProfile  *BenchProfile `json:"decode_profile,omitempty"`
	// Curve is the speed of decoding by the length of the context, if it was asked for.
	Curve []BenchPoint `json:"curve,omitempty"`
}

// BenchMachine says what the figures were measured on.
type BenchMachine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Processor is the name that the processor gives itself, or "".
	Processor string `json:"processor"`
	// Processors is the number that this process may use, and Features are the
	// instruction sets that kernels care about.
	Processors int      `json:"processors"`
	Features   []string `json:"features"`
	// MemoryBytes is the memory that this process may use; 0 when not known.
	MemoryBytes int64 `json:"memory"`
}

// BenchMemory says what running the model takes, in bytes.
type BenchMemory struct {
	// Mapped is the size of the pack's files, which are mapped: the system keeps of
	// them what it has room for.
	Mapped int64 `json:"mapped"`
	// Private is the most memory that was resident and that no file backs, for the
	// whole process; 0 when the system does not tell.
	Private int64 `json:"private"`
	// Buffers and Caches are the parts of it for activations, and for keys and values.
	Buffers int64 `json:"buffers"`
	Caches  int64 `json:"caches"`
	// ResidentPrivate and ResidentFiles are what is resident at the end, for the whole
	// process: what no file backs, and what of mapped files it has touched or
	// locked. Both are 0 when the system does not tell.
	ResidentPrivate int64 `json:"resident_private"`
	ResidentFiles   int64 `json:"resident_files"`
	// Tables is nil for a model without tables that rows are only looked up in.
	Tables *BenchTables `json:"tables,omitempty"`
}

// BenchTables says what tables take, in bytes, that rows are only looked up in.
type BenchTables struct {
	// Size is that of the tables, which is a part of the mapped files.
	Size int64 `json:"size"`
	// InMemory is how much of them the system holds in memory after decoding, which
	// may be for others, such as who wrote the file; nil when it does not tell.
	InMemory *int64 `json:"in_memory"`
	// Locked is how much of them it was made to keep there.
	Locked int64 `json:"locked"`
}

// BenchBandwidth is how fast the machine reads, and what decoding makes of it.
type BenchBandwidth struct {
	// Before and After are the bytes a second that as many threads as the model runs
	// on read of its weights, right before and after decoding.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Median is that of the two.
	Median float64 `json:"median"`
	// Bytes is how many bytes were read.
	Bytes int64 `json:"bytes"`
	// Share is the part of it that decoding reaches: bytes a token times tokens a second.
	Share float64 `json:"share"`
	// Ceiling is the number of tokens a second if reading the weights were all there is to do.
	Ceiling float64 `json:"ceiling_tokens_per_second"`
}

// BenchProfile is the time of the operations of one step: a prompt, or a decoded token.
type BenchProfile struct {
	// Steps is the number of steps that the figures are means of.
	Steps int `json:"steps"`
	// Seconds is the time of a step, and Other the part of it in no operation.
	Seconds float64 `json:"seconds"`
	Other   float64 `json:"other_seconds"`
	// Operations lists the kinds of operations, the slowest first.
	Operations []BenchOperation `json:"operations"`
}

// BenchOperation is the part of one kind of operations in a step.
type BenchOperation struct {
	// Name is the kind and, for products, the format and shape of the matrix.
	Name string `json:"name"`
	// Calls is how often it runs.
	Calls float64 `json:"calls"`
	// Seconds is the time that it takes, and Share the part of the step's.
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"`
	// BytesPerSecond is how fast it reads weights.
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// BenchPoint is the speed of decoding at one length of the context.
type BenchPoint struct {
	// Depth is the number of tokens in the context before the first is decoded.
	Depth  int         `json:"depth"`
	Decode BenchSpread `json:"decode_tokens_per_second"`
}

// Bench measures how fast the model of a reference, or the pack in a folder, runs on
// this machine. It is opened as by [Zoo.Open], but that a pack of random weights (see
// [Zoo.Synthesize]) needs no gate. Without [WithContext] there is room for what is
// measured, and at least for 4096 tokens. Nothing else should run meanwhile.
func (z *Zoo) Bench(ctx context.Context, name string, how BenchOptions, opts ...Option) (*BenchReport, error) {
	set, how, err := z.benchSettings(how, opts)
	if err != nil {
		return nil, err
	}
	s, err := z.open(ctx, set, name)
	if err != nil {
		return nil, err
	}
	defer s.pack.Close()
	synthetic := s.pack.Manifest().Synthetic()
	if synthetic {
		set.events.Notice(fmt.Sprintf("%q holds random weights, which no gate admits: they show the speed and say nothing", s.name))
		s.name = filepath.Base(s.pack.Dir())
	} else if _, _, err := z.admit(set, s); err != nil {
		return nil, err
	}
	b := &bench{zoo: z, set: set, how: how, subject: s}
	report, err := b.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("benchmark of %s: %w", s.name, err)
	}
	report.Synthetic = synthetic
	return report, nil
}

// CheckBench returns the error, a zoo.ErrUsage, that [Zoo.Bench] would return for these
// options whatever the model, and nil if they suit some model. It opens nothing.
func (z *Zoo) CheckBench(how BenchOptions, opts ...Option) error {
	_, _, err := z.benchSettings(how, opts)
	return err
}

// benchSettings returns the settings and the options of a benchmark with the defaults
// filled in, or what is wrong with them whatever the model.
func (z *Zoo) benchSettings(how BenchOptions, opts []Option) (settings, BenchOptions, error) {
	set, err := z.refine(opts)
	if err != nil {
		return set, how, err
	}
	if err := set.check(z.backends); err != nil {
		return set, how, err
	}
	if how, err = how.fill(); err != nil {
		return set, how, err
	}
	_, err = how.context(set.context, program.MaxContext)
	return set, how, err
}

// fill returns the options with the defaults filled in, or what is wrong with them.
func (o BenchOptions) fill() (BenchOptions, error) {
	for _, n := range [...]struct {
		what  string
		value int
	}{
		{"a prompt", o.Prompt}, {"an answer", o.Generate}, {"a depth", o.Depth}, {"a curve", o.CurveTo},
	} {
		if n.value < 0 || n.value > program.MaxContext {
			return o, fmt.Errorf("%w: %s of %d tokens", fault.ErrUsage, n.what, n.value)
		}
	}
	if o.Rounds < 0 || o.Rounds > maxBenchRounds {
		return o, fmt.Errorf("%w: %d rounds are not 1 to %d", fault.ErrUsage, o.Rounds, maxBenchRounds)
	}
	o.Prompt = cmp.Or(o.Prompt, benchPrompt)
	o.Generate = cmp.Or(o.Generate, benchGenerate)
	o.Depth = cmp.Or(o.Depth, o.Prompt)
	o.Rounds = cmp.Or(o.Rounds, benchRounds)
	return o, nil
}

// context returns the context to run with: the one that was asked for if it is large
// enough, else one that is. limit is what the model was made for.
func (o BenchOptions) context(asked, limit int) (int, error) {
	need := max(o.Prompt, o.Depth+o.Generate)
	switch {
	case need > limit:
		return 0, &backends.ContextError{Need: need, Context: limit}
	case asked == 0:
		if o.CurveTo > 0 {
			need = max(need, o.CurveTo+o.Generate)
		}
		return min(max(need, benchContext), limit), nil
	case need > asked:
		return 0, &backends.ContextError{Need: need, Context: asked}
	}
	return asked, nil
}

// depths lists the contexts of the curve in a context of so many tokens.
func (o BenchOptions) depths(context int) []int {
	if o.CurveTo == 0 {
		return nil
	}
	last := max(1, min(o.CurveTo, context-o.Generate))
	var all []int
	for d := 128; d < last; d *= 2 {
		if d != 256 {
			all = append(all, d)
		}
	}
	return append(all, last)
}

// spread sums up samples, of which there is at least one.
func spread(samples []float64) BenchSpread {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	return BenchSpread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// bandwidth returns what decoding makes of the machine's bandwidth.
func bandwidth(before, after float64, bytes, stepBytes int64, tokensPerSecond float64) *BenchBandwidth {
	b := &BenchBandwidth{Before: before, After: after, Median: (before + after) / 2, Bytes: bytes}
	if b.Median > 0 && stepBytes > 0 {
		b.Share = float64(stepBytes) * tokensPerSecond / b.Median
		b.Ceiling = b.Median / float64(stepBytes)
	}
	return b
}

// profile returns the means of a profile over steps that took so long in all.
func profile(ops []backends.OpProfile, steps int, elapsed time.Duration) *BenchProfile {
	n := float64(steps)
	p := &BenchProfile{Steps: steps, Seconds: elapsed.Seconds() / n, Operations: []BenchOperation{}}
	p.Other = p.Seconds
	for _, op := range ops {
		if op.Calls == 0 {
			continue
		}
		o := BenchOperation{Name: op.Name, Calls: float64(op.Calls) / n, Seconds: op.Time.Seconds() / n}
		if p.Seconds > 0 {
			o.Share = o.Seconds / p.Seconds
		}
		if op.Time > 0 {
			o.BytesPerSecond = float64(op.Bytes) / op.Time.Seconds()
		}
		p.Other -= o.Seconds
		p.Operations = append(p.Operations, o)
	}
	p.Other = max(0, p.Other)
	slices.SortStableFunc(p.Operations, func(a, b BenchOperation) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name))
	})
	return p
}

// machine describes what this process runs on.
func machine() BenchMachine {
	return BenchMachine{
		OS:          runtime.GOOS,
		Arch:        runtime.GOARCH,
		Processor:   processorName(),
		Processors:  runtime.GOMAXPROCS(0),
		Features:    cpuFeatures(),
		MemoryBytes: totalMemory(),
	}
}
