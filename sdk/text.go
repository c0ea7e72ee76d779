package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/zoo-sdk/zoo/chat"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// text is how a model reads and writes: its tokenizer, its chat template and its
// defaults. It is safe for concurrent use while the pack is open.
type text struct {
	tokens   *tokenizer.Tokenizer
	defaults Defaults
	bos, eos string // as the template spells them; "" where there is none
	begin    []int32
	// template parses on first use: prompts without it need not wait for that.
	template func() (*chat.Template, error)
}

// errNoTemplate reports a model without a chat template.
var errNoTemplate = fmt.Errorf("%w: this model has no chat template", fault.ErrUsage)

// tokenizerConfig is the part of tokenizer_config.json that is obeyed.
type tokenizerConfig struct {
	BOS    addedToken `json:"bos_token"`
	EOS    addedToken `json:"eos_token"`
	AddBOS *bool      `json:"add_bos_token"`
}

// addedToken is a string, an object with one in "content", or null.
type addedToken string

// UnmarshalJSON implements json.Unmarshaler.
func (t *addedToken) UnmarshalJSON(data []byte) error {
	var s string
	if len(data) > 0 && data[0] == '{' {
		var object struct {
			Content string `json:"content"`
		}
		if err := json.Unmarshal(data, &object); err != nil {
			return err
		}
		s = object.Content
	} else if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*t = addedToken(s)
	return nil
}

// parseTokenizerConfig reads tokenizer_config.json. Its error matches fault.ErrIntegrity.
func parseTokenizerConfig(data []byte) (tokenizerConfig, error) {
	var c tokenizerConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return tokenizerConfig{}, fmt.Errorf("%w: %s: %w", fault.ErrIntegrity, zoo.TokenizerConfigFile, err)
	}
	return c, nil
}

// openText opens the tokenizer of a pack and reads what belongs to it. Errors
// match fault.ErrIntegrity where a file is not what it should be.
func openText(pack *zoo.Pack) (*text, error) {
	compiled, err := pack.File(zoo.TokenizerFile)
	if err != nil {
		return nil, err
	}
	t := &text{}
	if t.tokens, err = tokenizer.Open(compiled); err != nil {
		return nil, err
	}
	if t.defaults, err = readDefaults(pack); err != nil {
		return nil, err
	}
	var config tokenizerConfig
	data, err := pack.File(zoo.TokenizerConfigFile)
	if err == nil {
		config, err = parseTokenizerConfig(data)
	}
	if err != nil && !errors.Is(err, fault.ErrNotFound) {
		return nil, err
	}
	t.bos, t.eos = string(config.BOS), string(config.EOS)
	if id, ok := t.tokens.ID(t.bos); ok && t.bos != "" && (config.AddBOS == nil || *config.AddBOS) {
		t.begin = []int32{id}
	}
	if len(t.defaults.StopIDs) == 0 {
		if id, ok := t.tokens.ID(t.eos); ok && t.eos != "" {
			t.defaults.StopIDs = []int32{id}
		}
	}
	t.template = sync.OnceValues(func() (*chat.Template, error) {
		source, err := pack.File(zoo.TemplateFile)
		if errors.Is(err, fault.ErrNotFound) {
			return nil, fault.WithHint(errNoTemplate, "give a raw prompt (--raw, sdk.Raw)")
		}
		if err != nil {
			return nil, err
		}
		return chat.Parse(string(source), chat.Config{BOS: t.bos, EOS: t.eos, Markers: t.markers()})
	})
	return t, nil
}

// prompt returns the tokens of a conversation, up to where the answer starts, or,
// for a raw call, those of the prompt alone.
func (t *text) prompt(ctx context.Context, c call, messages []Message, raw string) ([]int32, error) {
	if c.raw {
		if c.system != "" || len(c.history) > 0 || c.think {
			return nil, fmt.Errorf("%w: a raw prompt has no system prompt, no history and no thinking", fault.ErrUsage)
		}
		return t.tokens.Encode(append([]int32(nil), t.begin...), raw, tokenizer.MarkersAreText), nil
	}
	return t.render(ctx, messages, c.think)
}

// ask returns the tokens of a question: through the chat template, or as they are of a model without one.
func (t *text) ask(ctx context.Context, question string) ([]int32, error) {
	if _, err := t.template(); errors.Is(err, errNoTemplate) {
		return t.prompt(ctx, call{raw: true}, nil, question)
	}
	return t.render(ctx, call{}.messages(question), false)
}

// render returns the tokens that the chat template makes of a conversation, up to
// where the answer starts.
func (t *text) render(ctx context.Context, messages []Message, think bool) ([]int32, error) {
	template, err := t.template()
	if err != nil {
		return nil, err
	}
	list := make([]chat.Message, len(messages))
	for i, m := range messages {
		list[i] = chat.Message{Role: m.Role, Content: m.Content}
	}
	opts := chat.Options{AddGenerationPrompt: true}
	if think {
		opts.Thinking = chat.ThinkingOn
	}
	segments, err := template.Render(ctx, list, opts)
	if err != nil {
		return nil, err
	}
	parts := make([]tokenizer.Part, len(segments))
	for i, s := range segments {
		parts[i] = tokenizer.Part{Text: s.Text, Markers: tokenizer.MarkersAreText}
		if s.Control {
			parts[i].Markers = tokenizer.MarkersAreTokens
		}
	}
	return t.tokens.EncodeParts(nil, parts), nil
}

// markers lists the texts of all control tokens.
func (t *text) markers() []string {
	var list []string
	for id := range int32(t.tokens.VocabSize()) {
		if t.tokens.IsMarker(id) {
			list = append(list, t.tokens.Piece(id))
		}
	}
	return list
}

// encode returns the tokens of plain text.
func (t *text) encode(s string) []int32 { return t.tokens.Encode(nil, s, tokenizer.MarkersAreText) }

// decode returns the text of tokens without the special ones.
func (t *text) decode(ids []int32) string {
	return t.tokens.DecodeWith(ids, tokenizer.DecodeOptions{DropSpecial: true})
}

// stream returns a decoder of one answer.
func (t *text) stream() *tokenizer.Stream {
	return t.tokens.StreamWith(tokenizer.DecodeOptions{DropSpecial: true})
}

// Encode returns the tokens of a text, without a begin-of-text token. Markers such
// as "<eos>" in it are text like any other.
func (m *Model) Encode(s string) ([]int32, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	return m.text.encode(s), nil
}

// Decode returns the text of tokens; special ones are left out.
func (m *Model) Decode(ids []int32) (string, error) {
	if err := m.enter(); err != nil {
		return "", err
	}
	defer m.leave()
	return m.text.decode(ids), nil
}

// RenderPrompt returns the tokens that the chat template makes of a conversation,
// up to where the model's answer starts. Options other than System, History (which
// come before the messages) and Think do not matter.
func (m *Model) RenderPrompt(ctx context.Context, messages []Message, opts ...CallOption) ([]int32, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	c := m.call(opts)
	all := append(c.opening(), messages...)
	return m.text.render(ctx, all, c.think)
}
