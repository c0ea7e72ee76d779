package chat_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/chat"
)

// published returns a file that may not be shipped with the project; the test is
// skipped where it is absent.
func published(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("ZOO_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "../shared/data")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not here; set ZOO_TEST_DATA to the folder that holds it", name)
	}
	return path
}

var gemmaMarkers = []string{
	"<bos>", "<eos>", "<pad>", "<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>", "<|tool>", "<tool|>",
	"<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", `<|"|>`, "<|image|>", "<|audio|>", "<|video|>",
}

func gemma(t testing.TB) *chat.Template {
	t.Helper()
	source, err := os.ReadFile(published(t, "gemma4-template/chat_template.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.Parse(string(source), chat.Config{BOS: "<bos>", EOS: "<eos>", Markers: gemmaMarkers})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestGemma4Goldens(t *testing.T) {
	tmpl := gemma(t)
	cases := readGoldens(t, published(t, "gemma4-template/template_golden.jsonl"))
	if len(cases) != 60 {
		t.Fatalf("%d cases, want 60", len(cases))
	}
	for i, c := range cases {
		segments, err := tmpl.Render(t.Context(), c.Messages, c.options(t))
		if c.Text == nil {
			var te *chat.TemplateError
			if !errors.As(err, &te) || te.Message != c.Error {
				t.Errorf("case %d: error %v, want %q", i, err, c.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		if diff := cmp.Diff(*c.Text, joined(segments)); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", i, diff)
		}
	}
}

func BenchmarkGemma4(b *testing.B) {
	tmpl := gemma(b)
	var messages []chat.Message
	for range 10 {
		messages = append(messages, chat.Message{Role: "user", Content: "Why is the sky blue, and what has the sea to do with it?"},
			chat.Message{Role: "assistant", Content: "Because air scatters short waves of light more than long ones.", Reasoning: "Rayleigh."})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(b.Context(), messages, chat.Options{AddGenerationPrompt: true}); err != nil {
			b.Fatal(err)
		}
	}
}
