package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// cacheShare is the part of the memory that the caches of one conversation may take by default.
	cacheShare = 8
	// assumedMemory stands in for the size of the memory where it is not known.
	assumedMemory = 8 << 30
	// contextStep is what the default context is a multiple of.
	contextStep = 256
	// minContext is the default context however small the memory is.
	minContext = 2048
)

// Open opens the model that a reference ("name" or "name@constraint") or the
// folder of a pack stands for, with the default store; it is New and [Zoo.Open].
func Open(name string, opts ...Option) (*Model, error) {
	return OpenContext(context.Background(), name, opts...)
}

// OpenContext is [Open] with a context. Opening may download gigabytes; see
// [WithProgress].
func OpenContext(ctx context.Context, name string, opts ...Option) (*Model, error) {
	z, err := New(opts...)
	if err != nil {
		return nil, err
	}
	defer z.Close() // a model that is open needs no plugin
	return z.Open(ctx, name)
}

// Open opens the model that a reference or the folder of a pack stands for.
// Options about the backend and the gate may differ from those of [New].
//
// The newest installed version that satisfies the reference is taken; where there
// is none, it is pulled. The first time that a pack is opened it is read through
// and verified. A pack that has not passed its gate is refused, or, with
// [AllowUngated], opened with a notice. Errors match the sentinels of package zoo.
func (z *Zoo) Open(ctx context.Context, name string, opts ...Option) (*Model, error) {
	set, err := z.refine(opts)
	if err != nil {
		return nil, err
	}
	// Not after gigabytes have been fetched.
	if err := set.check(z.backends); err != nil {
		return nil, err
	}
	z.passedOver(set)
	s, err := z.open(ctx, set, name)
	if err != nil {
		return nil, err
	}
	receipt, state, err := z.admit(set, s)
	if err != nil {
		return nil, errors.Join(err, s.pack.Close())
	}
	m, err := z.load(ctx, set, s)
	if err != nil {
		return nil, errors.Join(err, s.pack.Close())
	}
	m.ownsPack = true
	if state == zoo.ReceiptPassed && m.unlike(*receipt, set) {
		set.events.Notice(fmt.Sprintf("%q passed its gate with %s activations and a %s cache, and runs with %s activations and a %s cache",
			s.name, receipt.Activations, receipt.Cache, m.info.Activations, m.info.Cache))
	}
	return m, nil
}

// admit decides by the receipt whether a pack may be opened.
func (z *Zoo) admit(set settings, s subject) (*zoo.Receipt, zoo.ReceiptState, error) {
	receipt, state, err := z.store.ReadReceipt(s.pack, pluginID(s.about))
	if err != nil {
		return nil, state, err
	}
	notice, err := zoo.Admit(s.name, receipt, state, set.policy)
	if notice != "" {
		set.events.Notice(notice)
	}
	return receipt, state, err
}

// unlike reports whether a model runs by default otherwise than it was gated.
// Settings that the caller has chosen are the caller's business.
func (m *Model) unlike(r zoo.Receipt, set settings) bool {
	return set.cache == "" && r.Cache != m.info.Cache || set.activations == "" && r.Activations != m.info.Activations
}

// refine applies the options of a call and refuses those that only New can obey.
func (z *Zoo) refine(opts []Option) (settings, error) {
	set := z.set
	if len(opts) == 0 {
		return set, nil
	}
	set.events = Events{}
	set = set.with(opts)
	if set.home != z.set.home || set.catalogFile != z.set.catalogFile || !slices.Equal(set.catalogKeys, z.set.catalogKeys) || set.lockFile != z.set.lockFile {
		return set, fmt.Errorf("%w: the store, the catalog and the lock file are chosen when the Zoo is made", fault.ErrUsage)
	}
	if set.events.isZero() {
		set.events = z.set.events
	} else {
		set.events = set.events.serial()
	}
	return set, nil
}

// subject is an open pack with what it takes to run it.
type subject struct {
	// name is what the user calls it.
	name string
	// record is nil for a pack outside of the store.
	record *zoo.Record
	pack   *zoo.Pack
	plugin zoo.Plugin
	about  zoo.Description
}

