package chat

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// respell rewrites a template in the spelling that gonja's lexer reads the way
// Jinja reads the original, line for line:
//
//   - lstrip_blocks is applied here: gonja strips the blanks before a tag even
//     when another tag stands before them on the line;
//   - {{ x }} becomes {%print(x)+%}, so that all expressions reach the parser of
//     this package: gonja's has no conditional expressions inside others;
//   - raw blocks become string constants;
//   - in strings, an escaped quote or backslash is spelled \x..: gonja takes the
//     quote after \\ for an escaped one;
//   - in tags, a blank follows each newline: gonja makes a newline part of the
//     next token; and characters that gonja skips are refused.
//
// It also refuses unbalanced brackets and unterminated tags, strings and comments.
func respell(src string) (string, error) {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	s := respeller{src: strings.TrimSuffix(src, "\n"), lineStarts: true}
	s.out.Grow(len(src) + len(src)/8)
	for s.pos < len(s.src) {
		if err := s.step(); err != nil {
			return "", err
		}
	}
	return s.out.String(), nil
}

type respeller struct {
	src string
	pos int
	out strings.Builder
	// lineStarts is whether the tag before pos swallowed a newline behind it.
	lineStarts bool
}

func (s *respeller) fail(at int, format string, args ...any) error {
	return &SyntaxError{Line: 1 + strings.Count(s.src[:at], "\n"), Message: fmt.Sprintf(format, args...)}
}

// step copies the text up to the next tag, and that tag.
func (s *respeller) step() error {
	rest := s.src[s.pos:]
	n := 0
	for {
		i := strings.IndexByte(rest[n:], '{')
		if i < 0 || n+i+1 == len(rest) {
			s.out.WriteString(rest)
			s.pos = len(s.src)
			return nil
		}
		if n += i; strings.IndexByte("{%#", rest[n+1]) >= 0 {
			break
		}
		n++
	}
	begin := s.pos + n
	sign := s.signAt(begin + 2)
	s.out.WriteString(s.before(rest[:n], s.src[begin+1] != '{', sign))
	s.pos = begin + 2 + len(sign)
	if sign == "+" {
		sign = "" // nothing is stripped by default any more
	}
	switch s.src[begin+1] {
	case '#':
		return s.comment(begin, sign)
	case '{':
		return s.output(begin, sign)
	}
	if name := strings.TrimLeftFunc(s.src[s.pos:], isSpace); strings.HasPrefix(name, "raw") {
		if done, err := s.raw(begin, sign); done || err != nil {
			return err
		}
	}
	s.out.WriteString("{%" + sign)
	lead := s.src[s.pos : len(s.src)-len(strings.TrimLeftFunc(s.src[s.pos:], isSpace))]
	s.pos += len(lead)
	end, err := s.inside(begin, "%}", "+-")
	if err != nil {
		return err
	}
	s.out.WriteString(strings.Repeat("\n ", strings.Count(lead, "\n")) + end + "%}")
	s.after(end, true)
	return nil
}

func (s *respeller) signAt(pos int) string {
	if pos < len(s.src) && (s.src[pos] == '-' || s.src[pos] == '+') {
		return s.src[pos : pos+1]
	}
	return ""
}

// before is lstrip_blocks: the text before a tag, less the blanks between the
// start of the tag's line and the tag.
func (s *respeller) before(data string, block bool, sign string) string {
	if !block || sign != "" {
		return data
	}
	start := strings.LastIndexByte(data, '\n') + 1
	if (start > 0 || s.lineStarts) && trimSpace(data[start:]) == "" {
		return data[:start]
	}
	return data
}

// after notes what the end of a tag swallows: all blanks with a minus, else
// (trim_blocks) a newline if the tag is a block. gonja does the swallowing.
func (s *respeller) after(sign string, block bool) {
	rest := s.src[s.pos:]
	switch {
	case sign == "-":
		rest = rest[:len(rest)-len(strings.TrimLeftFunc(rest, isSpace))]
		s.out.WriteString(rest) // the lines count
		s.pos += len(rest)
		s.lineStarts = strings.HasSuffix(rest, "\n")
	case sign == "" && block && strings.HasPrefix(rest, "\n"):
		s.out.WriteByte('\n')
		s.pos++
		s.lineStarts = true
	default:
		s.lineStarts = false
	}
}

// comment copies a comment's newlines and signs only.
func (s *respeller) comment(begin int, sign string) error {
	n := strings.Index(s.src[s.pos:], "#}")
	if n < 0 {
		return s.fail(begin, "missing end of comment tag")
	}
	body := s.src[s.pos : s.pos+n]
	s.pos += n + 2
	end := ""
	if strings.HasSuffix(body, "-") || strings.HasSuffix(body, "+") {
		end = body[len(body)-1:]
	}
	s.out.WriteString("{#" + sign + " " + strings.Repeat("\n", strings.Count(body, "\n")) + " " + end + "#}")
	s.after(end, true)
	return nil
}

func (s *respeller) output(begin int, sign string) error {
	s.out.WriteString("{%" + sign + printTag + " (")
	start := s.out.Len()
	end, err := s.inside(begin, "}}", "-")
	if err != nil {
		return err
	}
	if trimSpace(s.out.String()[start:]) == "" {
		return s.fail(begin, "expected an expression, got 'end of print statement'")
	}
	s.out.WriteByte(')')
	if end == "" {
		end = "+"
	}
	s.out.WriteString(end + "%}")
	s.after(strings.TrimSuffix(end, "+"), false)
	return nil
}

