package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// space is what the normalizer puts in the place of " ".
	space = "\u2581"

	// maxSourceBytes bounds a tokenizer.json; Gemma's has 33 MB.
	maxSourceBytes = 512 << 20
)

// source is what Compile needs of a tokenizer.json, or CompilePieces of a vocabulary.
type source struct {
	pieces []string // by id; "" where an id is not in use
	ids    map[string]int32
	merges [][3]int32 // left, right and merged id, by rank
	added  []added    // in the order of the file
	// scored says that rules are ranked by what they yield: neighbouring rules of one
	// outcome share a rank, so that of those the leftmost in the text comes first.
	scored bool
	// spaced says that added tokens are found in a text whose spaces may be written as
	// "▁": their own are spaces.
	spaced bool
}

// added is an entry of added_tokens.
type added struct {
	id      int32
	text    string
	special bool
	// open marks a token that belongs to every text.
	open bool
}

// guarded reports whether the token must never come out of text that was not
// written by the template's author: all added tokens but those that belong to
// every text, and those that are nothing but white space, which are ordinary layout.
func (a added) guarded() bool {
	return !a.open && (a.special || strings.ContainsFunc(a.text, func(r rune) bool {
		return !unicode.IsSpace(r) && string(r) != space
	}))
}

// parser walks a tokenizer.json once, from front to back.
type parser struct {
	src []byte
	dec *json.Decoder

	vocab   map[string]int32
	added   []added
	merges  [][2]string
	unknown any // model.unk_token
}

// parseSource reads a tokenizer.json and checks that it asks for nothing but
// what Encode and Decode do.
func parseSource(src []byte) (*source, error) {
	if len(src) > maxSourceBytes {
		return nil, sourceError("", "%d bytes are too many, at most %d", len(src), maxSourceBytes)
	}
	if !utf8.Valid(src) {
		return nil, sourceError("", "not valid UTF-8")
	}
	if at := loneSurrogate(src); at >= 0 {
		return nil, sourceError("", "half a surrogate pair at byte %d", at)
	}
	p := &parser{src: src, dec: json.NewDecoder(bytes.NewReader(src))}
	p.dec.UseNumber()
	if err := p.file(); err != nil {
		// The walk's own errors are whole; what is left comes from the JSON reader.
		if se := (*SourceError)(nil); errors.As(err, &se) {
			return nil, err
		}
		return nil, &SourceError{Problem: "not readable as JSON", Err: err}
	}
	return p.source()
}

