package tokenizer

import (
	"unicode/utf8"
)

// replacement is what a byte becomes that is part of no character.
const replacement = "\ufffd"

// DecodeOptions says what Decode and Stream leave out. The zero value leaves
// nothing out.
type DecodeOptions struct {
	// DropSpecial leaves out the tokens for which IsSpecial is true.
	DropSpecial bool
}

// Decode returns the text of ids: what the original library returns with
// skip_special_tokens=False. A run of byte pieces that is not valid UTF-8 as a
// whole becomes one U+FFFD for each byte. Ids that are not in use are left out.
func (t *Tokenizer) Decode(ids []int32) string {
	return t.DecodeWith(ids, DecodeOptions{})
}

// DecodeWith is Decode with options.
func (t *Tokenizer) DecodeWith(ids []int32, o DecodeOptions) string {
	out := make([]byte, 0, 4*len(ids))
	run := -1 // where the current run of byte pieces starts in out
	for _, id := range ids {
		if !t.has(id) || o.DropSpecial && t.flags[id]&flagSpecial != 0 {
			continue
		}
		if b, ok := t.byteOf(id); ok {
			if run < 0 {
				run = len(out)
			}
			out = append(out, b)
			continue
		}
		if run >= 0 {
			out, run = closeRun(out, run), -1
		}
		out = append(out, t.text(id)...)
	}
	if run >= 0 {
		out = closeRun(out, run)
	}
	return string(out)
}

// closeRun replaces the bytes of out from start on if they are not valid UTF-8.
func closeRun(out []byte, start int) []byte {
	if utf8.Valid(out[start:]) {
		return out
	}
	n := len(out) - start
	out = out[:start]
	for range n {
		out = append(out, replacement...)
	}
	return out
}

// byteOf returns the byte that id stands for, if it is a byte piece. id must
// be in use.
func (t *Tokenizer) byteOf(id int32) (byte, bool) {
	if t.flags[id]&flagByte == 0 {
		return 0, false
	}
	return parseBytePiece(string(t.text(id)))
}
