package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// upperCase is Python's str.upper.
func upperCase(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

// lowerCase is Python's str.lower.
func lowerCase(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// titleCase is the title case of one character.
func titleCase(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Title(language.Und, cases.NoLower).String(s)
}

func foldCase(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

// perChar maps a text one character at a time; f gets the character and the one
// before it, 0 at the start.
func perChar(t text, f func(c, before rune) string) text {
	b := textBuilder{markup: t.markup}
	before := rune(0)
	for s, by := range t.runs() {
		for _, c := range s {
			b.add(f(c, before), by)
			before = c
		}
	}
	return b.text()
}

// capitalized is Python's str.capitalize.
func capitalized(t text) text {
	first := t.offset(min(1, t.length()))
	return concat(t.slice(0, first).mapped(titleCase), t.slice(first, len(t.s)).mapped(lowerCase))
}

// titled is Python's str.title: words start after what is no cased letter.
func titled(t text) text {
	return perChar(t, func(c, before rune) string {
		if isCased(before) {
			return lowerCase(string(c))
		}
		return titleCase(string(c))
	})
}

// isCased reports whether a character has a case, as Python sees it.
func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) || unicode.Is(unicode.Other_Uppercase, c)
}
