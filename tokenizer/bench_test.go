package tokenizer_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/tokenizer"
)

// prose is about a kilobyte of ordinary text.
const prose = `The sky is blue because air scatters short waves of light more strongly than long ones. Sunlight
holds all colours; on its way through the atmosphere its blue part is sent in every direction, so that blue
reaches our eyes from everywhere. In the evening, when light has come a longer way, most of the blue has been
scattered out of it, and what is left is red. "Why not violet, then?" people ask: there is less of it in
sunlight (about 40% less), high layers absorb some, and our eyes are less sensitive to it.

func scatter(lambda float64) float64 {
	return 1 / math.Pow(lambda, 4) // Rayleigh, 1871
}

Der Himmel ist blau. Le ciel est bleu; el cielo es azul. Небо голубое. 天空是蓝色的，因为空气更强烈地散射短波光。空は青い。하늘은 파랗다. 🙂
`

// benchTexts returns texts of a megabyte: prose, Gemma's 4,000 golden strings,
// which repeat little, and what has no place to cut.
func benchTexts(b *testing.B, dir string) map[string]string {
	b.Helper()
	var golden strings.Builder
	for golden.Len() < 1<<20 {
		for _, row := range readGolden(b, filepath.Join(dir, "tokenizer_golden.jsonl.gz")) {
			golden.WriteString(*row.Text)
		}
	}
	mega := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	return map[string]string{"prose": mega(prose), "golden": golden.String(), "letter": mega("a"), "spaces": mega(" "), "han": mega("天空是蓝色的因为空气更强烈地散射短波光")}
}

func BenchmarkEncode(b *testing.B) {
	compiled, dir := loadGemma(b)
	tok := open(b, compiled)
	for name, text := range benchTexts(b, dir) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			ids := tok.Encode(nil, text, tokenizer.MarkersAreText)
			for b.Loop() {
				ids = tok.Encode(ids[:0], text, tokenizer.MarkersAreText)
			}
			b.ReportMetric(float64(len(ids)*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	compiled, _ := loadGemma(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tokenizer.Open(compiled); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	dir := sharedData(b, "gemma-tokenizer")
	src := readGzip(b, filepath.Join(dir, "tokenizer.json.gz"))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tokenizer.Compile(src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	compiled, dir := loadGemma(b)
	tok := open(b, compiled)
	text := benchTexts(b, dir)["prose"]
	ids := tok.Encode(nil, text, tokenizer.MarkersAreText)
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			tok.Decode(ids)
		}
		b.ReportMetric(float64(len(ids)*b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("stream", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			stream := tok.Stream()
			for _, id := range ids {
				stream.Push(id)
			}
			stream.Flush()
		}
		b.ReportMetric(float64(len(ids)*b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}
