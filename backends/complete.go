package backends

import (
	"fmt"
	"runtime"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// Complete returns the options with defaults filled in, or why a program cannot
// be run with them; the error matches fault.ErrUsage. What Tables is by default
// depends on the device: its backend fills that in.
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
	case "", TablesMapped, TablesResident:
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
				return o, fault.WithHint(fmt.Errorf("%w: the checkpoint has no int8 grid for cache %.40q", fault.ErrUsage, c.Name), "use `--kv float`")
			}
		}
	default:
		return o, fmt.Errorf("%w: cache type %q", fault.ErrUsage, o.Cache)
	}
	return o, nil
}

// StepBytes returns the number of weight bytes that one token reads which wants
// logits: whole blocks of matrices, and its own rows of tables.
func StepBytes(p *program.Program) (total int64) {
	for _, op := range p.Ops {
		switch {
		case op.Embed != nil:
			m := p.Weights[op.Embed.Table].Matrix
			total += int64(m.CodeBytes() + m.ScaleBytes())
		case op.GateUp != nil:
			total += p.Weights[op.GateUp.Weight].SizeBytes()
		case op.Linear != nil:
			m := p.Weights[op.Linear.Weight].Matrix
			for _, part := range op.Linear.Parts {
				if m.Codes() {
					total += int64((part.Rows+quant.BlockRows-1)/quant.BlockRows) * int64(m.BlockBytes())
				} else {
					total += int64(part.Rows) * int64(m.RowBytes())
				}
			}
		}
	}
	return total
}
