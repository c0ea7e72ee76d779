package sdk

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// warmTokens is the number of tokens decoded before anything is timed.
	warmTokens = 8
	// meterBytes is about how much is read for one figure of bandwidth, and
	// leastMeterRounds and mostMeterRounds bound the rounds in which that is done.
	meterBytes       = 2 << 30
	leastMeterRounds = 3
	mostMeterRounds  = 200
)

// bench is one benchmark under way.
type bench struct {
	zoo     *Zoo
	set     settings
	how     BenchOptions
	subject subject
	// choice is the backend that everything is measured on.
	choice *choice
	report BenchReport
	// ids are the tokens of prompts and contexts, arbitrary ones.
	ids []int32
	// pace is how the tokens decoded last were computed.
	pace engine.Pace
}

// running is an opened pack with a session.
type running struct {
	prepared
	pack    *zoo.Pack
	model   *engine.Model
	session *engine.Session
}

// run measures everything.
func (b *bench) run(ctx context.Context) (_ *BenchReport, err error) {
	if b.choice, err = chooseBackend(b.zoo.backends, b.set.backend); err != nil {
		return nil, err
	}
	b.report = BenchReport{
		Zoo: Version(), Machine: machine(),
		PromptTokens: b.how.Prompt, GenerateTokens: b.how.Generate, Depth: b.how.Depth, Rounds: b.how.Rounds,
	}
	// What was needed up to here, perhaps to verify the pack, is not the model's.
	debug.FreeOSMemory()
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	r, err := b.start(ctx, backends.Options{})
	if err != nil {
		return nil, err
	}
	b.describe(r)
	err = b.measure(ctx, r)
	if err = errors.Join(err, r.close()); err != nil {
		return nil, err
	}
	if b.how.Profile {
		if err := b.profile(ctx); err != nil {
			return nil, err
		}
	}
	return &b.report, nil
}

// start opens the pack and prepares its first step. Of the options only Profile counts.
func (b *bench) start(ctx context.Context, with backends.Options) (r *running, err error) {
	r = &running{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
			r = nil
		}
	}()
	if r.pack, err = zoo.OpenPack(b.subject.pack.Dir()); err != nil {
		return r, err
	}
	s := b.subject
	s.pack = r.pack
	if r.prepared, err = b.zoo.prepare(ctx, b.set, b.choice, s); err != nil {
		return r, err
	}
	if r.opts.Context, err = b.how.context(b.set.context, r.program.Context); err != nil {
		return r, err
	}
	r.opts.Profile = with.Profile
	if r.model, err = r.load(ctx, b.set.events, r.pack); err != nil {
		return r, fmt.Errorf("backend %q: %w", b.choice.device.Name(), err)
	}
	r.session, err = r.model.NewSession()
	return r, err
}

// close frees everything.
func (r *running) close() error {
	var err error
	if r.session != nil {
		r.session.Close()
	}
	if r.model != nil {
		err = r.model.Close()
	}
	if r.pack != nil {
		err = errors.Join(err, r.pack.Close())
	}
	return err
}

// rounds calls f for each round and tells how far it is.
func (b *bench) rounds(stage string, f func() error) error {
	for i := range b.how.Rounds {
		b.set.events.Bench(stage, i, b.how.Rounds)
		if err := f(); err != nil {
			return err
		}
	}
	b.set.events.Bench(stage, b.how.Rounds, b.how.Rounds)
	return nil
}

// load times opening the pack, after once without a clock.
func (b *bench) load(ctx context.Context) error {
	once := func() (float64, error) {
		begin := time.Now()
		r, err := b.start(ctx, backends.Options{})
		if err != nil {
			return 0, err
		}
		elapsed := time.Since(begin).Seconds()
		return elapsed, r.close()
	}
	if _, err := once(); err != nil {
		return err
	}
	var samples []float64
	err := b.rounds("load", func() error {
		seconds, err := once()
		samples = append(samples, seconds)
		return err
	})
	if err != nil {
		return err
	}
	b.report.Load = spread(samples)
	return nil
}

// describe enters what runs into the report, and makes up the tokens.
func (b *bench) describe(r *running) {
	b.report.Info = b.subject.info(r.prepared, r.model)
	b.report.Memory.Mapped = r.pack.SizeBytes()
	b.ids = make([]int32, r.model.Context())
	for i := range b.ids {
		// A prime far from powers of two scatters them over the vocabulary.
		b.ids[i] = int32((int64(i) + 1) * 7919 % int64(r.program.TokenLimit))
	}
}