// loneSurrogate returns the place of the first \u escape that is half of a
// surrogate pair without its other half, which the JSON reader would replace
// silently, or -1.
func loneSurrogate(src []byte) int {
	unit := func(at int) int64 {
		if at+6 > len(src) || src[at] != '\\' || src[at+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseInt(string(src[at+2:at+6]), 16, 32)
		if err != nil {
			return -1
		}
		return n
	}
	for at := 0; at < len(src); {
		i := bytes.IndexByte(src[at:], '\\')
		if i < 0 {
			break
		}
		at += i
		switch u := unit(at); {
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(at + 6); low < 0xdc00 || low > 0xdfff {
				return at
			}
			at += 12
		case u >= 0xdc00 && u <= 0xdfff:
			return at
		default:
			at += 2 // the backslash and what it escapes
		}
	}
	return -1
}

// file reads the outermost object.
func (p *parser) file() error {
	fields := map[string]func(string) error{
		"version":        p.exactly("1.0"),
		"truncation":     p.exactly(nil),
		"padding":        p.exactly(nil),
		"normalizer":     p.exactly(metaspaceNormalizer()),
		"pre_tokenizer":  p.exactly(nil, metaspacePreTokenizer()),
		"post_processor": p.postProcessor,
		"decoder":        p.exactly(metaspaceDecoder()),
		"added_tokens":   p.addedTokens,
		"model":          p.model,
	}
	if err := p.object("", fields, "version", "normalizer", "decoder", "added_tokens", "model"); err != nil {
		return err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return sourceError("", "more data after the outermost object")
	}
	return nil
}

// metaspaceNormalizer is the normalizer that Encode implements.
func metaspaceNormalizer() any {
	return map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": space}
}

// metaspacePreTokenizer is the pre-tokenizer that Encode implements: as the
// normalizer has left no space to split at, it does nothing.
func metaspacePreTokenizer() any {
	return map[string]any{"type": "Split", "pattern": map[string]any{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}
}

// metaspaceDecoder is the decoder that Decode implements.
func metaspaceDecoder() any {
	return map[string]any{"type": "Sequence", "decoders": []any{
		map[string]any{"type": "Replace", "pattern": map[string]any{"String": space}, "content": " "},
		map[string]any{"type": "ByteFallback"},
		map[string]any{"type": "Fuse"},
	}}
}

// object reads an object whose keys all are in fields, each at most once, and
// those in required once. part is the object's own name, or "".
func (p *parser) object(part string, fields map[string]func(part string) error, required ...string) error {
	if err := p.delim(part, '{'); err != nil {
		return err
	}
	seen := make(map[string]bool, len(fields))
	for p.dec.More() {
		key, err := p.key()
		if err != nil {
			return err
		}
		name := key
		if part != "" {
			name = part + "." + key
		}
		read, ok := fields[key]
		if !ok {
			return sourceError(name, "unknown field")
		}
		if seen[key] {
			return sourceError(name, "given twice")
		}
		seen[key] = true
		if err := read(name); err != nil {
			return err
		}
	}
	for _, key := range required {
		if !seen[key] {
			return sourceError(part, "%q is missing", key)
		}
	}
	_, err := p.dec.Token()
	return err
}

// delim reads one of the four delimiters.
func (p *parser) delim(part string, want json.Delim) error {
	tok, err := p.dec.Token()
	if err != nil {
		return err
	}
	if tok != want {
		return sourceError(part, "starts with %.40q, want %q", fmt.Sprint(tok), want.String())
	}
	return nil
}

// key reads the key of an object's next entry.
func (p *parser) key() (string, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	return tok.(string), nil // the reader lets nothing else stand here
}

// value reads the next value as maps, slices and scalars.
func (p *parser) value() (any, error) {
	var v any
	err := p.dec.Decode(&v)
	return v, err
}

// exactly returns a reader that takes one of the wanted values and no other.
func (p *parser) exactly(want ...any) func(string) error {
	return func(part string) error {
		v, err := p.value()
		if err != nil {
			return err
		}
		for _, w := range want {
			if reflect.DeepEqual(v, w) {
				return nil
			}
		}
		return sourceError(part, "%s is not supported, only %s", inJSON(v), inJSON(want[len(want)-1]))
	}
}

// inJSON writes a value for an error, cut to a readable length.
func inJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%.200q", fmt.Sprint(v))
	}
	if len(b) > 200 {
		return strings.ToValidUTF8(string(b[:200]), "") + "…"
	}
	return string(b)
}

// postProcessor accepts the templates that put <bos> and the like around a
// text. Encode does not apply them: the chat template writes these tokens.
func (p *parser) postProcessor(part string) error {
	v, err := p.value()
	if err != nil {
		return err
	}
	if m, ok := v.(map[string]any); v == nil || ok && m["type"] == "TemplateProcessing" {
		return nil
	}
	return sourceError(part, "%s is not supported, only TemplateProcessing", inJSON(v))
}

// model reads the BPE model.
func (p *parser) model(part string) error {
	flag := func(dst *bool) func(string) error {
		return func(part string) error {
			v, err := p.value()
			if err != nil {
				return err
			}
			b, ok := v.(bool)
			if !ok {
				return sourceError(part, "%s is not a boolean", inJSON(v))
			}
			*dst = b
			return nil
		}
	}
	var fuseUnknown bool // without effect: every byte has a piece, so nothing is unknown
	fields := map[string]func(string) error{
		"type":                      p.exactly("BPE"),
		"dropout":                   p.exactly(nil),
		"continuing_subword_prefix": p.exactly("", nil),
		"end_of_word_suffix":        p.exactly("", nil),
		"ignore_merges":             p.exactly(false),
		"byte_fallback":             p.exactly(true),
		"fuse_unk":                  flag(&fuseUnknown),
		"unk_token": func(string) (err error) {
			p.unknown, err = p.value()
			return err
		},
		"vocab":  p.readVocab,
		"merges": p.readMerges,
	}
	return p.object(part, fields, "type", "byte_fallback", "vocab", "merges")
}

