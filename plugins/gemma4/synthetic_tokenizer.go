package gemma4

import (
	"bytes"
	"fmt"
)

// Ids of the markers in the tokenizer of a synthetic pack, as the official models have them.
const (
	syntheticPad = 0
	syntheticEOS = 1
	syntheticBOS = 2
)

// syntheticMarkers are the first pieces.
var syntheticMarkers = [...]string{syntheticPad: "<pad>", syntheticEOS: "<eos>", syntheticBOS: "<bos>", 3: "<unk>"}

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
