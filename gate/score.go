package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/zoo"
)

// score asks the questions.
func (g *gate) score(ctx context.Context) error {
	const stage = "questions"
	all := g.Reference.Questions
	g.report.Questions = len(all)
	if len(all) == 0 {
		return nil
	}
	s, err := g.model.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	step := max(1, g.Options.QuestionStep)
	total := (len(all) + step - 1) / step
	score := &zoo.Score{}
	for i := 0; i < len(all); i += step {
		g.Options.Progress(stage, score.Of, total)
		q := all[i]
		got, err := g.ask(ctx, s, q)
		if err != nil {
			return fmt.Errorf("question %q: %w", q.Question, err)
		}
		score.Of++
		if got == q.Expected {
			score.Right++
		} else {
			g.report.Misses = append(g.report.Misses, Miss{Question: q, Got: got})
		}
		if q.Reference == q.Expected {
			g.report.ReferenceRight++
		}
	}
	g.Options.Progress(stage, total, total)
	g.report.Score = score
	return nil
}

// ask returns the greedy answer to a question, at least up to where it departs
// from the expected one.
//
// The expected answer is fed as a draft: as long as the likeliest token is the
// draft's next, that is what greedy decoding would have fed, but many tokens
// share one step. From the first other token on the answer is decoded.
func (g *gate) ask(ctx context.Context, s *engine.Session, q zoo.Question) (string, error) {
	prompt, err := g.Text.Prompt(ctx, q.Question)
	if err != nil {
		return "", err
	}
	a := answer{gate: g, session: s, prompt: prompt, tokens: g.Text.Encode(q.Expected), expected: q.Expected}
	if err := a.follow(ctx); err != nil {
		return "", err
	}
	if !a.ended {
		if err := a.decode(ctx); err != nil {
			return "", err
		}
	}
	return g.Text.Decode(a.tokens), nil
}

// answer is one that is being given.
type answer struct {
	gate     *gate
	session  *engine.Session
	prompt   []int32
	tokens   []int32 // a draft at first
	expected string
	ended    bool // tokens are the whole answer
}

// next returns the likeliest token; the answer ends where it is a stop id or there is none.
func (a *answer) next(logits []float32) (id int32, stop bool) {
	id, err := likeliest(logits)
	return id, err != nil || slices.Contains(a.gate.Text.StopIDs(), id)
}

// follow feeds the prompt and the draft and cuts tokens to those that the model
// agrees with and its own next one.
func (a *answer) follow(ctx context.Context) error {
	feed, err := a.session.Resume(a.prompt)
	if err != nil {
		return err
	}
	draft := a.tokens
	want := 1 + min(maxLogits-1, len(draft))
	feed = slices.Concat(feed, draft[:want-1])
	for fed, at := want-1, 0; ; {
		if err := a.session.Feed(ctx, feed, want); err != nil {
			return err
		}
		for i := range want {
			id, stop := a.next(a.session.Logits(i))
			if stop {
				a.tokens, a.ended = draft[:at], true
				return nil
			}
			if at == len(draft) || id != draft[at] {
				a.tokens = append(draft[:at:at], id)
				return nil
			}
			at++
		}
		feed = draft[fed:min(fed+maxLogits, len(draft))]
		want = len(feed)
		fed += want
	}
}

// decode goes on from tokens, the last of which has not been fed, until the
// answer ends or cannot become the expected one any more.
func (a *answer) decode(ctx context.Context) error {
	// A token that adds no byte is rare; a run of them must end.
	for most := len(a.tokens) + len(a.expected) + 16; len(a.tokens) < most; {
		if text := strings.TrimRight(a.gate.Text.Decode(a.tokens), "\ufffd"); !strings.HasPrefix(a.expected, text) {
			return nil
		}
		rest, err := a.session.Resume(slices.Concat(a.prompt, a.tokens))
		if err != nil {
			return err
		}
		if err := a.session.Feed(ctx, rest, 1); err != nil {
			return err
		}
		id, stop := a.next(a.session.Logits(0))
		if stop {
			a.ended = true
			return nil
		}
		a.tokens = append(a.tokens, id)
	}
	return nil
}
