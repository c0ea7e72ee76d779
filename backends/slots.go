package backends

import (
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// Slots keeps an executor's books of its slots: which are in use, how long they
// are, and what their rings still hold. The zero value has none.
type Slots struct {
	slots []slotState
	rings []ring
}

// slotState is the state of one slot.
type slotState struct {
	used   bool
	length int
	// high is one more than the highest position written since the slot was empty; rings have lost what lies a ring before it.
	high int
}

// ring says how much of its latest positions a cache holds: of none it loses, all.
type ring struct{ window, positions int }

// RingPages returns the number of pages of BlockPositions that a ring needs
// for a window when as many rows are written at once; 0 for no window.
func RingPages(window, rows int) int {
	if window == 0 {
		return 0
	}
	return (window + rows + BlockPositions - 1) / BlockPositions
}

// NewSlots returns books of slots with the caches of a program, whose rings
// stand for batches of at most so many rows.
func NewSlots(p *program.Program, rows int) Slots {
	var s Slots
	for _, c := range p.Caches {
		s.rings = append(s.rings, ring{c.Window, RingPages(c.Window, rows) * BlockPositions})
	}
	return s
}

// New takes a slot into use, an empty one of the lowest number.
func (s *Slots) New() Slot {
	i := slices.IndexFunc(s.slots, func(s slotState) bool { return !s.used })
	if i < 0 {
		i = len(s.slots)
		s.slots = append(s.slots, slotState{})
	}
	s.slots[i] = slotState{used: true}
	return Slot(i)
}

// Free gives a slot back, and reports whether it was in use.
func (s *Slots) Free(slot Slot) bool {
	if !s.Used(slot) {
		return false
	}
	s.slots[slot] = slotState{}
	return true
}

// Used reports whether a slot is in use.
func (s *Slots) Used(slot Slot) bool {
	return slot >= 0 && int(slot) < len(s.slots) && s.slots[slot].used
}

// Len returns the number of positions of a slot, 0 if it is not in use.
func (s *Slots) Len(slot Slot) int {
	if !s.Used(slot) {
		return 0
	}
	return s.slots[slot].length
}

// Truncate is [Executor.Truncate].
func (s *Slots) Truncate(slot Slot, n int) error {
	if !s.Used(slot) {
		return fmt.Errorf("%w: no slot %d", fault.ErrUsage, slot)
	}
	state := &s.slots[slot]
	if n < 0 || n > state.length {
		return fmt.Errorf("%w: cannot shorten %d positions to %d", fault.ErrUsage, state.length, n)
	}
	if n == 0 {
		state.length, state.high = 0, 0
		return nil
	}
	for _, r := range s.rings {
		if r.positions > 0 && state.high-r.positions > max(0, n-r.window+1) {
			return ErrTruncate
		}
	}
	state.length = n
	return nil
}

// Check reports whether rows may be fed, as [Batch] and the options want it,
// and how many of them want logits. It changes nothing.
func (s *Slots) Check(rows []Row, p *program.Program, o Options) (wanted int, err error) {
	if len(rows) == 0 || len(rows) > o.MaxRows {
		return 0, fmt.Errorf("%w: batch of %d rows, 1 to %d are possible", fault.ErrUsage, len(rows), o.MaxRows)
	}
	for i, r := range rows {
		if !s.Used(r.Slot) {
			return 0, fmt.Errorf("%w: no slot %d", fault.ErrUsage, r.Slot)
		}
		next := s.slots[r.Slot].length
		for j := i - 1; j >= 0; j-- {
			if rows[j].Slot == r.Slot {
				next = rows[j].Pos + 1
				break
			}
		}
		switch {
		case r.Pos != next:
			return 0, fmt.Errorf("%w: row %d is at position %d of a slot that goes on at %d", fault.ErrUsage, i, r.Pos, next)
		case r.Pos >= o.Context:
			return 0, &ContextError{Need: r.Pos + 1, Context: o.Context}
		case r.Token < 0 || int(r.Token) >= p.TokenLimit:
			return 0, fmt.Errorf("%w: token %d is not in a vocabulary of %d", fault.ErrUsage, r.Token, p.TokenLimit)
		}
		if r.Logits {
			wanted++
		}
	}
	if wanted > o.MaxLogits {
		return 0, fmt.Errorf("%w: %d rows want logits, %d may", fault.ErrUsage, wanted, o.MaxLogits)
	}
	return wanted, nil
}

// Write notes that a position of a slot is about to be written, which its rings do not undo.
func (s *Slots) Write(slot Slot, pos int) {
	s.slots[slot].high = max(s.slots[slot].high, pos+1)
}

// Extend makes a slot end behind a position that has been written.
func (s *Slots) Extend(slot Slot, pos int) { s.slots[slot].length = pos + 1 }
