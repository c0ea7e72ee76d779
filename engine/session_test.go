package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/quant"
)

// decoder is a small random model with what the interpreter finds for some tokens.
type decoder struct {
	*engine.Model
	tokens         []int32
	logits, hidden [][]float32
}

// newDecoder loads a random decoder that takes 8 rows at once, 3 of which may want logits.
func newDecoder(t *testing.T) *decoder {
	t.Helper()
	shape := backendtest.Shape{
		Seed: 3, Format: quant.Int4, Hidden: 32, FFN: 32, HeadDim: 16, Heads: 2, KVHeads: 1,
		Vocab: 40, Window: 8, Context: 48, Static: true,
	}
	p, w := backendtest.Decoder(shape)
	opts := backends.Options{Threads: 2, MaxRows: 8, MaxLogits: 3, Activations: backends.ActivationsStatic}
	m, err := engine.Load(t.Context(), p, w, cpu.New(""), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	d := &decoder{Model: m, tokens: make([]int32, 40)}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range d.tokens {
		d.tokens[i] = rng.Int32N(40)
	}
	d.logits, d.hidden = backendtest.Interpret(p, w, opts, d.tokens)
	return d
}

// open returns a session, which it closes in the end.
func (d *decoder) open(t *testing.T) *engine.Session {
	t.Helper()
	s, err := d.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// check feeds tokens up to position end and compares the last want of them with the interpreter.
func (d *decoder) check(ctx context.Context, s *engine.Session, end, want int) error {
	if err := s.Feed(ctx, d.tokens[s.Len():end], want); err != nil {
		return err
	}
	if !slices.Equal(s.Tokens(), d.tokens[:end]) {
		return fmt.Errorf("the session holds %v, want %v", s.Tokens(), d.tokens[:end])
	}
	for i := range want {
		at := end - want + i
		if !slices.Equal(s.Logits(i), d.logits[at]) || !slices.Equal(s.Hidden(i), d.hidden[at]) {
			return fmt.Errorf("token %d of %d that want logits, at position %d, has other logits or another hidden state", i, want, at)
		}
	}
	return nil
}

// TestFeed wants the logits of any number of tokens, more than a step gives too.
func TestFeed(t *testing.T) {
	t.Parallel()
	d := newDecoder(t)
	for _, n := range []int{1, 2, 3, 4, 8, 9, 17, 40} {
		for want := range n + 1 {
			s := d.open(t)
			if err := d.check(t.Context(), s, n, want); err != nil {
				t.Fatalf("%d tokens, %d want logits: %v", n, want, err)
			}
			if n < 40 {
				if err := d.check(t.Context(), s, min(n+5, 40), 1); err != nil {
					t.Fatalf("%d tokens, %d want logits, then more: %v", n, want, err)
				}
			}
			s.Close()
		}
	}
}

// TestFeedStops cancels between two steps: what was done stays.
func TestFeedStops(t *testing.T) {
	t.Parallel()
	d := newDecoder(t)
	s := d.open(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	layers := 0
	s.Trace(func(int, []float32) {
		if layers++; layers == 6 { // a step of three layers calls four times: this is in the second
			cancel(why)
		}
	})
	if err := s.Feed(ctx, d.tokens[:30], 1); !errors.Is(err, why) {
		t.Fatalf("Feed: %v, want the cause of the end", err)
	}
	if s.Len() != 8 {
		t.Errorf("%d tokens after a step of 8 and part of another", s.Len())
	}
	s.Trace(nil)
	if err := d.check(t.Context(), s, 40, 4); err != nil {
		t.Error(err)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	d := newDecoder(t)
	for _, c := range []struct {
		name string
		ids  []int32
		rest int
	}{
		{"the same", d.tokens[:20], 1}, // the last token's logits are computed anew
		{"a prefix", d.tokens[:12], 1},
		{"more", d.tokens[:30], 10},
		{"another end", append(slices.Clone(d.tokens[:15]), d.tokens[15]+1, 1), 2},
		{"another start", append([]int32{d.tokens[0] + 1}, d.tokens[1:20]...), 20},
		{"one token", d.tokens[:1], 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.open(t)
			if err := d.check(t.Context(), s, 20, 1); err != nil {
				t.Fatal(err)
			}
			rest, err := s.Resume(c.ids)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(rest, c.ids[len(c.ids)-c.rest:]) || s.Len() != len(c.ids)-c.rest {
				t.Fatalf("%d tokens are kept and %d to be fed, want %d to be fed", s.Len(), len(rest), c.rest)
			}
			if err := s.Feed(t.Context(), rest, 1); err != nil {
				t.Fatal(err)
			}
			if slices.Equal(c.ids, d.tokens[:len(c.ids)]) && !slices.Equal(s.Logits(0), d.logits[len(c.ids)-1]) {
				t.Error("other logits than in one go")
			}
		})
	}
	if _, err := d.open(t).Resume(nil); !errors.Is(err, engine.ErrEmpty) {
		t.Errorf("resuming nothing: %v, want ErrEmpty", err)
	}
}

// TestSessionsTogether feeds sessions of one model from many goroutines.
func TestSessionsTogether(t *testing.T) {
	t.Parallel()
	d := newDecoder(t)
	var wg sync.WaitGroup
	for g := range 6 {
		s := d.open(t)
		wg.Go(func() {
			for end := 1 + g; end <= len(d.tokens); end += 1 + g%3 {
				if err := d.check(t.Context(), s, end, 1); err != nil {
					t.Errorf("session %d: %v", g, err)
					return
				}
			}
			s.Close()
		})
	}
	wg.Wait()
	if held := d.Stats().CacheBytes; held != 0 {
		t.Errorf("%d bytes of caches are held by closed sessions", held)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	d := newDecoder(t)
	s := d.open(t)
	if err := d.check(t.Context(), s, 3, 1); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	_, resume := s.Resume(d.tokens[:2])
	for what, err := range map[string]error{"Feed": s.Feed(t.Context(), d.tokens[3:4], 1), "Rewind": s.Rewind(1), "Resume": resume} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s of a closed session: %v, want ErrClosed", what, err)
		}
	}
	s = d.open(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Feed(t.Context(), d.tokens[:1], 1); err == nil {
		t.Error("a closed model takes tokens")
	}
	if _, err := d.NewSession(); err == nil {
		t.Error("a closed model opens sessions")
	}
	if err := s.Feed(t.Context(), []int32{-1}, 1); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("a negative token: %v, want a usage error", err)
	}
}
