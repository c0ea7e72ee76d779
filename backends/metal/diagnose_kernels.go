package metal

import (
	"regexp"
	"strings"
)

var (
	continuedLine = regexp.MustCompile(`\\\n`)
	lineComment   = regexp.MustCompile(`//[^\n]*`)
	macroHead     = regexp.MustCompile(`^#define (\w+)\(([^)]*)\)(.*)`)
	anyWord       = regexp.MustCompile(`\w+`)
	joinedWords   = regexp.MustCompile(`\s*##\s*`)
	macroUse      = regexp.MustCompile(`\b(\w+)\(`)
	kernelHead    = regexp.MustCompile(`\bkernel\s+void\s+(\w+)\s*\(`)
)

// macro is one with parameters.
type macro struct {
	params []string
	body   string
}

// declaredKernels returns the names of all kernels of a source, in their order, those that macros declare among them.
func declaredKernels(source string) []string {
	source = lineComment.ReplaceAllString(continuedLine.ReplaceAllString(source, " "), "")
	macros := map[string]macro{}
	var text strings.Builder
	for line := range strings.Lines(source) {
		if m := macroHead.FindStringSubmatch(line); m != nil {
			macros[m[1]] = macro{arguments(m[2]), m[3]}
		} else if !strings.HasPrefix(line, "#") {
			text.WriteString(line)
		}
	}
	var names []string
	for _, m := range kernelHead.FindAllStringSubmatch(expand(text.String(), macros), -1) {
		names = append(names, m[1])
	}
	return names
}

// arguments splits a list at its commas. Those of the macros that declare kernels hold no others.
func arguments(list string) []string {
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// expand replaces the uses of macros in a text.
func expand(text string, macros map[string]macro) string {
	var out strings.Builder
	for {
		at := macroUse.FindStringSubmatchIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}
		m, ok := macros[text[at[2]:at[3]]]
		inside, rest, closed := strings.Cut(text[at[1]:], ")")
		if !ok || !closed {
			out.WriteString(text[:at[1]])
			text = text[at[1]:]
			continue
		}
		values := map[string]string{}
		for i, v := range arguments(inside) {
			if i < len(m.params) {
				values[m.params[i]] = v
			}
		}
		body := anyWord.ReplaceAllStringFunc(m.body, func(word string) string {
			if v, ok := values[word]; ok {
				return v
			}
			return word
		})
		out.WriteString(text[:at[0]])
		// Not before now, since joined words are no parameters.
		text = joinedWords.ReplaceAllString(body, "") + " " + rest
	}
}
