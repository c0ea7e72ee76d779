package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// What is counted beside texts and numbers: a text or a question with the list that it is
// in, a run, and a row of logits.
const (
	itemBytes = 112
	runBytes  = 256
	rowBytes  = 24
)

// sendReference sends reference values piece by piece, until ctx ends.
func sendReference(ctx context.Context, ref *zoo.Reference, send func(*pluginpb.PluginFrame) error) error {
	if ref == nil {
		return fmt.Errorf("%w: no reference values", errAnswer)
	}
	p := &parts{send: func(frame *pluginpb.PluginFrame) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return send(frame)
	}}
	for i, run := range ref.Runs {
		if err := p.run(run); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
	}
	for _, q := range ref.Questions {
		p.part.Questions = append(p.part.Questions, &pluginpb.Question{Question: q.Question, Expected: q.Expected, Reference: q.Reference})
		if err := p.added(len(q.Question) + len(q.Expected) + len(q.Reference)); err != nil {
			return err
		}
	}
	for _, text := range ref.Prompts {
		p.part.Prompts = append(p.part.Prompts, text)
		if err := p.added(len(text)); err != nil {
			return err
		}
	}
	return p.flush()
}

// parts gathers reference values into parts of about partBytes.
type parts struct {
	send  func(*pluginpb.PluginFrame) error
	part  pluginpb.ReferencePart
	bytes int
}

// added counts what was added to the part and sends it when it is full.
func (p *parts) added(bytes int) error {
	if p.bytes += bytes + itemBytes; p.bytes < partBytes {
		return nil
	}
	return p.flush()
}

// flush sends the part if there is anything in it.
func (p *parts) flush() error {
	if p.bytes == 0 {
		return nil
	}
	frame := &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Reference{Reference: &pluginpb.ReferencePart{
		Runs: p.part.Runs, Questions: p.part.Questions, Prompts: p.part.Prompts,
	}}}
	p.part.Runs, p.part.Questions, p.part.Prompts, p.bytes = nil, nil, nil, 0
	return p.send(frame)
}

