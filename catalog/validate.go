package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// InvalidError reports a name, path or other value that breaks its rules. It
// matches fault.ErrUsage.
type InvalidError struct {
	// What is the kind of value, such as "path".
	What string
	// Value is the value, shortened if it is long.
	Value string
	// Reason says which rule it breaks.
	Reason string
}

// Error gives the value and the reason.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.What, e.Value, e.Reason)
}

// Is reports whether target is fault.ErrUsage.
func (e *InvalidError) Is(target error) bool { return target == fault.ErrUsage }

// invalid makes an InvalidError.
func invalid(what, value, format string, args ...any) error {
	return &InvalidError{What: what, Value: fault.Shorten(value), Reason: fmt.Sprintf(format, args...)}
}

// Limits on strings that come from a catalog.
const (
	maxNameBytes     = 64
	maxPathBytes     = 200
	maxElementBytes  = 100
	maxRevisionBytes = 128
)

// ValidateName checks a model's name or alias: lower-case letters, digits, and
// '.', '-' or '_' between them, at most 64 bytes. Its error is an [*InvalidError].
func ValidateName(name string) error {
	switch {
	case name == "":
		return invalid("name", name, "it is empty")
	case len(name) > maxNameBytes:
		return invalid("name", name, "it is longer than %d bytes", maxNameBytes)
	}
	for i := range len(name) {
		if c := name[i]; !isLower(c) && !isDigit(c) && (!strings.ContainsRune("._-", rune(c)) || i == 0 || i == len(name)-1) {
			return invalid("name", name, "it has %q where only a-z, 0-9 and inner '.', '-', '_' may stand", name[i:i+1])
		}
	}
	return nil
}

// ValidatePath checks a file's path within a repository: relative, separated by
// single slashes, ASCII letters, digits and "._-+=@" only, no element "." or ".."
// or ending in a dot, none that Windows takes for a device, at most 200 bytes.
// Names ending in ".part" or ".part.json" belong to unfinished downloads and are
// refused. Such a path means the same file on every system. Its error is
// an [*InvalidError].
func ValidatePath(path string) error {
	if path == "" || len(path) > maxPathBytes {
		return invalid("path", path, "it must have 1 to %d bytes", maxPathBytes)
	}
	for element := range strings.SplitSeq(path, "/") {
		if why := badElement(element); why != "" {
			return invalid("path", path, "%s", why)
		}
	}
	if folded := strings.ToLower(path); strings.HasSuffix(folded, ".part") || strings.HasSuffix(folded, ".part.json") {
		return invalid("path", path, "it ends like an unfinished download")
	}
	return nil
}

// ValidateRepository checks a hub's repository: "owner/name", each of 1 to 96
// ASCII letters, digits, '.', '-' and '_'. Its error is an [*InvalidError].
func ValidateRepository(repository string) error {
	owner, name, ok := strings.Cut(repository, "/")
	if !ok || !repositoryPart(owner) || !repositoryPart(name) {
		return invalid("repository", repository, "it is not of the form owner/name")
	}
	return nil
}

// ValidateRevision checks a commit, tag or branch name: ASCII letters, digits and
// "._-/", no empty, "." or ".." element, at most 128 bytes. Its error is
// an [*InvalidError].
func ValidateRevision(revision string) error {
	if revision == "" || len(revision) > maxRevisionBytes {
		return invalid("revision", revision, "it must have 1 to %d bytes", maxRevisionBytes)
	}
	for element := range strings.SplitSeq(revision, "/") {
		if why := badElement(element); why != "" {
			return invalid("revision", revision, "%s", why)
		}
	}
	return nil
}

// badElement says what is wrong with one element of a path, or returns "".
func badElement(element string) string {
	switch {
	case element == "":
		return "it has an empty element"
	case len(element) > maxElementBytes:
		return fmt.Sprintf("an element is longer than %d bytes", maxElementBytes)
	case strings.HasSuffix(element, "."):
		return "an element ends in a dot"
	}
	for i := range len(element) {
		if !isPathByte(element[i]) {
			return fmt.Sprintf("%q is not allowed", element[i:i+1])
		}
	}
	stem, _, _ := strings.Cut(strings.ToLower(element), ".")
	if slices.Contains([]string{"con", "prn", "aux", "nul"}, stem) ||
		len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt") && isDigit(stem[3]) {
		return fmt.Sprintf("%q is a device on windows", element)
	}
	return ""
}

// repositoryPart reports whether s can be an owner or a name.
func repositoryPart(s string) bool {
	if s == "" || len(s) > 96 || strings.Trim(s, ".-") != s || strings.Contains(s, "..") {
		return false
	}
	for i := range len(s) {
		if !isPathByte(s[i]) || strings.IndexByte("+=@", s[i]) >= 0 {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isPathByte(c byte) bool {
	return isLower(c) || isDigit(c) || c >= 'A' && c <= 'Z' || strings.IndexByte("._-+=@", c) >= 0
}
