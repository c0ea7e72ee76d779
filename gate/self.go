package gate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/engine"
)

// The checks that need no reference.
const (
	checkText    = "the tokenizer gives its text back"
	checkFinite  = "all logits are finite"
	checkSpread  = "logits differ from token to token"
	checkUTF8    = "a continuation is valid text"
	checkChunks  = "the same logits in chunks and token by token"
	checkLast    = "the same logits where only the last token wants them"
	checkRewind  = "the same logits after a rewind"
	checkThreads = "the same logits with another number of threads"
	checkPlain   = "the same logits with the plain kernels"
)

const (
	// selfPrompts is how many of the published prompts are tried, and selfTokens how far they are continued.
	selfPrompts = 3
	selfTokens  = 12
	// plainTokens is how many tokens are fed to the plain kernels, which are slow.
	plainTokens = 8
)

// published are the prompts that others have held these models to, for references without any.
func published() []string {
	return []string{"Why is the sky blue?", "What is the capital of France?", "Explain photosynthesis in one sentence."}
}

// selfCheck collects what the checks find.
type selfCheck struct {
	*gate
	checks []Check
}

// self makes the checks that need no reference.
func (g *gate) self(ctx context.Context) error {
	const stage = "self checks"
	prompts := g.Reference.Prompts
	if len(prompts) == 0 {
		prompts = published()
	}
	prompts = prompts[:min(len(prompts), selfPrompts)]
	c := selfCheck{gate: g}
	for _, name := range []string{checkText, checkFinite, checkSpread, checkUTF8, checkChunks, checkLast, checkRewind, checkThreads, checkPlain} {
		c.checks = append(c.checks, Check{Name: name})
	}
	for i, prompt := range prompts {
		g.Options.Progress(stage, i, len(prompts))
		if got := g.Text.Decode(g.Text.Encode(prompt)); got != prompt {
			c.fail(checkText, "%q comes back as %q", prompt, got)
		}
		ids, err := g.Text.Prompt(ctx, prompt)
		if err != nil {
			return fmt.Errorf("prompt %q: %w", prompt, err)
		}
		if err := c.prompt(ctx, ids, i == 0); err != nil {
			return fmt.Errorf("prompt %q: %w", prompt, err)
		}
	}
	g.Options.Progress(stage, len(prompts), len(prompts))
	g.report.Checks = c.checks
	return nil
}

// fail notes the first problem of a check.
func (c *selfCheck) fail(name, format string, args ...any) {
	i := slices.IndexFunc(c.checks, func(k Check) bool { return k.Name == name })
	if c.checks[i].Problem == "" {
		c.checks[i].Problem = fmt.Sprintf(format, args...)
	}
}

// prompt continues a prompt token by token and repeats that in chunks; thorough
// makes the other comparisons too.
func (c *selfCheck) prompt(ctx context.Context, prompt []int32, thorough bool) error {
	s, err := c.model.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	stepwise, err := c.continuation(ctx, s, prompt)
	if err != nil {
		return err
	}
	ids := slices.Clone(s.Tokens())
	if err := s.Rewind(0); err != nil {
		return err
	}
	chunks, err := c.fingerprints(ctx, s, ids)
	if err != nil {
		return err
	}
	last := len(prompt) - 1
	// The prompt was fed in chunks of which only the last token wanted logits, the rest token by token.
	c.same(checkLast, chunks[last:last+1], stepwise[:1], last)
	c.same(checkChunks, chunks[last+1:], stepwise[1:], last+1)
	if !thorough {
		return nil
	}
	return c.thorough(ctx, s, ids, chunks)
}