// open opens the verified pack of a name, pulling it first where necessary.
func (z *Zoo) open(ctx context.Context, set settings, name string) (subject, error) {
	t, err := z.locate(name)
	if err != nil {
		return subject{}, err
	}
	// What is installed may be another pack than the one that is locked.
	if t.record != nil {
		if differs := z.obeys(t.record); differs != nil {
			if t.release, err = z.resolve(name); errors.Is(err, fault.ErrNotFound) {
				err = differs
			}
			if err != nil {
				return subject{}, err
			}
		}
	}
	if t.release != nil {
		done, err := z.pull(ctx, set, t.release)
		switch {
		case err == nil:
			t.record = &done.Record
		case errors.Is(err, fault.ErrGateFailed) && set.policy == zoo.GateOptional:
			if t.record, err = z.store.Record(t.release.Model, t.release.Version); err != nil {
				return subject{}, err
			}
		default:
			return subject{}, err
		}
	}
	return z.openTarget(ctx, set, name, t)
}

// openTarget opens the verified pack of what is installed or lies in a folder.
func (z *Zoo) openTarget(ctx context.Context, set settings, name string, t target) (s subject, err error) {
	s = subject{name: name, record: t.record}
	progress := func(done, total int64) { set.events.Verify("pack", done, total) }
	if t.record != nil {
		s.name = t.record.Name()
		if err := z.obeys(t.record); err != nil {
			return subject{}, err
		}
		z.noteLocked(set, t.record)
		s.pack, err = z.store.Open(ctx, t.record, progress)
	} else {
		s.pack, err = z.store.OpenDir(ctx, t.dir, progress)
	}
	if err != nil {
		return subject{}, err
	}
	if s.plugin, s.about, err = z.findRunner(ctx, t.record, s.pack.Manifest().Plugin); err != nil {
		return subject{}, errors.Join(fmt.Errorf("%s: %w", s.name, err), s.pack.Close())
	}
	return s, nil
}

// prepared is what it takes to run a pack, before anything is compiled.
type prepared struct {
	choice  *choice
	program *program.Program
	opts    backends.Options
	text    *text
}