// run adds a run, and sends its logits behind it.
func (p *parts) run(r zoo.ReferenceRun) error {
	out := &pluginpb.ReferenceRun{
		Prompt: r.Prompt, Greedy: r.Greedy, Margin: r.Margin,
		PromptRows: int32(len(r.PromptLogits)), LastLogits: int32(len(r.LastLogits)),
	}
	for i, row := range r.PromptLogits {
		if i == 0 {
			out.Vocabulary = int32(len(row))
		}
		if len(row) != len(r.PromptLogits[0]) {
			return fmt.Errorf("%w: %d logits at position %d, %d at the first", errAnswer, len(row), i, len(r.PromptLogits[0]))
		}
	}
	p.part.Runs = append(p.part.Runs, out)
	if err := p.added(4 * (len(r.Prompt) + len(r.Greedy) + len(r.Margin))); err != nil {
		return err
	}
	if out.PromptRows == 0 && out.LastLogits == 0 {
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	for _, row := range r.PromptLogits {
		if err := p.logits(row); err != nil {
			return err
		}
	}
	return p.logits(r.LastLogits)
}

// logits sends numbers.
func (p *parts) logits(values []float32) error {
	for len(values) > 0 {
		n := min(len(values), logitsFrame)
		frame := &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Logits{Logits: &pluginpb.Logits{Values: values[:n]}}}
		if err := p.send(frame); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// gathering puts reference values together that arrive piece by piece. What they take is
// counted before it is kept.
type gathering struct {
	ref zoo.Reference
	// left is how many bytes may still come.
	left int64
	// row, last: how many rows of the last run's prompt, and whether its last logits, are still to come.
	rows, vocabulary, last int
	// filling is the row that is being filled, free the numbers of the rows behind it.
	filling, free []float32
}

// spend counts bytes.
func (g *gathering) spend(bytes int64) error {
	if g.left -= bytes; g.left < 0 {
		return errors.New("the reference values take more memory than is allowed")
	}
	return nil
}

// part adds a part.
func (g *gathering) part(p *pluginpb.ReferencePart) error {
	if g.pending() {
		return errors.New("logits were announced, and something else came")
	}
	for i, r := range p.GetRuns() {
		if g.pending() {
			return fmt.Errorf("run %d of a part follows one that announces logits", i)
		}
		if err := g.run(r); err != nil {
			return fmt.Errorf("reference run %d: %w", len(g.ref.Runs), err)
		}
	}
	for _, q := range p.GetQuestions() {
		if err := g.spend(itemBytes + int64(len(q.GetQuestion())+len(q.GetExpected())+len(q.GetReference()))); err != nil {
			return err
		}
		g.ref.Questions = append(g.ref.Questions, zoo.Question{Question: q.GetQuestion(), Expected: q.GetExpected(), Reference: q.GetReference()})
	}
	for _, text := range p.GetPrompts() {
		if err := g.spend(itemBytes + int64(len(text))); err != nil {
			return err
		}
		g.ref.Prompts = append(g.ref.Prompts, text)
	}
	return nil
}

// run checks and adds a run without its logits.
func (g *gathering) run(r *pluginpb.ReferenceRun) error {
	out := zoo.ReferenceRun{Prompt: r.GetPrompt(), Greedy: r.GetGreedy(), Margin: r.GetMargin()}
	rows, vocabulary, last := int(r.GetPromptRows()), int(r.GetVocabulary()), int(r.GetLastLogits())
	switch {
	case len(out.Margin) != len(out.Greedy):
		return fmt.Errorf("%d margins for %d tokens", len(out.Margin), len(out.Greedy))
	case rows != 0 && rows != len(out.Prompt):
		return fmt.Errorf("logits at %d positions for a prompt of %d tokens", rows, len(out.Prompt))
	case vocabulary < 0 || vocabulary > quant.MaxDim || last < 0 || last > quant.MaxDim:
		return fmt.Errorf("%d and %d logits at a position", vocabulary, last)
	case (rows == 0) != (vocabulary == 0):
		return fmt.Errorf("%d logits at %d positions", vocabulary, rows)
	}
	for _, ids := range [][]int32{out.Prompt, out.Greedy} {
		for _, id := range ids {
			if id < 0 {
				return fmt.Errorf("token %d", id)
			}
		}
	}
	for i, m := range out.Margin {
		if !size(float64(m)) {
			return fmt.Errorf("margin %d is %g", i, m)
		}
	}
	numbers := int64(rows)*int64(vocabulary) + int64(last)
	if err := g.spend(runBytes + rowBytes*int64(rows) + 4*(numbers+int64(cap(out.Prompt)+cap(out.Greedy)+cap(out.Margin)))); err != nil {
		return err
	}
	g.rows, g.vocabulary, g.last = rows, vocabulary, last
	if rows > 0 {
		out.PromptLogits = make([][]float32, 0, rows)
	}
	// One piece for all rows, since short ones take more than their numbers each.
	g.free = make([]float32, numbers)
	g.ref.Runs = append(g.ref.Runs, out)
	return nil
}

// pending reports whether logits are to come.
func (g *gathering) pending() bool { return g.rows > 0 || g.last > 0 }

// logits adds numbers to the last run.
func (g *gathering) logits(values []float32) error {
	for _, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("a logit is %g", v)
		}
	}
	if len(values) == 0 {
		return errors.New("a frame of no logits")
	}
	for len(values) > 0 {
		if !g.pending() {
			return errors.New("more logits than were announced")
		}
		want := g.last
		if g.rows > 0 {
			want = g.vocabulary
		}
		if g.filling == nil {
			g.filling, g.free = g.free[:0:want], g.free[want:]
		}
		n := min(want-len(g.filling), len(values))
		g.filling = append(g.filling, values[:n]...)
		values = values[n:]
		if len(g.filling) == want {
			g.filled()
		}
	}
	return nil
}

// filled puts a whole row in its place.
func (g *gathering) filled() {
	run := &g.ref.Runs[len(g.ref.Runs)-1]
	if g.rows > 0 {
		run.PromptLogits = append(run.PromptLogits, g.filling)
		g.rows--
	} else {
		run.LastLogits = g.filling
		g.last = 0
	}
	g.filling = nil
}

// whole returns everything once it is there.
func (g *gathering) whole() (*zoo.Reference, error) {
	if g.pending() {
		return nil, errors.New("logits were announced that did not come")
	}
	return &g.ref, nil
}
