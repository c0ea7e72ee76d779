package gate

import (
	"context"
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/zoo"
)

// oracle holds the pack against the reference runs.
func (g *gate) oracle(ctx context.Context) error {
	const stage = "reference runs"
	runs := g.Reference.Runs
	for i, run := range runs {
		g.Options.Progress(stage, i, len(runs))
		r, err := g.hold(ctx, run)
		if err != nil {
			return fmt.Errorf("reference run %d: %w", i, err)
		}
		g.report.Runs = append(g.report.Runs, r)
		for _, m := range run.Margin {
			if s := g.report.SmallestMargin; s == nil || float64(m) < *s {
				g.report.SmallestMargin = new(float64(m))
			}
		}
	}
	if len(runs) > 0 {
		g.Options.Progress(stage, len(runs), len(runs))
	}
	return nil
}

// hold feeds the prompt of a run and then its own tokens, and compares.
func (g *gate) hold(ctx context.Context, ref zoo.ReferenceRun) (RunReport, error) {
	c := comparison{ref: ref, run: RunReport{PromptTokens: len(ref.Prompt), Of: len(ref.Greedy)}}
	s, err := g.model.NewSession()
	if err != nil {
		return c.run, err
	}
	defer s.Close()
	if len(ref.PromptLogits) == 0 {
		if err := s.Feed(ctx, ref.Prompt, 1); err != nil {
			return c.run, err
		}
		c.token(0, s.Logits(0))
	} else {
		err := forward(ctx, s, ref.Prompt, func(i int, logits []float32) {
			c.logits(logits, ref.PromptLogits[i])
			if i == len(ref.Prompt)-1 {
				c.token(0, logits)
			}
		})
		if err != nil {
			return c.run, err
		}
	}
	err = forward(ctx, s, ref.Greedy, func(i int, logits []float32) {
		if i+1 < len(ref.Greedy) {
			c.token(i+1, logits)
		} else if len(ref.LastLogits) > 0 {
			c.logits(logits, ref.LastLogits)
		}
	})
	for i := range c.run.Forks {
		f := &c.run.Forks[i]
		f.WantText = g.Text.Decode([]int32{f.Want})
		if f.Got != NoToken {
			f.GotText = g.Text.Decode([]int32{f.Got})
		}
	}
	return c.result(), err
}

// forward feeds tokens and shows the logits after each.
func forward(ctx context.Context, s *engine.Session, ids []int32, visit func(i int, logits []float32)) error {
	for first := 0; first < len(ids); first += maxLogits {
		part := ids[first:min(first+maxLogits, len(ids))]
		if err := s.Feed(ctx, part, len(part)); err != nil {
			return err
		}
		for i := range part {
			visit(first+i, s.Logits(i))
		}
	}
	return nil
}

// likeliest returns the token of the largest logit.
func likeliest(logits []float32) (int32, error) {
	var greedy *engine.Sampler
	return greedy.Next(logits, nil, nil)
}

// comparison holds one run against its reference.
type comparison struct {
	ref zoo.ReferenceRun
	run RunReport

	compared       int     // logits
	largest        float64 // largest magnitude of a reference logit
	off            float64 // largest difference
	square, length float64 // sums of squares of differences and of reference logits
}

// token compares the likeliest token after i reference tokens.
func (c *comparison) token(i int, logits []float32) {
	fork := Fork{Step: i, Want: c.ref.Greedy[i], Got: NoToken, Margin: float64(c.ref.Margin[i])}
	if !finite(logits) {
		c.run.NotFinite++
	} else if id, err := likeliest(logits); err == nil {
		fork.Got = id
	}
	if fork.Got == fork.Want {
		c.run.Matched++
		return
	}
	c.run.Forks = append(c.run.Forks, fork)
	if c.run.ForkMargin == nil || fork.Margin > *c.run.ForkMargin {
		c.run.ForkMargin = new(fork.Margin)
	}
}

// logits compares the logits at one position.
func (c *comparison) logits(got, want []float32) {
	if !finite(got) {
		c.run.NotFinite++
		return
	}
	c.compared += len(want)
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		c.off = max(c.off, d)
		c.largest = max(c.largest, math.Abs(float64(w)))
		c.square += float64(d * d)
		c.length += float64(float64(w) * float64(w))
	}
}

// result returns the run with what the logits add up to.
func (c *comparison) result() RunReport {
	if c.compared == 0 {
		return c.run
	}
	c.run.MaxAbsLogitError = new(c.off)
	c.run.LargestLogit = c.largest
	rel := math.Sqrt(c.square)
	if c.length > 0 { // else against nothing but zeros
		rel /= math.Sqrt(c.length)
	}
	c.run.RelL2 = new(rel)
	return c.run
}
