package gemma4test

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MinVocab is the least number of tokens of a model: markers, bytes and the
// characters of ASCII.
const MinVocab = firstPiece + '~' - ' ' + 1

// Ids that the official models have, too.
const (
	padID     = 0
	eosID     = 1
	bosID     = 2
	unkID     = 3
	turnID    = 105
	endTurnID = 106
	firstByte = 107
	// firstPiece is the first id of a piece of text.
	firstPiece = firstByte + 256
)

// Template is a chat template in the markers of the family.
const Template = `{{ bos_token }}{% for m in messages %}<|turn>{% if m['role'] == 'assistant' %}model{% else %}{{ m['role'] }}{% endif %}

{{ m['content'] }}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% endif %}`

// Tokenizer returns a tokenizer.json of n tokens, at least MinVocab: the markers of
// the family, all bytes, the characters of ASCII, and then made-up words. It needs
// no download, and its words mean nothing.
func Tokenizer(n int) ([]byte, error) {
	if n < MinVocab {
		return nil, fmt.Errorf("a tokenizer of %d tokens, at least %d are needed", n, MinVocab)
	}
	var pieces, added bytes.Buffer
	var merges [][2]string
	id := 0
	piece := func(s string) {
		text, _ := json.Marshal(s) // a string always has a form in JSON
		if id > 0 {
			pieces.WriteByte(',')
		}
		fmt.Fprintf(&pieces, "%s:%d", text, id)
		id++
	}
	names := map[int]string{padID: "<pad>", eosID: "<eos>", bosID: "<bos>", unkID: "<unk>", turnID: "<|turn>", endTurnID: "<turn|>"}
	for i := range firstByte {
		name, special := names[i]
		if !special {
			name = fmt.Sprintf("<unused%d>", i)
		}
		if i > 0 {
			added.WriteByte(',')
		}
		fmt.Fprintf(&added, `{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":%t}`, i, name, special)
		piece(name)
	}
	for b := range 256 {
		piece(fmt.Sprintf("<0x%02X>", b))
	}
	const space = "▁"
	piece(space)
	for c := '!'; c <= '~'; c++ {
		piece(string(c))
	}
	// Words grow letter by letter, so that each is a merge of one before it and a letter.
	words := []string{space}
	for next := 0; id < n; next++ {
		for c := 'a'; c <= 'z' && id < n; c++ {
			merges = append(merges, [2]string{words[next], string(c)})
			words = append(words, words[next]+string(c))
			piece(words[next] + string(c))
		}
	}
	if merges == nil {
		merges = [][2]string{}
	}
	mergeText, err := json.Marshal(merges)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[%s],`, added.Bytes())
	out.WriteString(`"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},` +
		`"pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false},` +
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],` +
		`"pair":[{"SpecialToken":{"id":"<bos>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<bos>","type_id":1}},{"Sequence":{"id":"B","type_id":1}}],` +
		`"special_tokens":{"<bos>":{"id":"<bos>","ids":[2],"tokens":["<bos>"]}}},` +
		`"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]},`)
	fmt.Fprintf(&out, `"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,`+
		`"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":{%s},"merges":%s}}`, pieces.Bytes(), mergeText)
	return out.Bytes(), nil
}
