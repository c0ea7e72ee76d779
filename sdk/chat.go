package sdk

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/zoo-sdk/zoo/engine"
	"github.com/zoo-sdk/zoo/zoo"
)

// ErrBusy reports a message to a chat that has not finished its last answer.
var ErrBusy = fmt.Errorf("%w: the chat is still answering", zoo.ErrUsage)

// Chat is a conversation. It keeps what was said, and the cache of it, so that
// each turn computes only what is new. Its answers are asked for one at a time.
type Chat struct {
	model *Model
	base  call
	busy  atomic.Bool

	messages []Message
	session  *engine.Session
	cleanup  runtime.Cleanup
}

// NewChat begins a conversation. The options hold for all its answers.
// [Chat.Close] gives its cache back; so does collecting it as garbage.
func (m *Model) NewChat(opts ...CallOption) *Chat {
	c := &Chat{model: m, base: m.call(opts)}
	c.messages = c.base.opening()
	c.base.system, c.base.history = "", nil
	return c
}

// Send says something and returns the answer. Further options hold for this answer only.
func (c *Chat) Send(ctx context.Context, text string, opts ...CallOption) (string, error) {
	return collect(c.Stream(ctx, text, opts...))
}

// Stream says something and gives the answer piece by piece; see [Model.Stream].
// An answer that is cut short, by leaving the loop or by an error, stays in the
// conversation as far as it came; where nothing came, the message is taken back.
func (c *Chat) Stream(ctx context.Context, text string, opts ...CallOption) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := c.turn(ctx, text, c.base.with(opts), func(piece string) bool { return yield(piece, nil) })
		if err != nil {
			yield("", err)
		}
	}
}

// turn computes one answer.
func (c *Chat) turn(ctx context.Context, text string, call call, give func(string) bool) error {
	switch {
	case call.system != "" || len(call.history) > 0:
		return fmt.Errorf("%w: the system prompt and the history are set when a chat begins", zoo.ErrUsage)
	case call.raw:
		return fmt.Errorf("%w: a chat needs the chat template, raw prompts do without", zoo.ErrUsage)
	}
	if err := call.checkPrompt(text); err != nil {
		return err
	}
	if !c.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer c.busy.Store(false)
	m := c.model
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	messages := append(slices.Clip(c.messages), Message{Role: "user", Content: text})
	ids, err := m.text.prompt(ctx, call, messages, text)
	if err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	var answer strings.Builder
	err = m.write(ctx, c.session, ids, call, func(piece string) bool {
		answer.WriteString(piece)
		return give(piece)
	})
	if err == nil || answer.Len() > 0 {
		c.messages = append(messages, Message{Role: "assistant", Content: answer.String()})
	}
	return err
}

// begin makes the session at the first turn.
func (c *Chat) begin() error {
	if c.session != nil {
		return nil
	}
	s, err := c.model.engine.NewSession()
	if err != nil {
		return err
	}
	c.session = s
	// A step of another session may be under way, for which cleanups must not wait.
	c.cleanup = runtime.AddCleanup(c, func(o orphan) { go o.free() }, orphan{c.model, s})
	return nil
}

// orphan is a session whose chat is gone.
type orphan struct {
	model   *Model
	session *engine.Session
}

// free gives the session back; a closed model has done that.
func (o orphan) free() {
	if o.model.enter() == nil {
		defer o.model.leave()
		o.session.Close()
	}
}

// History returns what was said so far, the system prompt included, as a new slice.
// It must not be called while an answer is under way.
func (c *Chat) History() []Message { return slices.Clone(c.messages) }

// Close gives the chat's cache back. The chat can go on; its next answer then
// computes everything anew. While an answer is under way it returns [ErrBusy].
func (c *Chat) Close() error {
	if !c.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer c.busy.Store(false)
	if c.session != nil {
		c.cleanup.Stop()
		orphan{c.model, c.session}.free()
		c.session = nil
	}
	return nil
}
