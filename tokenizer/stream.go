package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// Stream turns ids into text one at a time, for output that is shown while it
// is generated. It never returns a part of a character. What Push and Flush
// return, joined, is what Decode returns for all ids together, but in one case
// that no encoded text leads to: see Push. A Stream is for one goroutine at a
// time.
type Stream struct {
	t *Tokenizer
	o DecodeOptions
	// held is text that ends in U+FFFD, which is not shown before what follows
	// it is known: the original library takes it for an unfinished character.
	held []byte
	// run holds the bytes of the current run of byte pieces that were not
	// returned yet. Its first whole bytes are characters, and what follows them
	// may become one, unless the run is broken.
	run    []byte
	whole  int
	broken bool
}

// Stream returns a new stream that decodes as Decode does.
func (t *Tokenizer) Stream() *Stream { return t.StreamWith(DecodeOptions{}) }

// StreamWith is Stream with options.
func (t *Tokenizer) StreamWith(o DecodeOptions) *Stream { return &Stream{t: t, o: o} }

// Push adds an id and returns the text that is certain now: "" as long as a
// character is spelled in bytes of which some are still to come, or when all
// there is ends in U+FFFD.
//
// A whole character is returned at once. Should the byte pieces behind it turn
// out not to be valid UTF-8, only those that are left become U+FFFD, whereas
// Decode, which sees all of them at once, replaces the character, too.
func (s *Stream) Push(id int32) string {
	if !s.t.has(id) || s.o.DropSpecial && s.t.flags[id]&flagSpecial != 0 {
		return ""
	}
	if b, ok := s.t.byteOf(id); ok {
		return s.pushByte(b)
	}
	s.closeRun()
	s.held = append(s.held, s.t.text(id)...)
	if bytes.HasSuffix(s.held, []byte(replacement)) {
		return ""
	}
	return s.take()
}

// pushByte adds a byte piece.
func (s *Stream) pushByte(b byte) string {
	s.run = append(s.run, b)
	if s.broken || !utf8.FullRune(s.run[s.whole:]) {
		return ""
	}
	r, size := utf8.DecodeRune(s.run[s.whole:])
	if r == utf8.RuneError && size < 2 {
		s.broken = true
		return ""
	}
	s.whole += size
	if r == utf8.RuneError {
		return ""
	}
	s.closeRun()
	return s.take()
}

// closeRun moves the run to the text that is held: as it is if it consists of
// characters, or with U+FFFD for each of its bytes.
func (s *Stream) closeRun() {
	if s.whole == len(s.run) {
		s.held = append(s.held, s.run...)
	} else {
		for range s.run {
			s.held = append(s.held, replacement...)
		}
	}
	s.run, s.whole, s.broken = s.run[:0], 0, false
}

// take returns what is held and holds nothing.
func (s *Stream) take() string {
	out := string(s.held)
	s.held = s.held[:0]
	return out
}

// Flush returns what is held back, with U+FFFD for the bytes of an unfinished
// character, and makes the stream ready for another text.
func (s *Stream) Flush() string {
	s.closeRun()
	return s.take()
}
