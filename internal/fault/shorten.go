package fault

import "strings"

// maxQuoted is how many bytes of a text from outside an error message quotes.
const maxQuoted = 200

// Shorten cuts a text from outside to a length that fits an error message. Where it is cut
// it ends with an ellipsis, and no character is cut in two.
func Shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}
