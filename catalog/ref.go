package catalog

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// maxRefBytes bounds what ParseRef looks at.
const maxRefBytes = 256

// Ref is what a user asks for: a model's name or alias, and the versions that will do.
type Ref struct {
	// Name is in lower case.
	Name string
	// Constraint is a semantic version constraint such as "^1.2" or
	// ">=1.0, <2"; "" takes the newest release that is not a prerelease.
	Constraint string
}

// ParseRef reads "name" or "name@constraint". Letters of the name are folded to
// lower case. Its error is an [*InvalidError].
func ParseRef(s string) (Ref, error) { return parseRef("model reference", "gemma-4-e2b", s) }

// ParsePluginRef reads "name" or "name@constraint" as [ParseRef] does, and calls it a
// reference to a plugin in its errors.
func ParsePluginRef(s string) (PluginRef, error) {
	r, err := parseRef("plugin reference", "gemma3", s)
	return PluginRef(r), err
}

// parseRef is ParseRef of what is called kind, of which example is a name.
func parseRef(kind, example, s string) (Ref, error) {
	if len(s) > maxRefBytes {
		return Ref{}, invalid(kind, s, "it is longer than %d bytes", maxRefBytes)
	}
	name, constraint, versioned := strings.Cut(strings.TrimSpace(s), "@")
	name = strings.ToLower(name)
	if err := ValidateName(name); err != nil {
		return Ref{}, fault.WithHint(fmt.Errorf("%s %q: %w", kind, s, err), fmt.Sprintf("write a name such as %[1]s, or %[1]s@^1 to choose a version", example))
	}
	constraint = strings.TrimSpace(constraint)
	if !versioned {
		return Ref{Name: name}, nil
	}
	if _, err := semver.NewConstraint(constraint); constraint == "" || err != nil {
		return Ref{}, fault.WithHint(invalid(kind, s, "the version constraint %q is not understood", constraint),
			"write a version constraint such as @1.2.0, @^1.2 or '@>=1.0, <2'")
	}
	return Ref{Name: name, Constraint: constraint}, nil
}

// String returns "name" or "name@constraint", which [ParseRef] reads back.
func (r Ref) String() string {
	if r.Constraint == "" {
		return r.Name
	}
	return r.Name + "@" + r.Constraint
}

// String returns "name" or "name@constraint", which [ParsePluginRef] reads back.
func (r PluginRef) String() string { return Ref(r).String() }
