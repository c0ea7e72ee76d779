//go:build linux

package metaltest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// item is a declaration outside of all others.
type item struct {
	text string
	line int    // of the source
	file string // what the compiler is told that it is in: its lines count from 1, so that it stays the same when others grow
	// names are what it declares; without any, everything may need it. uses are all names that it mentions.
	names, uses []string
}

// slicer cuts a rewritten source into what single kernels need of it.
type slicer struct {
	items  []item
	byName map[string][]int
}

// marker is how a preprocessed source tells of its lines.
var marker = regexp.MustCompile(`(?m)^# (\d+) "metal".*$`)

// newSlicer finds the items of a source.
func newSlicer(code string) *slicer {
	s := &slicer{byName: map[string][]int{}}
	tokens := scan(code)
	start, braces, parens := 0, 0, 0
	for i, t := range tokens {
		switch t.text {
		case "{":
			braces++
		case "}":
			braces--
		case "(":
			parens++
		case ")":
			parens--
		}
		end := t.text == ";" || t.text == "}" && (i+1 == len(tokens) || tokens[i+1].text != ";")
		if end && braces == 0 && parens == 0 {
			s.add(code, tokens[start:i+1])
			start = i + 1
		}
	}
	if start < len(tokens) {
		s.add(code, tokens[start:])
	}
	return s
}

// add makes an item of some tokens.
func (s *slicer) add(code string, tokens []token) {
	n := item{line: tokens[0].line, names: declared(tokens)}
	first := ""
	for _, name := range n.names {
		s.byName[name] = append(s.byName[name], len(s.items))
	}
	if len(n.names) > 0 {
		first = n.names[0]
	}
	// Several items may have a name, or none.
	same := 0
	for _, other := range s.items {
		if strings.HasPrefix(other.file, "metal-"+first+"-") {
			same++
		}
	}
	n.file = fmt.Sprintf("metal-%s-%d", first, same)
	for _, t := range tokens {
		if identifier.MatchString(t.text) && !slices.Contains(n.uses, t.text) {
			n.uses = append(n.uses, t.text)
		}
	}
	n.text = marker.ReplaceAllStringFunc(code[tokens[0].start:tokens[len(tokens)-1].end], func(m string) string {
		line, err := strconv.Atoi(marker.FindStringSubmatch(m)[1])
		if err != nil {
			return m
		}
		return fmt.Sprintf("# %d %q", line-n.line+1, n.file)
	})
	s.items = append(s.items, n)
}

// declared returns the names that tokens declare, or none if that is hard to tell.
func declared(tokens []token) []string {
	for i := 0; i < len(tokens); i++ {
		next := func(n int) string {
			if i+n < len(tokens) && i+n >= 0 {
				return tokens[i+n].text
			}
			return ""
		}
		switch text := tokens[i].text; text {
		case "template":
			if next(1) == "<" {
				i = skip(tokens, i+1) - 1
			}
		case "__attribute__":
			i = skip(tokens, i+1) - 1
		case "struct", "class", "union":
			return []string{next(1)}
		case "using":
			if next(2) == "=" {
				return []string{next(1)}
			}
			return nil
		case "enum", "namespace", "operator", "typedef":
			return nil
		case "(":
			// A function. A specialisation has arguments after its name.
			at := i - 1
			if tokens[max(at, 0)].text == ">" {
				for at > 0 && tokens[at].text != "<" {
					at--
				}
				at--
			}
			if at < 0 {
				return nil
			}
			return []string{tokens[at].text}
		case "=", "[", ";", "{":
			if i == 0 {
				return nil
			}
			return []string{next(-1)}
		}
	}
	return nil
}

// skip returns the token after a bracket and all that it encloses.
func skip(tokens []token, i int) int {
	depth := 0
	for ; i < len(tokens); i++ {
		switch tokens[i].text {
		case "<", "(":
			depth++
		case ">", ")":
			depth--
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

// slice returns what a kernel needs.
func (s *slicer) slice(kernel string) string {
	needed := make([]bool, len(s.items))
	var queue []int
	need := func(i int) {
		if !needed[i] {
			needed[i] = true
			queue = append(queue, i)
		}
	}
	for i, n := range s.items {
		if len(n.names) == 0 || slices.Contains(n.names, kernel) {
			need(i)
		}
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, name := range s.items[i].uses {
			for _, j := range s.byName[name] {
				need(j)
			}
		}
	}
	var text strings.Builder
	for i, n := range s.items {
		if needed[i] {
			fmt.Fprintf(&text, "# 1 %q\n%s\n", n.file, n.text)
		}
	}
	return text.String()
}

// before returns the line before the first of a file.
func (s *slicer) before(file string) (int, bool) {
	i := slices.IndexFunc(s.items, func(n item) bool { return n.file == file })
	if i < 0 {
		return 0, false
	}
	return s.items[i].line - 1, true
}