// readVocab reads the object from piece to id.
func (p *parser) readVocab(part string) error {
	if err := p.delim(part, '{'); err != nil {
		return err
	}
	p.vocab = make(map[string]int32)
	for p.dec.More() {
		piece, err := p.key()
		if err != nil {
			return err
		}
		tok, err := p.dec.Token()
		if err != nil {
			return err
		}
		id, ok := toID(tok)
		switch {
		case !ok:
			return sourceError(part, "piece %.80q has the id %.40q, want 0 to %d", piece, fmt.Sprint(tok), maxIDs-1)
		case piece == "":
			return sourceError(part, "an empty piece, with the id %d", id)
		case strings.Contains(piece, " ") && strings.Contains(piece, space):
			return sourceError(part, "piece %.80q mixes spaces and %q", piece, space)
		case len(piece) > maxPieceBytes:
			return sourceError(part, "piece %.80q… has %d bytes, at most %d", piece, len(piece), maxPieceBytes)
		case len(p.vocab) >= maxIDs:
			return sourceError(part, "more than %d pieces", maxIDs)
		}
		if _, twice := p.vocab[piece]; twice {
			return sourceError(part, "piece %.80q is given twice", piece)
		}
		p.vocab[piece] = id
	}
	_, err := p.dec.Token()
	return err
}

// toID takes a JSON number that can be an id.
func toID(v any) (int32, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(n.String(), 10, 31)
	if err != nil || id >= maxIDs {
		return 0, false
	}
	return int32(id), true
}

// readMerges reads the list of merge rules, all of them pairs of strings or all
// of them strings with one space in the middle.
func (p *parser) readMerges(part string) error {
	if err := p.delim(part, '['); err != nil {
		return err
	}
	var pair []string
	var line string
	form := byte(0) // what the first rule starts with
	for n := 0; p.dec.More(); n++ {
		switch c := p.next(); {
		case c != '[' && c != '"':
			return sourceError(item(part, n), "is not a pair of pieces")
		case form == 0:
			form = c
		case c != form:
			return sourceError(item(part, n), "pairs and strings are mixed")
		case len(p.merges) >= maxMerges:
			return sourceError(part, "more than %d merges", maxMerges)
		}
		if form == '[' {
			if err := p.dec.Decode(&pair); err != nil {
				return err
			}
		} else {
			if err := p.dec.Decode(&line); err != nil {
				return err
			}
			if strings.HasPrefix(line, "#version") {
				continue // a comment
			}
			pair = strings.Split(line, " ")
		}
		if len(pair) != 2 {
			return sourceError(item(part, n), "%.80q is not a pair of pieces", pair)
		}
		p.merges = append(p.merges, [2]string(pair))
	}
	_, err := p.dec.Token()
	return err
}

// next returns the first byte of the next value in an array.
func (p *parser) next() byte {
	rest := bytes.TrimLeft(p.src[p.dec.InputOffset():], " \t\r\n,")
	if len(rest) == 0 {
		return 0
	}
	return rest[0]
}

// addedTokens reads the added tokens.
func (p *parser) addedTokens(part string) error {
	if err := p.delim(part, '['); err != nil {
		return err
	}
	for n := 0; p.dec.More(); n++ {
		name := item(part, n)
		v, err := p.value()
		if err != nil {
			return err
		}
		m, ok := v.(map[string]any)
		if !ok {
			return sourceError(name, "%s is not an object", inJSON(v))
		}
		if len(p.added) >= maxIDs {
			return sourceError(part, "more than %d added tokens", maxIDs)
		}
		a := added{}
		if a.text, ok = m["content"].(string); !ok || a.text == "" {
			return sourceError(name, "content %s is not a text", inJSON(m["content"]))
		}
		if len(a.text) > maxPieceBytes {
			return sourceError(name, "content has %d bytes, at most %d", len(a.text), maxPieceBytes)
		}
		if strings.Contains(a.text, " ") && strings.Contains(a.text, space) {
			return sourceError(name, "content %.80q mixes spaces and %q", a.text, space)
		}
		if a.id, ok = toID(m["id"]); !ok {
			return sourceError(name, "id %s is not one of 0 to %d", inJSON(m["id"]), maxIDs-1)
		}
		if a.special, ok = m["special"].(bool); !ok {
			return sourceError(name, "special is %s, want true or false", inJSON(m["special"]))
		}
		for _, key := range []string{"single_word", "lstrip", "rstrip", "normalized"} {
			if m[key] != false {
				return sourceError(name, "%s is %s for %q, only false is supported", key, inJSON(m[key]), a.text)
			}
		}
		p.added = append(p.added, a)
	}
	_, err := p.dec.Token()
	return err
}
