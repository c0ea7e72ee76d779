package sdk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/zoo"
)

// ErrClosed reports the use of a model after its Close.
var ErrClosed = fmt.Errorf("%w: the model is closed", zoo.ErrUsage)

// Info says what a model is and how it runs.
type Info struct {
	// Name is the model's name, or the folder of its pack, and Version its version, or "".
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Pack is the digest of the pack and PackBytes its size.
	Pack      catalog.Digest `json:"pack"`
	PackBytes int64          `json:"pack_bytes"`
	// Plugin made the program that runs.
	Plugin zoo.PluginID `json:"plugin"`
	// Backend is the backend's name, Kernels what it says of itself, and Why the reason for choosing it.
	Backend string `json:"backend"`
	Kernels string `json:"kernels"`
	Why     string `json:"why"`
	// Threads is the number of threads that share the work.
	Threads int `json:"threads"`
	// Context is the most tokens of a conversation.
	Context int `json:"context"`
	// Cache and Activations are as [WithCache] and [WithActivations] name them.
	Cache       string `json:"cache"`
	Activations string `json:"activations"`
	// Tables is how tables are kept that rows are only looked up in, as [WithTables] names it.
	Tables string `json:"tables"`
}

// Model is an open model. It serves many goroutines: their answers are computed
// in turns of one or a few tokens, each with a cache of its own, and are the same as if
// each had been alone.
type Model struct {
	info     Info
	pack     *zoo.Pack
	ownsPack bool
	engine   *engine.Model
	text     *text
	events   Events

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // guarded by mu while closed is false
	closing sync.Once
	err     error
}

// Info returns what the model is and how it runs.
func (m *Model) Info() Info { return m.info }

// Defaults returns the settings of generation that the model comes with.
func (m *Model) Defaults() Defaults { return m.text.defaults }

// Close waits for the answers under way and frees everything. Further calls wait
// as well and return the same. It must not be called from within a loop over
// [Model.Stream] or [Model.Generate], which would wait for itself.
func (m *Model) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.closing.Do(func() {
		m.running.Wait()
		m.err = m.engine.Close()
		if m.ownsPack {
			m.err = errors.Join(m.err, m.pack.Close())
		}
	})
	return m.err
}

// enter keeps the model open until leave is called.
func (m *Model) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.running.Add(1)
	return nil
}

// leave ends what enter began.
func (m *Model) leave() { m.running.Done() }

// Respond returns the answer to a prompt.
func (m *Model) Respond(ctx context.Context, prompt string, opts ...CallOption) (string, error) {
	return collect(m.Stream(ctx, prompt, opts...))
}

// collect joins the pieces of an answer. With an error it returns what came before it.
func collect(pieces iter.Seq2[string, error]) (string, error) {
	var b strings.Builder
	for piece, err := range pieces {
		if err != nil {
			return b.String(), err
		}
		b.WriteString(piece)
	}
	return b.String(), nil
}

// Stream gives the answer to a prompt piece by piece as it is computed, whole
// characters only. Leaving the loop stops the computation. An error comes once,
// last, with an empty piece. The sequence computes the answer anew each time it
// is ranged over.
func (m *Model) Stream(ctx context.Context, prompt string, opts ...CallOption) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := m.answer(ctx, prompt, m.call(opts), func(piece string) bool { return yield(piece, nil) })
		if err != nil {
			yield("", err)
		}
	}
}

// call returns the model's defaults with options applied.
func (m *Model) call(opts []CallOption) call {
	return call{sampling: m.text.defaults.sampling()}.with(opts)
}

// answer computes one answer in a session of its own.
func (m *Model) answer(ctx context.Context, prompt string, c call, give func(string) bool) error {
	if err := c.checkPrompt(prompt); err != nil {
		return err
	}
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	ids, err := m.text.prompt(ctx, c, c.messages(prompt), prompt)
	if err != nil {
		return err
	}
	session, err := m.engine.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return m.write(ctx, session, ids, c, give)
}

// write turns the tokens of an answer into text. Where give returns false it
// stops without an error.
func (m *Model) write(ctx context.Context, s *engine.Session, ids []int32, c call, give func(string) bool) error {
	usage := c.usage
	if usage == nil {
		usage = new(Usage)
	}
	c.usage = usage
	out, err := engine.NewTextStream(m.text.stream(), c.stops)
	if err != nil {
		*usage = Usage{Finish: FinishError}
		return err
	}
	left := false
	err = m.generate(ctx, s, ids, c, func(id int32) bool {
		if piece := out.Push(id); piece != "" {
			left = !give(piece)
		}
		return !left && !out.Stopped()
	})
	if err == nil && !left {
		if out.Stopped() {
			usage.Finish = FinishText
		} else if piece := out.Flush(); piece != "" && !give(piece) {
			usage.Finish = FinishBreak
		} else if out.Stopped() {
			usage.Finish = FinishText
		}
	}
	return err
}

// Generate gives the tokens that follow a sequence of tokens, one by one, without
// the one that ends the answer. Options about texts (System, History, Stop, Raw,
// Think) do not apply and are refused. As with [Model.Stream], leaving the loop
// stops the computation, and an error comes once, last, with token 0.
func (m *Model) Generate(ctx context.Context, ids []int32, opts ...CallOption) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		err := m.continueTokens(ctx, ids, m.call(opts), func(id int32) bool { return yield(id, nil) })
		if err != nil {
			yield(0, err)
		}
	}
}

// continueTokens is the body of Generate.
func (m *Model) continueTokens(ctx context.Context, ids []int32, c call, give func(int32) bool) error {
	if c.system != "" || len(c.history) > 0 || len(c.stops) > 0 || c.raw || c.think {
		return fmt.Errorf("%w: an option about texts for a generation of tokens", zoo.ErrUsage)
	}
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	session, err := m.engine.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return m.generate(ctx, session, ids, c, give)
}

// generate brings a session to ids and gives the tokens that follow.
func (m *Model) generate(ctx context.Context, s *engine.Session, ids []int32, c call, give func(int32) bool) (err error) {
	usage := Usage{PromptTokens: len(ids), Finish: FinishError}
	begin := time.Now()
	if c.usage != nil {
		defer func() { *c.usage = usage }()
	}
	sampler, err := c.sampler()
	if err != nil {
		return err
	}
	rest, err := s.Resume(ids)
	if err != nil {
		return err
	}
	usage.CachedTokens = len(ids) - len(rest)
	if err := s.Feed(ctx, rest, 1); err != nil {
		return err
	}
	first := time.Now()
	usage.PromptTime = first.Sub(begin)
	defer func() { usage.OutputTime = time.Since(first) }()
	var finish engine.Finish
	var pace engine.Pace
	defer func() { usage.Submissions, usage.Steps, usage.SingleStep = pace.Submissions, pace.Steps, pace.Single }()
	opts := engine.GenerateOptions{Sampler: sampler, MaxTokens: c.maxTokens, StopIDs: m.text.defaults.StopIDs, Finish: &finish, Pace: &pace}
	for id, err := range s.Generate(ctx, opts) {
		if err != nil {
			return err
		}
		usage.OutputTokens++
		if !give(id) {
			break
		}
	}
	usage.Finish = Finish(finish)
	return nil
}
