package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// ErrEmpty reports a prompt without tokens.
var ErrEmpty = fmt.Errorf("%w: empty prompt", fault.ErrUsage)

// ErrNoLogits reports that the last Feed, or a Rewind or Generate after it, left no logits to go on from.
var ErrNoLogits = fmt.Errorf("%w: no logits to go on from", fault.ErrUsage)

// ErrClosed reports the use of a closed session.
var ErrClosed = errors.New("session is closed")

// Session is one sequence of tokens and the caches of its positions. A session
// is used by one goroutine at a time; different sessions of a model run
// concurrently.
type Session struct {
	model  *Model
	slot   backends.Slot
	closed bool
	tokens []int32        // fed so far
	batch  backends.Batch // reused, so that a step allocates nothing
	logits [][]float32    // copies of the last Feed's wanted rows
	peaks  [][]float32
	hidden [][]float32
	wanted int // the number of logits that are current
}

// NewSession returns an empty sequence. Close it to give its memory back.
func (m *Model) NewSession() (*Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot, err := m.exec.NewSlot()
	if err != nil {
		return nil, err
	}
	return &Session{model: m, slot: slot, batch: backends.Batch{Rows: make([]backends.Row, 0, m.opts.MaxRows)}}, nil
}

// Close gives the session's caches back. It may be called twice.
func (s *Session) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	s.model.exec.FreeSlot(s.slot)
}

// Trace makes f see, and perhaps change, the hidden state before the first
// layer (layer -1) and after each layer of every following step; nil ends it.
// It is for tests and tools.
func (s *Session) Trace(f func(layer int, state []float32)) { s.batch.Trace = f }

// Len returns the number of tokens fed.
func (s *Session) Len() int { return len(s.tokens) }

// Tokens returns the tokens fed. The slice is the session's own and must not be changed.
func (s *Session) Tokens() []int32 { return s.tokens }

// Feed appends tokens and computes the logits of the last want of them: 1 to
// sample the next token, more for log-probabilities and for verifying drafts.
// When it fails, the session holds the tokens of the steps that were done.
func (s *Session) Feed(ctx context.Context, ids []int32, want int) error {
	switch {
	case s.closed:
		return ErrClosed
	case len(ids) == 0:
		return ErrEmpty
	case want < 0 || want > len(ids):
		return fmt.Errorf("%w: logits of %d tokens wanted, %d fed", fault.ErrUsage, want, len(ids))
	case len(s.tokens)+len(ids) > s.model.opts.Context:
		return &backends.ContextError{Need: len(s.tokens) + len(ids), Context: s.model.opts.Context}
	}
	for _, id := range ids {
		if id < 0 || int(id) >= s.model.program.TokenLimit {
			return fmt.Errorf("%w: token %d is not in a vocabulary of %d", fault.ErrUsage, id, s.model.program.TokenLimit)
		}
	}
	s.wanted = 0
	for len(s.logits) < want {
		s.logits = append(s.logits, make([]float32, s.model.program.Vocab))
		s.peaks = append(s.peaks, make([]float32, (s.model.program.Vocab+backends.PeakRun-1)/backends.PeakRun))
		s.hidden = append(s.hidden, make([]float32, s.model.program.Buffers[s.model.program.Hidden].Cols))
	}
	first := len(ids) - want // the first row that wants logits
	for done := 0; done < len(ids); {
		n := s.chunk(done, len(ids), first)
		if err := s.step(ctx, ids[done:done+n], done, first); err != nil {
			return err
		}
		done += n
	}
	s.wanted = want
	return nil
}

// chunk returns how many of the rows [done, end) the next step takes, given
// that rows from first on want logits.
func (s *Session) chunk(done, end, first int) int {
	n := min(end-done, s.model.opts.MaxRows)
	if wanted := done + n - max(first, done); wanted > s.model.opts.MaxLogits {
		n -= wanted - s.model.opts.MaxLogits
	}
	return n
}

// step feeds one batch, ids of which start at index done of a Feed, and keeps its logits.
func (s *Session) step(ctx context.Context, ids []int32, done, first int) error {
	rows := s.batch.Rows[:0]
	for i, id := range ids {
		rows = append(rows, backends.Row{Token: id, Slot: s.slot, Pos: len(s.tokens) + i, Logits: done+i >= first})
	}
	s.batch.Rows = rows
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	if err := s.model.exec.Step(ctx, &s.batch); err != nil {
		return err
	}
	s.tokens = append(s.tokens, ids...)
	wanted := 0
	for i := range rows {
		if rows[i].Logits {
			at := done + i - first
			copy(s.logits[at], s.model.exec.Logits(wanted))
			copy(s.peaks[at], s.model.exec.Peaks(wanted))
			copy(s.hidden[at], s.model.exec.Hidden(wanted))
			wanted++
		}
	}
	return nil
}

// Logits returns the logits of the i-th token that the last Feed wanted them
// for, [vocabulary]. They are the session's own, valid until the next Feed, Rewind
// or Generate; another i is a programmer error and panics.
func (s *Session) Logits(i int) []float32 { return s.logits[:s.wanted][i] }

// Peaks returns the largest of each run of backends.PeakRun of the same logits, for [Sampler.Next].
func (s *Session) Peaks(i int) []float32 { return s.peaks[:s.wanted][i] }

// Hidden returns the output of the final norm for the same token, [hidden].
func (s *Session) Hidden(i int) []float32 { return s.hidden[:s.wanted][i] }

// Rewind shortens the sequence to its first n tokens. Where sliding caches no
// longer hold what position n needs the error matches backends.ErrTruncate and
// the session stays as it is.
func (s *Session) Rewind(n int) error {
	if s.closed {
		return ErrClosed
	}
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	if err := s.model.exec.Truncate(s.slot, n); err != nil {
		return err
	}
	s.tokens = s.tokens[:n]
	s.wanted = 0
	return nil
}

// Resume prepares the session to hold exactly ids: it keeps the longest common
// prefix that its caches allow, and returns what is left to Feed, which is
// never empty, so that the last token's logits are computed anew.
func (s *Session) Resume(ids []int32) ([]int32, error) {
	if len(ids) == 0 {
		return nil, ErrEmpty
	}
	n := 0
	for n < len(s.tokens) && n < len(ids)-1 && s.tokens[n] == ids[n] {
		n++
	}
	err := s.Rewind(n)
	if errors.Is(err, backends.ErrTruncate) {
		n = 0
		err = s.Rewind(0)
	}
	if err != nil {
		return nil, err
	}
	return ids[n:], nil
}
