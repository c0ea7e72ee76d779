package sdk

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/zoo"
)

// ComparePrompt tells how the greedy tokens of two packs compare after one prompt.
type ComparePrompt struct {
	Prompt       string `json:"prompt"`
	PromptTokens int    `json:"prompt_tokens"`
	// Matched is how many tokens are the same, up to the first that is not, or else to
	// the end: that of the answer, or the number that was asked for.
	Matched int `json:"matched"`
	// Fork tells of the first token that differs; it is nil if none does.
	Fork *CompareFork `json:"fork"`
	// MaxAbsLogit and RelL2 tell how far the logits are apart, up to and with the fork:
	// the largest difference, and the length of the vector of all over that of A's logits.
	MaxAbsLogit float64 `json:"max_abs_logit"`
	RelL2       float64 `json:"rel_l2"`
	// Text is the answer as far as both give it.
	Text string `json:"text"`
	// Context is how many tokens both can have in a conversation, the prompt and what was
	// said, if that is what ended the comparison before the number that was asked for; else 0.
	Context int `json:"context_full,omitempty"`
	// Problem says why the tokens cannot be compared, or is "".
	Problem string `json:"problem,omitempty"`
}

// CompareFork is a place at which two packs go on with different tokens.
type CompareFork struct {
	A     int32  `json:"a"`
	B     int32  `json:"b"`
	TextA string `json:"text_a"`
	TextB string `json:"text_b"`
	// MarginA and MarginB are how much larger the logit of either's own token is than that of the other's.
	MarginA float64 `json:"margin_a"`
	MarginB float64 `json:"margin_b"`
}

// comparePrompts is the most prompts of a plugin that are tried.
const comparePrompts = 3

// voice is one pack that gives tokens.
type voice struct {
	engine  *engine.Model
	text    *text
	session *engine.Session
}

// tokens compares the greedy tokens after the published prompts, fed to both in step.
// Where the packs cannot be run it says why.
func (c *comparison) tokens(ctx context.Context) (list []ComparePrompt, problem string, err error) {
	list = []ComparePrompt{}
	prompts, problem, err := c.prompts(ctx)
	if err != nil || problem != "" {
		return list, problem, err
	}
	var voices [2]voice
	for i, s := range c.sides {
		v, err := c.voice(ctx, s)
		if err != nil {
			return list, "", err
		}
		defer v.engine.Close()
		voices[i] = v
	}
	for i, prompt := range prompts {
		c.set.events.Gate("greedy tokens", i, len(prompts))
		p, err := c.speak(ctx, &voices, prompt)
		if err != nil {
			return list, "", fmt.Errorf("prompt %q: %w", prompt, err)
		}
		list = append(list, *p)
	}
	c.set.events.Gate("greedy tokens", len(prompts), len(prompts))
	return list, "", nil
}

// prompts returns those that the plugin of the first pack publishes.
func (c *comparison) prompts(ctx context.Context) (prompts []string, problem string, err error) {
	for _, s := range c.sides {
		if s.plugin == nil {
			_, err := c.zoo.registry.Describe(ctx, c.zoo.runner(s.record, s.pack.Manifest().Plugin))
			return nil, fmt.Sprintf("%s cannot be run: %v", s.name, err), context.Cause(ctx)
		}
	}
	first := c.sides[0]
	reference, err := first.plugin.Gate(ctx, zoo.GateRequest{Pack: first.pack.Info()})
	if err != nil {
		return nil, "", fmt.Errorf("%s: prompts: %w", first.name, err)
	}
	if len(reference.Prompts) == 0 {
		return nil, fmt.Sprintf("plugin %q has no prompts", first.about.Name), nil
	}
	return reference.Prompts[:min(len(reference.Prompts), comparePrompts)], "", nil
}

// voice opens the pack of a side to run, as it runs by default or as the options have it.
func (c *comparison) voice(ctx context.Context, s subject) (voice, error) {
	device, err := chooseBackend(c.zoo.backends, c.set.backend)
	if err != nil {
		return voice{}, err
	}
	r, err := c.zoo.prepare(ctx, c.set, device, s)
	if err != nil {
		return voice{}, err
	}
	m, err := r.load(ctx, c.set.events, s.pack)
	if err != nil {
		return voice{}, fmt.Errorf("%s on backend %q: %w", s.name, device.device.Name(), err)
	}
	return voice{engine: m, text: r.text}, nil
}

// speak has both packs answer a prompt, and stops where their tokens part.
func (c *comparison) speak(ctx context.Context, voices *[2]voice, prompt string) (p *ComparePrompt, err error) {
	p = &ComparePrompt{Prompt: prompt}
	var ids [2][]int32
	for i := range voices {
		v := &voices[i]
		if ids[i], err = v.text.ask(ctx, prompt); err != nil {
			return nil, err
		}
		if v.session, err = v.engine.NewSession(); err != nil {
			return nil, err
		}
		defer v.session.Close()
	}
	p.PromptTokens = len(ids[0])
	room := min(voices[0].engine.Context(), voices[1].engine.Context())
	switch {
	case voices[0].engine.Vocab() != voices[1].engine.Vocab():
		p.Problem = fmt.Sprintf("one has %d tokens to choose from, the other %d", voices[0].engine.Vocab(), voices[1].engine.Vocab())
	case !slices.Equal(ids[0], ids[1]):
		p.Problem = "the tokenizers or the chat templates make different tokens of it"
	case p.PromptTokens > room:
		p.Problem = fmt.Sprintf("its %d tokens do not fit in a context of %d", p.PromptTokens, room)
	}
	if p.Problem != "" {
		return p, nil
	}
	gap := logitGap{}
	var said []int32
	next := ids[0]
	for range c.how.Tokens {
		if voices[0].session.Len()+len(next) > room {
			p.Context = room
			break
		}
		for i := range voices {
			if err := voices[i].session.Feed(ctx, next, 1); err != nil {
				return nil, err
			}
		}
		a, b := voices[0].session.Logits(0), voices[1].session.Logits(0)
		gap.add(a, b)
		ta, tb := largest(a), largest(b)
		if ta != tb {
			p.Fork = &CompareFork{
				A: ta, B: tb, TextA: voices[0].text.tokens.Piece(ta), TextB: voices[1].text.tokens.Piece(tb),
				MarginA: clamp(float64(a[ta] - a[tb])), MarginB: clamp(float64(b[tb] - b[ta])),
			}
			break
		}
		said = append(said, ta)
		if slices.Contains(voices[0].text.defaults.StopIDs, ta) {
			break
		}
		next = []int32{ta}
	}
	p.Matched, p.Text = len(said), voices[0].text.decode(said)
	p.MaxAbsLogit, p.RelL2 = gap.maxAbs, gap.relL2()
	return p, nil
}

// largest returns the token of the largest logit, the first of several.
func largest(logits []float32) int32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// logitGap adds up how far logits are apart.
type logitGap struct{ maxAbs, sumA, sum float64 }

// add takes the logits of one step.
func (g *logitGap) add(a, b []float32) {
	for i, x := range a {
		d := math.Abs(float64(x) - float64(b[i]))
		g.maxAbs = max(g.maxAbs, clamp(d))
		g.sumA += float64(x) * float64(x)
		g.sum += float64(d * d)
	}
}

// relL2 returns the length of the differences over that of the logits of A.
func (g *logitGap) relL2() float64 {
	if g.sum == 0 {
		return 0
	}
	return clamp(math.Sqrt(g.sum / g.sumA))
}
