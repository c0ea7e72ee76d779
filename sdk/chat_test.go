package sdk_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// Each turn computes what is new only, and answers as if it had computed everything.
func TestChatReusesItsPrefix(t *testing.T) {
	t.Parallel()
	m := open(t)
	turns := []string{askParis, askRome, "Define group."}
	chat := m.NewChat(sdk.System("Answer in one sentence."))
	var history []sdk.Message
	before := 0
	for i, text := range turns {
		var u, fresh sdk.Usage
		got, err := chat.Send(t.Context(), text, sdk.Measure(&u))
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.Respond(t.Context(), text, sdk.System("Answer in one sentence."), sdk.History(history...), sdk.Measure(&fresh))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("turn %d: %q, without the cache %q", i, got, want)
		}
		if u.PromptTokens != fresh.PromptTokens || fresh.CachedTokens != 0 {
			t.Errorf("turn %d: usage %+v, without the cache %+v", i, u, fresh)
		}
		// The last prompt and the answer to it are in the cache. What is new is as long
		// as a conversation of this message alone, but for the end of the last answer.
		alone, err := m.RenderPrompt(t.Context(), []sdk.Message{{Role: "user", Content: text}})
		if err != nil {
			t.Fatal(err)
		}
		if fed := u.PromptTokens - u.CachedTokens; i > 0 && (u.CachedTokens < before || fed > len(alone)+2) {
			t.Errorf("turn %d: %d of %d tokens are cached, %d were before", i, u.CachedTokens, u.PromptTokens, before)
		}
		before = u.PromptTokens + u.OutputTokens - 1
		history = append(history, sdk.Message{Role: "user", Content: text}, sdk.Message{Role: "assistant", Content: got})
	}
	want := append([]sdk.Message{{Role: "system", Content: "Answer in one sentence."}}, history...)
	if diff := cmp.Diff(want, chat.History()); diff != "" {
		t.Error(diff)
	}
	// A closed chat goes on without its cache.
	if err := chat.Close(); err != nil {
		t.Fatal(err)
	}
	var u sdk.Usage
	if _, err := chat.Send(t.Context(), askParis, sdk.Measure(&u)); err != nil || u.CachedTokens != 0 {
		t.Errorf("after Close: usage %+v, %v", u, err)
	}
}

func TestChatCutShort(t *testing.T) {
	t.Parallel()
	m := open(t)
	chat := m.NewChat()
	for _, err := range chat.Stream(t.Context(), askParis) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chat.Send(t.Context(), askRome); !errors.Is(err, sdk.ErrBusy) {
			t.Errorf("a second message at once: %v", err)
		}
		if err := chat.Close(); !errors.Is(err, sdk.ErrBusy) {
			t.Errorf("Close at once: %v", err)
		}
		break
	}
	if got := chat.History(); len(got) != 2 || got[1].Role != "assistant" || !strings.HasPrefix(paris, got[1].Content) || got[1].Content == "" {
		t.Errorf("history %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := chat.Send(ctx, askRome); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := chat.History(); len(got) != 2 {
		t.Errorf("a message without an answer stays: %+v", got)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	for range chat.Stream(ctx, askRome) {
		cancel()
	}
	if got := chat.History(); len(got) != 4 || got[3].Content == "" {
		t.Errorf("what came before the end of the context is gone: %+v", got)
	}
	if got, err := chat.Send(t.Context(), askRome); got != rome || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestChatRefusals(t *testing.T) {
	t.Parallel()
	m := open(t)
	for name, test := range map[string]struct {
		begin, send []sdk.CallOption
		text        string
	}{
		"empty":         {nil, nil, ""},
		"raw":           {[]sdk.CallOption{sdk.Raw()}, nil, "hi"},
		"system later":  {nil, []sdk.CallOption{sdk.System("x")}, "hi"},
		"history later": {nil, []sdk.CallOption{sdk.History(sdk.Message{Role: "user", Content: "x"})}, "hi"},
		"sampling":      {[]sdk.CallOption{sdk.Temperature(-1)}, nil, "hi"},
		"too long":      {nil, nil, strings.Repeat("word ", 5000)},
	} {
		chat := m.NewChat(test.begin...)
		if got, err := chat.Send(t.Context(), test.text, test.send...); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if got := chat.History(); len(got) != 0 {
			t.Errorf("%s: history %+v", name, got)
		}
	}
}

// A forgotten chat gives its cache back, to a model that is open or closed.
func TestForgottenChat(t *testing.T) {
	t.Parallel()
	m, err := sdk.Open("demo", sdk.WithHome(installed(t)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := m.NewChat().Send(t.Context(), askParis, sdk.MaxTokens(2)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	if got, err := m.Respond(t.Context(), askParis); got != paris || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	runtime.GC()
}
