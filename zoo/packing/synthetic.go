package packing

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// Ids of the markers in the tokenizer of a synthetic pack.
const (
	syntheticPad = 0
	syntheticEOS = 1
	syntheticBOS = 2
)

// syntheticMarkers are its first pieces.
var syntheticMarkers = [...]string{syntheticPad: "<pad>", syntheticEOS: "<eos>", syntheticBOS: "<bos>", 3: "<unk>"}

// WriteSynthetic writes the pack as a zoo.Synthesizer does, whose tensors are those of
// [Noise]: its recipe says that the weights are random, and its files are the given
// config.json, a made-up tokenizer with so many pieces, and what belongs to that.
func (p *Pack) WriteSynthetic(ctx context.Context, req zoo.SynthesizeRequest, config []byte, pieces int) error {
	made := *p
	made.Recipe = map[string]string{zoo.RecipeWeights: zoo.RandomWeights}
	maps.Copy(made.Recipe, p.Recipe)
	compiled, err := tokenizer.Compile(syntheticTokenizer(pieces))
	if err != nil {
		return fmt.Errorf("tokenizer of a synthetic pack: %w", err)
	}
	made.Files = map[string][]byte{
		zoo.ConfigFile:          config,
		zoo.GenerationFile:      fmt.Appendf(nil, `{"bos_token_id":%d,"eos_token_id":%d,"pad_token_id":%d}`, syntheticBOS, syntheticEOS, syntheticPad),
		zoo.TokenizerConfigFile: fmt.Appendf(nil, `{"bos_token":%q,"eos_token":%q}`, syntheticMarkers[syntheticBOS], syntheticMarkers[syntheticEOS]),
		zoo.TokenizerFile:       compiled,
	}
	m := NewMeter(req.Progress)
	m.Expect(made.SourceBytes())
	return made.Write(ctx, req.Dir, m)
}

// syntheticTokenizer returns a tokenizer.json with n pieces or a few more: markers,
// all bytes, the characters of ASCII, and made-up words. Without merges a text becomes
// its characters, and every token has a text.
func syntheticTokenizer(n int) []byte {
	var pieces, added bytes.Buffer
	count := 0
	piece := func(format string, args ...any) {
		if count > 0 {
			pieces.WriteByte(',')
		}
		fmt.Fprintf(&pieces, "%q:%d", fmt.Sprintf(format, args...), count)
		count++
	}
	for id, name := range syntheticMarkers {
		if id > 0 {
			added.WriteByte(',')
		}
		fmt.Fprintf(&added, `{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`, id, name)
		piece("%s", name)
	}
	for b := range 256 {
		piece("<0x%02X>", b)
	}
	piece("▁")
	for c := '!'; c <= '~'; c++ {
		piece("%c", c)
	}
	for count < n {
		piece("▁w%d", count)
	}
	return fmt.Appendf(nil, `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[%s],`+
		`"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},"pre_tokenizer":null,"post_processor":null,`+
		`"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]},`+
		`"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,`+
		`"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":{%s},"merges":[]}}`, added.Bytes(), pieces.Bytes())
}