// thorough repeats the tokens, which the session holds, in the other ways;
// chunks are the fingerprints of all.
func (c *selfCheck) thorough(ctx context.Context, s *engine.Session, ids []int32, chunks []uint64) error {
	if err := s.Rewind(0); err != nil {
		return err
	}
	for i, id := range ids {
		if err := s.Feed(ctx, []int32{id}, 1); err != nil {
			return err
		}
		c.same(checkChunks, chunks[i:i+1], []uint64{fingerprint(s.Logits(0))}, i)
	}
	if err := c.rewind(ctx, s, ids, chunks); err != nil {
		return err
	}
	n := 1
	if c.report.Threads == 1 {
		n = 2
	}
	if err := c.again(ctx, checkThreads, c.Backend, n, ids, chunks); err != nil {
		return err
	}
	b, ok := c.Backend.(backends.Plain)
	if !ok {
		return nil
	}
	plain := b.Plain()
	if plain == nil {
		return nil
	}
	few := min(len(ids), plainTokens)
	return c.again(ctx, checkPlain, plain, c.report.Threads, ids[:few], chunks[:few])
}

// rewind goes back to the middle of the tokens, on another way, and back again.
func (c *selfCheck) rewind(ctx context.Context, s *engine.Session, ids []int32, chunks []uint64) error {
	half := len(ids) / 2
	other := slices.Clone(ids[half:])
	slices.Reverse(other)
	for _, tail := range [][]int32{other, ids[half:]} {
		err := s.Rewind(half)
		if errors.Is(err, backends.ErrTruncate) {
			return nil // allowed: the caches are short
		}
		if err != nil {
			return err
		}
		if err := s.Feed(ctx, tail, 1); err != nil {
			return err
		}
	}
	last := len(ids) - 1
	c.same(checkRewind, chunks[last:], []uint64{fingerprint(s.Logits(0))}, last)
	return nil
}

// again feeds the tokens to the same program, loaded once more.
func (c *selfCheck) again(ctx context.Context, check string, b backends.Backend, threads int, ids []int32, chunks []uint64) (err error) {
	m, err := c.load(ctx, b, threads)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s, err := m.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	prints, err := c.fingerprints(ctx, s, ids)
	if err != nil {
		return err
	}
	c.same(check, chunks, prints, 0)
	return nil
}

// continuation feeds a prompt, goes on greedily, and returns the fingerprints
// of the logits after the prompt and after each token that follows.
func (c *selfCheck) continuation(ctx context.Context, s *engine.Session, prompt []int32) ([]uint64, error) {
	if err := s.Feed(ctx, prompt, 1); err != nil {
		return nil, err
	}
	var prints []uint64
	var given []int32
	for {
		logits := s.Logits(0)
		prints = append(prints, fingerprint(logits))
		if !finite(logits) {
			c.fail(checkFinite, "those after %d tokens are not", s.Len())
			break
		}
		if slices.Min(logits) == slices.Max(logits) {
			c.fail(checkSpread, "those after %d tokens are all %g", s.Len(), logits[0])
		}
		id, err := likeliest(logits)
		if err != nil || len(given) == selfTokens || slices.Contains(c.Text.StopIDs(), id) {
			break
		}
		given = append(given, id)
		if err := s.Feed(ctx, []int32{id}, 1); err != nil {
			return nil, err
		}
	}
	if text := c.Text.Decode(given); !utf8.ValidString(text) {
		c.fail(checkUTF8, "%q is not", text)
	}
	return prints, nil
}

// fingerprints feeds tokens in chunks and returns the fingerprints of the logits after each.
func (c *selfCheck) fingerprints(ctx context.Context, s *engine.Session, ids []int32) ([]uint64, error) {
	prints := make([]uint64, len(ids))
	err := forward(ctx, s, ids, func(i int, logits []float32) { prints[i] = fingerprint(logits) })
	return prints, err
}

// same compares fingerprints, the first of which are those at a position.
func (c *selfCheck) same(name string, want, got []uint64, position int) {
	for i := range got {
		if got[i] != want[i] {
			c.fail(name, "they differ at position %d", position+i)
			return
		}
	}
}

// fingerprint is equal for equal bits.
func fingerprint(logits []float32) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, a number at a time
	for _, l := range logits {
		h = (h ^ uint64(math.Float32bits(l))) * 1099511628211
	}
	return h
}
