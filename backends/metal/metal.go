package metal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Backend runs programs on a GPU. Programs that are compiled at the same time
// each have a queue of their own on the one device.
type Backend struct {
	driver Driver
	look   func() (DeviceInfo, error)
	held   atomic.Int64 // bytes, of all executors
}

// New returns the backend over a driver, of which [SystemDriver] is the system's.
func New(d Driver) *Backend {
	return &Backend{driver: d, look: sync.OnceValues(func() (DeviceInfo, error) {
		device, err := d.Open()
		if err != nil {
			return DeviceInfo{}, err
		}
		return device.Info(), device.Close()
	})}
}

// Name implements backends.Backend.
func (*Backend) Name() string { return "metal" }

// Describe implements backends.Backend.
func (b *Backend) Describe() string {
	info, err := b.look()
	if err != nil {
		return "no device"
	}
	return fmt.Sprintf("%s, %d MB for models", info.Name, info.MemoryBytes>>20)
}

// Available implements backends.Backend.
func (b *Backend) Available() error {
	_, err := b.look()
	return err
}

// Compile implements backends.Backend. Besides what that promises, errors match
// ErrNoDevice, ErrMemory, ErrKernel and ErrDevice, and errors.ErrUnsupported for
// a program that the kernels are not made for.
func (b *Backend) Compile(ctx context.Context, p *program.Program, w backends.Weights, opts backends.Options) (_ backends.Executor, err error) {
	release, err := backends.Accept(ctx, p, w)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	opts.Tables = cmp.Or(opts.Tables, backends.TablesResident)
	if opts, err = opts.Complete(p); err != nil {
		return nil, err
	}
	if err := supported(p); err != nil {
		return nil, fault.WithHint(fmt.Errorf("%w: %w", err, errors.ErrUnsupported), "run on the processor with `--backend cpu`")
	}
	device, err := b.driver.Open()
	if err != nil {
		return nil, err
	}
	e := &executor{
		p: p, opts: opts, device: device, memory: &allocator{device, device.Info(), &b.held}, host: w, release: release,
		slots: backends.NewSlots(p, max(opts.MaxRows, maxBurst)),
	}
	if err := e.build(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// supported returns nil, or what in a program the kernels are not made for.
func supported(p *program.Program) error {
	for _, c := range p.Caches {
		if c.HeadDim > maxHeadDim {
			return fmt.Errorf("heads of %d numbers, the metal backend takes up to %d", c.HeadDim, maxHeadDim)
		}
	}
	for _, w := range p.Weights {
		if w.Minimum || w.Layout == quant.Blocks && w.Group > 0 && w.Format != quant.Int4x32 {
			return fmt.Errorf("tensor %.40q is %s in %s, which the metal backend has no kernels for", w.Name, w.Format, w.Layout)
		}
	}
	return nil
}

// hint tells what to do where memory does not suffice.
func hint(err error) error {
	if errors.Is(err, ErrMemory) {
		return fault.WithHint(err, "close other models and programs, ask for a smaller context with `--context`, or run on the processor with `--backend cpu`")
	}
	return err
}