// measure times prompts and answers on an open model.
func (b *bench) measure(ctx context.Context, r *running) error {
	b.set.events.Bench("warm up", 0, 1)
	seconds, _, err := b.prefill(ctx, r)
	if err != nil {
		return err
	}
	b.report.FirstPrompt = seconds
	if err := b.fill(ctx, r, b.how.Prompt); err != nil {
		return err
	}
	if _, err := b.decode(ctx, r, min(warmTokens, b.how.Generate)); err != nil {
		return err
	}
	b.set.events.Bench("warm up", 1, 1)

	var first, prefill, decode []float64
	err = b.rounds("prefill", func() error {
		seconds, fed, err := b.prefill(ctx, r)
		first = append(first, seconds)
		prefill = append(prefill, float64(b.how.Prompt)/fed)
		return err
	})
	if err != nil {
		return err
	}
	if err := b.fill(ctx, r, b.how.Depth); err != nil {
		return err
	}
	before, bytes, err := b.bandwidth(ctx, r)
	if err != nil {
		return err
	}
	err = b.rounds("decode", func() error {
		if err := b.fill(ctx, r, b.how.Depth); err != nil {
			return err
		}
		seconds, err := b.decode(ctx, r, b.how.Generate)
		decode = append(decode, float64(b.how.Generate)/seconds)
		return err
	})
	if err != nil {
		return err
	}
	after, _, err := b.bandwidth(ctx, r)
	if err != nil {
		return err
	}
	b.report.TokensPerSubmission = float64(b.pace.Steps) / float64(max(1, b.pace.Submissions))
	b.report.SingleStep = b.pace.Single
	b.report.FirstToken, b.report.Prefill, b.report.Decode = spread(first), spread(prefill), spread(decode)
	stats := r.model.Stats()
	b.report.StepBytes = stats.StepBytes
	b.report.Memory.Buffers, b.report.Memory.Caches = stats.BufferBytes, stats.CacheBytes
	b.report.Memory.Tables = tables(r, stats)
	if b.report.BandwidthProblem == "" {
		b.report.Bandwidth = bandwidth(before, after, bytes, stats.StepBytes, b.report.Decode.Median)
	}
	return b.curve(ctx, r)
}

// prefill computes the prompt from nothing and returns the seconds to the first
// token, and those of them without picking it.
func (b *bench) prefill(ctx context.Context, r *running) (first, fed float64, err error) {
	if err := r.session.Rewind(0); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := r.session.Feed(ctx, b.ids[:b.how.Prompt], 1); err != nil {
		return 0, 0, err
	}
	fed = time.Since(begin).Seconds()
	for _, err := range r.session.Generate(ctx, engine.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			return 0, 0, err
		}
	}
	first = time.Since(begin).Seconds()
	b.watch()
	return first, fed, nil
}

// fill brings the context to so many tokens.
func (b *bench) fill(ctx context.Context, r *running, depth int) error {
	rest, err := r.session.Resume(b.ids[:depth])
	if err != nil {
		return err
	}
	return r.session.Feed(ctx, rest, 1)
}

// decode decodes n tokens and returns the seconds that takes. The first token follows
// from what was fed before; time begins with it.
func (b *bench) decode(ctx context.Context, r *running, n int) (seconds float64, err error) {
	var begin time.Time
	for _, err := range r.session.Generate(ctx, engine.GenerateOptions{MaxTokens: n + 1, Pace: &b.pace}) {
		if err != nil {
			return 0, err
		}
		if begin.IsZero() {
			begin = time.Now()
		}
	}
	seconds = time.Since(begin).Seconds()
	b.watch()
	return seconds, nil
}

// watch notes what memory is resident, and the peak of what is private.
func (b *bench) watch() {
	m := &b.report.Memory
	m.ResidentPrivate, m.ResidentFiles = residentMemory()
	m.Private = max(m.Private, m.ResidentPrivate)
}

// tables tells what the tables of a model take, or returns nil if it has none.
func tables(r *running, stats backends.Stats) *BenchTables {
	t := &BenchTables{Locked: stats.LockedBytes}
	held, known := int64(0), true
	for i, gathered := range backends.Gathered(r.program) {
		if !gathered {
			continue
		}
		data, _, _ := r.pack.Tensor(r.program.Weights[i].Name)
		t.Size += int64(len(data))
		if from, ok := mmap.Offset(r.pack.Mapping(), data); ok && known {
			var n int64
			n, known = mmap.Resident(r.pack.Mapping(), from, from+len(data))
			held += n
		}
	}
	switch {
	case t.Size == 0:
		return nil
	case known:
		t.InMemory = &held
	}
	return t
}

