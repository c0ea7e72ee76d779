package engine

import (
	"context"
	"sync"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/program"
)

// Model is a program on a backend. It is safe for concurrent use.
type Model struct {
	program *program.Program
	opts    backends.Options

	mu        sync.Mutex // guards exec: one step or burst at a time
	exec      backends.Executor
	generator backends.Generator // exec, or nil if it takes single steps only
}

// Load compiles a validated program over the weights of a pack. The weights must stay valid until Close.
func Load(ctx context.Context, p *program.Program, w backends.Weights, b backends.Backend, opts backends.Options) (*Model, error) {
	if opts.MaxRows <= 0 {
		opts.MaxRows = DefaultRows
	}
	if opts.MaxLogits <= 0 {
		opts.MaxLogits = DefaultLogits
	}
	if opts.Context <= 0 || opts.Context > p.Context {
		opts.Context = p.Context
	}
	exec, err := b.Compile(ctx, p, w, opts)
	if err != nil {
		return nil, err
	}
	generator, _ := exec.(backends.Generator)
	return &Model{program: p, opts: opts, exec: exec, generator: generator}, nil
}

const (
	// DefaultRows is the number of prompt tokens that are computed at once unless
	// Options.MaxRows says otherwise: a multiple of the widest tiles of the
	// kernels, and so many that reading the weights takes little of the time.
	DefaultRows = 192
	// DefaultLogits is the number of rows of a step that may want logits unless Options.MaxLogits says otherwise.
	DefaultLogits = 8
)

// Vocab returns the number of logits.
func (m *Model) Vocab() int { return m.program.Vocab }

// Context returns the most tokens that a session may hold.
func (m *Model) Context() int { return m.opts.Context }

// Stats returns what the executor holds.
func (m *Model) Stats() backends.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exec.Stats()
}

// Profile returns what the operations took since the last call, and nil without Options.Profile.
func (m *Model) Profile() []backends.OpProfile {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exec.Profile()
}

// Close frees the executor. Sessions of the model must not be used afterwards.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exec.Close()
}
