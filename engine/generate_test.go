package engine_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func TestGenerate(t *testing.T) {
	prompt, script := []int32{5, 6}, []int32{1, 2, 3, 4, 9, 7}
	for _, tc := range []struct {
		name    string
		context int
		opts    engine.GenerateOptions
		leave   int // tokens after which the loop is left; 0 never
		want    []int32
		finish  engine.Finish
		fed     []int32 // of what was given
	}{
		{"stop id", 100, engine.GenerateOptions{StopIDs: []int32{8, 9}}, 0, []int32{1, 2, 3, 4}, engine.FinishStop, []int32{1, 2, 3, 4}},
		{"stop id at once", 100, engine.GenerateOptions{StopIDs: []int32{1}}, 0, nil, engine.FinishStop, nil},
		{"maximum", 100, engine.GenerateOptions{MaxTokens: 3, StopIDs: []int32{9}}, 0, []int32{1, 2, 3}, engine.FinishLength, []int32{1, 2}},
		{"maximum of one", 100, engine.GenerateOptions{MaxTokens: 1}, 0, []int32{1}, engine.FinishLength, nil},
		{"stop id as the one after the maximum", 100, engine.GenerateOptions{MaxTokens: 4, StopIDs: []int32{9}}, 0, []int32{1, 2, 3, 4}, engine.FinishLength, []int32{1, 2, 3}},
		{"context full", 5, engine.GenerateOptions{}, 0, []int32{1, 2, 3, 4}, engine.FinishLength, []int32{1, 2, 3}},
		{"context full at once", 2, engine.GenerateOptions{}, 0, []int32{1}, engine.FinishLength, nil},
		{"loop left", 100, engine.GenerateOptions{}, 2, []int32{1, 2}, engine.FinishBreak, []int32{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := (&scripted{vocab: 10, context: tc.context, logits: following(prompt, script)}).session(t)
			if err := s.Feed(t.Context(), prompt, 1); err != nil {
				t.Fatal(err)
			}
			var finish engine.Finish
			tc.opts.Finish = &finish
			var got []int32
			for id, err := range s.Generate(t.Context(), tc.opts) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, id); len(got) == tc.leave {
					break
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
			if finish != tc.finish {
				t.Errorf("finish %q, want %q", finish, tc.finish)
			}
			if diff := cmp.Diff(append([]int32{5, 6}, tc.fed...), s.Tokens()); diff != "" {
				t.Errorf("session (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGenerateGoesOn leaves a loop and takes it up from what was seen.
func TestGenerateGoesOn(t *testing.T) {
	prompt, script := []int32{5}, []int32{1, 2, 3, 4, 9}
	s := (&scripted{vocab: 10, context: 100, logits: following(prompt, script)}).session(t)
	all := prompt
	for range 3 {
		rest, err := s.Resume(all)
		if err != nil {
			t.Fatal(err)
		}
		if len(rest) != 1 {
			t.Errorf("resuming %v leaves %v to feed, want one token", all, rest)
		}
		if err := s.Feed(t.Context(), rest, 1); err != nil {
			t.Fatal(err)
		}
		n := 0
		for id, err := range s.Generate(t.Context(), engine.GenerateOptions{StopIDs: []int32{9}}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, id)
			if n++; n == 2 {
				break
			}
		}
	}
	if diff := cmp.Diff([]int32{5, 1, 2, 3, 4}, all); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

// TestGenerateSeesHistory checks that a penalty works on the prompt and on what was given.
func TestGenerateSeesHistory(t *testing.T) {
	logits := func(_ []int32, dst []float32) { copy(dst, []float32{9, 8, 7, 6}) }
	s := (&scripted{vocab: 4, context: 100, logits: logits}).session(t)
	if err := s.Feed(t.Context(), []int32{0}, 1); err != nil {
		t.Fatal(err)
	}
	sampler := newSampler(t, engine.Sampling{RepeatPenalty: 2})
	var got []int32
	for id, err := range s.Generate(t.Context(), engine.GenerateOptions{Sampler: sampler, MaxTokens: 4}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, id)
	}
	if diff := cmp.Diff([]int32{1, 2, 3, 0}, got); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

func TestGenerateErrors(t *testing.T) {
	broken := errors.New("device lost")
	stopped := errors.New("stopped by the user")
	nan := func(_ []int32, dst []float32) { dst[3] = float32(math.NaN()) }
	for _, tc := range []struct {
		name    string
		backend scripted
		opts    engine.GenerateOptions
		feed    bool
		close   bool
		cancel  int // tokens after which the context is cancelled; 0 never
		given   int
		want    error
	}{
		{name: "nothing fed", want: engine.ErrEmpty},
		{name: "closed", feed: true, close: true, want: engine.ErrClosed},
		{name: "negative maximum", feed: true, opts: engine.GenerateOptions{MaxTokens: -1}, want: fault.ErrUsage},
		{name: "logits not numbers", feed: true, backend: scripted{logits: nan}, want: engine.ErrLogits},
		{name: "logits not numbers, sampled", feed: true, backend: scripted{logits: nan}, opts: engine.GenerateOptions{Sampler: newSampler(t, engine.Sampling{Pick: backends.Pick{Temperature: 1}})}, want: engine.ErrLogits},
		{name: "backend fails", feed: true, given: 2, want: broken, backend: scripted{fail: func(step int) error {
			if step == 3 {
				return broken
			}
			return nil
		}}},
		{name: "cancelled", feed: true, cancel: 3, given: 3, want: stopped},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.backend.vocab, tc.backend.context = 10, 100
			if tc.backend.logits == nil {
				tc.backend.logits = following(nil, nil)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			s := tc.backend.session(t)
			if tc.feed {
				if err := s.Feed(ctx, []int32{1}, 1); err != nil {
					t.Fatal(err)
				}
			}
			if tc.close {
				s.Close()
			}
			var finish engine.Finish
			tc.opts.Finish = &finish
			var errs []error
			given := 0
			for id, err := range s.Generate(ctx, tc.opts) {
				if err != nil {
					errs = append(errs, err)
					if id != 0 {
						t.Errorf("token %d beside the error", id)
					}
					continue
				}
				if given++; given == tc.cancel {
					cancel(stopped)
				}
			}
			if len(errs) != 1 || !errors.Is(errs[0], tc.want) {
				t.Errorf("errors %v, want one that is %v", errs, tc.want)
			}
			if given != tc.given || finish != engine.FinishError {
				t.Errorf("%d tokens and finish %q, want %d and %q", given, finish, tc.given, engine.FinishError)
			}
		})
	}
}

// TestGenerateWithoutLogits goes on from logits that are not there any more.
func TestGenerateWithoutLogits(t *testing.T) {
	backend := scripted{vocab: 10, context: 100, logits: following(nil, nil)}
	s := backend.session(t)
	check := func(name string) {
		t.Helper()
		for _, err := range s.Generate(t.Context(), engine.GenerateOptions{}) {
			if !errors.Is(err, engine.ErrNoLogits) || !errors.Is(err, fault.ErrUsage) {
				t.Errorf("%s: %v, want ErrNoLogits", name, err)
			}
		}
	}
	if err := s.Feed(t.Context(), []int32{1, 2}, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewind(1); err != nil {
		t.Fatal(err)
	}
	check("after a rewind")
	if err := s.Feed(t.Context(), []int32{3}, 0); err != nil {
		t.Fatal(err)
	}
	check("after tokens that wanted none")
	if err := s.Feed(t.Context(), []int32{3}, 1); err != nil {
		t.Fatal(err)
	}
	for range s.Generate(t.Context(), engine.GenerateOptions{MaxTokens: 2}) {
		check("in a generation")
	}
	check("after a generation")
}
