package chat

import (
	"context"
	"fmt"
	"time"
)

// Limits bounds what parsing and rendering a template may cost. The zero value
// of a field stands for its default, which is generous: the largest published
// templates are some 60 KiB and render in a few milliseconds.
type Limits struct {
	// SourceBytes bounds the template's source; 1 MiB by default.
	SourceBytes int
	// Time bounds one rendering; 10 s by default.
	Time time.Duration
	// OutputBytes bounds the rendered text; 16 MiB by default.
	OutputBytes int
	// MemoryBytes bounds the sum of all values made during one rendering,
	// those already dropped included; 256 MiB by default.
	MemoryBytes int
	// Depth bounds the nesting of macro calls and of values; 200 by default,
	// and at most 500.
	Depth int
}

func (l Limits) withDefaults() Limits {
	pick := func(v, def int) int {
		if v <= 0 {
			return def
		}
		return v
	}
	l.SourceBytes = pick(l.SourceBytes, 1<<20)
	l.OutputBytes = pick(l.OutputBytes, 16<<20)
	l.MemoryBytes = pick(l.MemoryBytes, 256<<20)
	l.Depth = min(pick(l.Depth, 200), 500)
	if l.Time <= 0 {
		l.Time = 10 * time.Second
	}
	return l
}

// renderer is the state of one rendering; it belongs to one goroutine.
type renderer struct {
	ctx      context.Context
	lib      *library
	limits   Limits
	deadline time.Time
	now      func() time.Time

	work   int // units of work since the clock was last looked at
	memory int // bytes of values made so far
	depth  int
	input  bool // converting what to render
}

func (r *renderer) over(l Limit, max string) error {
	return &LimitError{Limit: l, Max: max, Input: r.input}
}

// clockEvery is how many units of work, of roughly 50 ns each, pass between two
// looks at the clock and the context.
const clockEvery = 4096

// spend accounts for work: 1 for a step, or the elements or bytes that one
// operation goes through.
func (r *renderer) spend(units int) error {
	if r.work += units; r.work < clockEvery {
		return nil
	}
	r.work = 0
	if r.ctx.Err() != nil {
		return fmt.Errorf("render chat template: %w", context.Cause(r.ctx))
	}
	if time.Now().After(r.deadline) {
		return r.over(LimitTime, r.limits.Time.String())
	}
	return nil
}

// grow accounts for a value of a number of bytes, before it is made.
func (r *renderer) grow(bytes int) error {
	if bytes < 0 || bytes > r.limits.MemoryBytes-r.memory {
		return r.over(LimitMemory, fmt.Sprintf("%d bytes", r.limits.MemoryBytes))
	}
	r.memory += bytes
	return r.spend(1 + bytes/32)
}

// growItems is grow for n items of a number of bytes each.
func (r *renderer) growItems(n, bytes int) error {
	if n < 0 || n > r.limits.MemoryBytes/bytes {
		return r.grow(-1)
	}
	return r.grow(n * bytes)
}

// enter opens a level of recursion that leave closes.
func (r *renderer) enter() error {
	if r.depth >= r.limits.Depth {
		return r.over(LimitDepth, fmt.Sprintf("%d levels", r.limits.Depth))
	}
	r.depth++
	return nil
}

func (r *renderer) leave() { r.depth-- }