// prepare asks the plugin for the program and opens the text side of a pack.
func (z *Zoo) prepare(ctx context.Context, set settings, c *choice, s subject) (r prepared, err error) {
	r.choice = c
	if r.program, err = s.plugin.Run(ctx, zoo.RunRequest{Pack: s.pack.Info()}); err != nil {
		return prepared{}, fmt.Errorf("%s: program: %w", s.name, err)
	}
	if r.opts, err = engineOptions(r.program, set); err != nil {
		return prepared{}, err
	}
	if r.text, err = openText(s.pack); err != nil {
		return prepared{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return r, nil
}

// load compiles the program of a pack. The pack stays the caller's.
func (z *Zoo) load(ctx context.Context, set settings, s subject) (*Model, error) {
	c, err := chooseBackend(z.backends, set.backend)
	if err != nil {
		return nil, err
	}
	r, err := z.prepare(ctx, set, c, s)
	if err != nil {
		return nil, err
	}
	m, err := r.load(ctx, set.events, s.pack)
	if err != nil {
		return nil, fmt.Errorf("%s on backend %q: %w", s.name, c.device.Name(), err)
	}
	return &Model{info: s.info(r, m), pack: s.pack, engine: m, text: r.text, events: set.events}, nil
}

// load compiles the program over the weights of a pack, on the first backend that can.
func (r *prepared) load(ctx context.Context, events Events, pack *zoo.Pack) (m *engine.Model, err error) {
	err = r.choice.compile(ctx, events, func(b backends.Backend) (err error) {
		m, err = engine.Load(ctx, r.program, pack, b, r.opts)
		return err
	})
	return m, err
}

// info describes a pack and how it runs.
func (s subject) info(r prepared, m *engine.Model) Info {
	info := Info{
		Name:        s.name,
		Pack:        s.pack.Digest(),
		Plugin:      pluginID(s.about),
		Backend:     r.choice.device.Name(),
		Kernels:     r.choice.device.Describe(),
		Why:         r.choice.why,
		Threads:     m.Stats().Threads,
		Context:     m.Context(),
		Cache:       string(r.opts.Cache),
		Activations: string(r.opts.Activations),
		Tables:      string(m.Stats().Tables),
		PackBytes:   s.pack.SizeBytes(),
	}
	if s.record != nil {
		info.Version = s.record.Version()
	}
	return info
}

// check refuses settings that no model could be run with.
func (s settings) check(all []backends.Backend) error {
	if _, err := chooseBackend(all, s.backend); err != nil {
		return err
	}
	switch s.cache {
	case "", backends.CacheFloat, backends.CacheHalf, backends.CacheInt8:
	default:
		return fault.WithHint(fmt.Errorf("%w: no cache type %q", fault.ErrUsage, s.cache), "choose float, half or int8")
	}
	switch s.activations {
	case "", backends.ActivationsStatic, backends.ActivationsFloat, backends.Activations16, backends.Activations8:
	default:
		return fault.WithHint(fmt.Errorf("%w: no activations %q", fault.ErrUsage, s.activations), "choose static, float, 16 or 8")
	}
	switch s.tables {
	case "", backends.TablesMapped, backends.TablesResident:
	default:
		return fault.WithHint(fmt.Errorf("%w: no way %q to keep tables", fault.ErrUsage, s.tables), "choose mapped or resident")
	}
	switch {
	case s.threads < 0 || s.threads > maxThreads:
		return fmt.Errorf("%w: %d threads are not 0 to %d", fault.ErrUsage, s.threads, maxThreads)
	case s.context < 0:
		return fmt.Errorf("%w: a context of %d tokens", fault.ErrUsage, s.context)
	}
	return nil
}

// engineOptions fills in what checked settings leave open, and refuses what this
// program cannot do.
func engineOptions(p *program.Program, set settings) (backends.Options, error) {
	opts := backends.Options{Threads: set.threads, Context: set.context, Cache: set.cache, Activations: set.activations, Tables: set.tables, MemoryBytes: totalMemory()}
	scaled := !slices.ContainsFunc(p.Caches, func(c program.Cache) bool { return c.KeyScale == 0 || c.ValueScale == 0 })
	switch {
	case opts.Cache == "" && scaled:
		opts.Cache = backends.CacheInt8
	case opts.Cache == "":
		opts.Cache = backends.CacheFloat
	case opts.Cache == backends.CacheInt8 && !scaled:
		return opts, fault.WithHint(fmt.Errorf("%w: this model has no scales for an int8 cache", fault.ErrUsage), "use a float cache")
	}
	switch grids := p.HasGrids(); {
	case opts.Activations == "" && grids:
		opts.Activations = backends.ActivationsStatic
	case opts.Activations == "":
		opts.Activations = backends.Activations16
	case opts.Activations == backends.ActivationsStatic && !grids:
		opts.Activations = backends.ActivationsFloat // what static ones are without scales
	}
	switch {
	case opts.Context > p.Context:
		return opts, fault.WithHint(fmt.Errorf("%w: a context of %d tokens is more than the %d that the model was made for", fault.ErrUsage, opts.Context, p.Context),
			"ask for a smaller context, or for none")
	case opts.Context == 0:
		opts.Context = defaultContext(p, opts.Cache, totalMemory())
	}
	return opts, nil
}

// maxThreads bounds the threads that a user may ask for.
const maxThreads = 1024

// defaultContext returns the most positions, up to those that the model was made
// for, whose keys and values take no more than a share of the memory.
func defaultContext(p *program.Program, cache backends.CacheType, memoryBytes int64) int {
	if memoryBytes <= 0 {
		memoryBytes = assumedMemory
	}
	width := int64(4) // of half, too: the processor keeps it as float32
	if cache == backends.CacheInt8 {
		width = 1
	}
	// Rings of sliding layers do not grow with the context.
	perPosition := int64(0)
	for _, c := range p.Caches {
		if c.Window == 0 {
			perPosition += 2 * width * int64(c.KVHeads) * int64(c.HeadDim)
		}
	}
	if perPosition == 0 {
		return p.Context
	}
	n := memoryBytes / cacheShare / perPosition / contextStep * contextStep
	return int(min(int64(p.Context), max(n, minContext)))
}