// bandwidth returns how fast the weights are read, and how many bytes of them. Where
// that cannot be told it notes why.
func (b *bench) bandwidth(ctx context.Context, r *running) (rate float64, bytes int64, err error) {
	b.set.events.Bench("read bandwidth", 0, 1)
	defer func() { b.set.events.Bench("read bandwidth", 1, 1) }()
	m, ok := b.choice.device.(backends.Meter)
	if !ok {
		b.report.BandwidthProblem = fmt.Sprintf("backend %q does not measure it", b.choice.device.Name())
		return 0, 0, nil
	}
	file, err := r.pack.File(zoo.WeightsFile)
	if err != nil {
		return 0, 0, err
	}
	data := streamed(r.pack.Manifest(), r.program, file)
	rounds := min(max(meterBytes/max(1, len(data)), leastMeterRounds), mostMeterRounds)
	rate, err = m.ReadBandwidth(ctx, data, r.model.Stats().Threads, rounds)
	if errors.Is(err, fault.ErrUsage) {
		// The meter cannot measure with these weights or threads; all else can be.
		b.report.BandwidthProblem = strings.TrimPrefix(err.Error(), fault.ErrUsage.Error()+": ")
		return 0, 0, nil
	}
	return rate, int64(len(data)), err
}

// streamed returns the longest run of the weights file that has no table in it of which
// single rows are looked up: those need not be in memory, and no step reads them through.
func streamed(m *zoo.Manifest, p *program.Program, file []byte) []byte {
	read := map[string]bool{}
	for _, op := range p.Ops {
		switch {
		case op.Linear != nil:
			read[p.Weights[op.Linear.Weight].Name] = true
		case op.GateUp != nil:
			read[p.Weights[op.GateUp.Weight].Name] = true
		}
	}
	gathered := map[string]bool{}
	for _, op := range p.Ops {
		if op.Embed != nil {
			name := p.Weights[op.Embed.Table].Name
			gathered[name] = !read[name]
		}
	}
	var best, from, to int64
	var start int64
	open := false
	for _, t := range m.Tensors {
		if gathered[t.Name] {
			open = false
			continue
		}
		if !open {
			start, open = t.Offset, true
		}
		if end := t.Offset + t.SizeBytes(); end-start > best {
			best, from, to = end-start, start, end
		}
	}
	return file[from:to]
}

// curve times decoding at several contexts.
func (b *bench) curve(ctx context.Context, r *running) error {
	for _, depth := range b.how.depths(r.model.Context()) {
		stage := fmt.Sprintf("decode at %d", depth)
		var samples []float64
		err := b.rounds(stage, func() error {
			if err := b.fill(ctx, r, depth); err != nil {
				return err
			}
			seconds, err := b.decode(ctx, r, b.how.Generate)
			samples = append(samples, float64(b.how.Generate)/seconds)
			return err
		})
		if err != nil {
			return err
		}
		b.report.Curve = append(b.report.Curve, BenchPoint{Depth: depth, Decode: spread(samples)})
	}
	return nil
}

// profile measures the operations on a model of its own, which measuring slows down.
func (b *bench) profile(ctx context.Context) error {
	r, err := b.start(ctx, backends.Options{Profile: true})
	if err != nil {
		return err
	}
	return errors.Join(b.profileSteps(ctx, r), r.close())
}

// profileSteps runs prompts and decodes on a profiled model.
func (b *bench) profileSteps(ctx context.Context, r *running) error {
	if _, _, err := b.prefill(ctx, r); err != nil {
		return err
	}
	r.model.Profile() // what warmed up
	total := 0.0
	err := b.rounds("profile of the prompt", func() error {
		_, fed, err := b.prefill(ctx, r)
		total += fed
		return err
	})
	if err != nil {
		return err
	}
	b.report.PrefillProfile = profile(r.model.Profile(), b.how.Rounds, seconds(total))
	total = 0
	var ops []backends.OpProfile
	err = b.rounds("profile of decoding", func() error {
		if err := b.fill(ctx, r, b.how.Depth); err != nil {
			return err
		}
		r.model.Profile() // what filled the context
		s, err := b.decode(ctx, r, b.how.Generate)
		total += s
		ops = add(ops, r.model.Profile())
		return err
	})
	if err != nil {
		return err
	}
	b.report.DecodeProfile = profile(ops, b.how.Rounds*b.how.Generate, seconds(total))
	return nil
}

// seconds returns a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// add adds profiles by name.
func add(sum, more []backends.OpProfile) []backends.OpProfile {
	at := make(map[string]int, len(sum))
	for i := range sum {
		at[sum[i].Name] = i
	}
	for _, op := range more {
		i, ok := at[op.Name]
		if !ok {
			at[op.Name] = len(sum)
			sum = append(sum, op)
			continue
		}
		sum[i].Calls += op.Calls
		sum[i].Time += op.Time
		sum[i].Bytes += op.Bytes
	}
	return sum
}