// printTag is the statement that prints an expression; Jinja has it too.
const printTag = "print"

// raw turns a raw block into a string constant; done is false if it is none.
func (s *respeller) raw(begin int, sign string) (done bool, err error) {
	rest := strings.TrimLeftFunc(s.src[s.pos:], isSpace)[len("raw"):]
	rest = strings.TrimLeftFunc(rest, isSpace)
	trimStart := strings.HasPrefix(rest, "-%}")
	if !trimStart && !strings.HasPrefix(rest, "%}") {
		return false, nil
	}
	s.pos = len(s.src) - len(rest) + strings.Index(rest, "}") + 1
	s.lineStarts = false
	head := s.pos
	if trimStart {
		s.pos = len(s.src) - len(strings.TrimLeftFunc(s.src[s.pos:], isSpace))
		s.lineStarts = strings.HasSuffix(s.src[head:s.pos], "\n")
	}
	for at := s.pos; ; at += 2 {
		i := strings.Index(s.src[at:], "{%")
		if i < 0 {
			return false, s.fail(begin, "missing end of raw directive")
		}
		at += i
		endSign := s.signAt(at + 2)
		tail := strings.TrimLeftFunc(s.src[at+2+len(endSign):], isSpace)
		tail, ok := strings.CutPrefix(tail, "endraw")
		if !ok {
			continue
		}
		tail = strings.TrimLeftFunc(tail, isSpace)
		end := ""
		if strings.HasPrefix(tail, "-") || strings.HasPrefix(tail, "+") {
			end, tail = tail[:1], tail[1:]
		}
		tail, ok = strings.CutPrefix(tail, "%}")
		if !ok {
			continue
		}
		body := s.before(s.src[s.pos:at], true, endSign)
		if endSign == "-" {
			body = strings.TrimRightFunc(body, isSpace)
		}
		s.out.WriteString("{%" + sign + printTag + " '")
		s.out.WriteString(strings.NewReplacer(`\`, `\x5c`, `'`, `\x27`).Replace(body))
		next := len(s.src) - len(tail)
		lines := strings.Count(s.src[begin:next], "\n") - strings.Count(body, "\n")
		s.out.WriteString("'" + strings.Repeat("\n ", lines) + end + "%}")
		s.pos = next
		s.after(end, true)
		return true, nil
	}
}

// inside copies the expression of a tag and returns the sign before its end,
// having passed both.
func (s *respeller) inside(begin int, end, signs string) (string, error) {
	var open []byte
	for s.pos < len(s.src) {
		rest := s.src[s.pos:]
		if len(open) == 0 {
			if strings.HasPrefix(rest, end) {
				s.pos += len(end)
				return "", nil
			}
			if strings.IndexByte(signs, rest[0]) >= 0 && strings.HasPrefix(rest[1:], end) {
				s.pos += 1 + len(end)
				return rest[:1], nil
			}
		}
		switch c := rest[0]; c {
		case '\'', '"':
			if err := s.quoted(); err != nil {
				return "", err
			}
			continue
		case '(', '[', '{':
			open = append(open, map[byte]byte{'(': ')', '[': ']', '{': '}'}[c])
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != c {
				return "", s.fail(s.pos, "unexpected %q", c)
			}
			open = open[:len(open)-1]
		}
		c, size := utf8.DecodeRuneInString(rest)
		switch {
		case c == '\n':
			s.out.WriteString("\n ")
		case isSpace(c):
			s.out.WriteByte(' ')
		case c == '!' && !strings.HasPrefix(rest, "!="),
			c < utf8.RuneSelf && strings.IndexByte("_()[]{}+-*/%<>=!.,:|~", byte(c)) < 0 && !isAlnum(byte(c)),
			c >= utf8.RuneSelf && !unicode.IsLetter(c) && !unicode.IsDigit(c):
			return "", s.fail(s.pos, "unexpected character %q", c)
		default:
			s.out.WriteString(rest[:size])
		}
		s.pos += size
	}
	return "", s.fail(begin, "tag has no end")
}

func isAlnum(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// quoted copies a string constant.
func (s *respeller) quoted() error {
	begin, quote := s.pos, s.src[s.pos]
	s.out.WriteByte(quote)
	for s.pos++; s.pos < len(s.src); s.pos++ {
		c := s.src[s.pos]
		switch {
		case c == quote:
			s.pos++
			s.out.WriteByte(quote)
			return nil
		case c != '\\':
			s.out.WriteByte(c)
		case s.pos+1 < len(s.src):
			s.pos++
			if c = s.src[s.pos]; c == '\\' || c == '\'' || c == '"' {
				fmt.Fprintf(&s.out, `\x%02x`, c)
			} else {
				s.out.WriteByte('\\')
				s.out.WriteByte(c)
			}
		}
	}
	return s.fail(begin, "unterminated string")
}

// isSpace is Python's str.isspace for one character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || 0x1c <= c && c <= 0x1f }

// trimSpace is Python's str.strip without arguments.
func trimSpace(s string) string { return strings.TrimFunc(s, isSpace) }
