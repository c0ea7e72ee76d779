package backends

import (
	"fmt"
	"runtime"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// Complete returns the options with defaults filled in, or why a program cannot
// be run with them; the error matches fault.ErrUsage.
func (o Options) Complete(p *program.Program) (Options, error) {
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.MaxRows <= 0 {
		o.MaxRows = 64
	}
	if o.MaxLogits <= 0 {
		o.MaxLogits = 8
	}
	o.MaxLogits = min(o.MaxLogits, o.MaxRows)
	if o.Context <= 0 || o.Context > p.Context {
		o.Context = p.Context
	}
	switch o.Activations {
	case "":
		o.Activations = ActivationsStatic
	case ActivationsStatic, ActivationsFloat, Activations16, Activations8:
	default:
		return o, fmt.Errorf("%w: activations %q", fault.ErrUsage, o.Activations)
	}
	switch o.Tables {
	case "":
		o.Tables = TablesOnDevice
	case TablesOnDevice, TablesOnHost:
	default:
		return o, fmt.Errorf("%w: tables %q", fault.ErrUsage, o.Tables)
	}
	switch o.Cache {
	case "":
		o.Cache = CacheFloat
	case CacheFloat, CacheHalf:
	case CacheInt8:
		for _, c := range p.Caches {
			if c.KeyScale == 0 || c.ValueScale == 0 {
				return o, fault.WithHint(fmt.Errorf("%w: the checkpoint has no int8 grid for cache %q", fault.ErrUsage, c.Name), "use `--kv float`")
			}
		}
	default:
		return o, fmt.Errorf("%w: cache type %q", fault.ErrUsage, o.Cache)
	}
	return o, nil
}
