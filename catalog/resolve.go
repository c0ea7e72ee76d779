package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/agnivade/levenshtein"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// maxSuggestions bounds the names that an [*UnknownModelError] offers.
const maxSuggestions = 3

// UnknownModelError reports a name that no model of the catalog has. It matches
// fault.ErrNotFound.
type UnknownModelError struct {
	Name string
	// Suggestions are the names of the most similar models, best first, at most
	// three, perhaps none.
	Suggestions []string
}

// Error gives the name.
func (e *UnknownModelError) Error() string { return fmt.Sprintf("no model is named %q", e.Name) }

// Is reports whether target is fault.ErrNotFound.
func (e *UnknownModelError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint offers the similar names.
func (e *UnknownModelError) Hint() string {
	switch n := len(e.Suggestions); n {
	case 0:
		return "run `zoo list` to see which models there are"
	case 1:
		return "did you mean " + e.Suggestions[0] + "?"
	default:
		return "did you mean " + strings.Join(e.Suggestions[:n-1], ", ") + " or " + e.Suggestions[n-1] + "?"
	}
}

// NoVersionError reports that a model has no release that satisfies a constraint.
// It matches fault.ErrNotFound.
type NoVersionError struct {
	Name string
	// Constraint is "" when any release would have done, but all are prereleases.
	Constraint string
	// Have lists the model's versions, newest first.
	Have []string
}

// Error gives the model and the constraint.
func (e *NoVersionError) Error() string {
	if e.Constraint == "" {
		return fmt.Sprintf("model %q has only prereleases", e.Name)
	}
	return fmt.Sprintf("no version of model %q satisfies %q", e.Name, e.Constraint)
}

// Is reports whether target is fault.ErrNotFound.
func (e *NoVersionError) Is(target error) bool { return target == fault.ErrNotFound }

// Hint lists the versions that there are.
func (e *NoVersionError) Hint() string {
	if len(e.Have) == 0 {
		return "the catalog has no version of it"
	}
	const most = 8
	have := strings.Join(e.Have[:min(len(e.Have), most)], ", ")
	if len(e.Have) > most {
		have += ", …"
	}
	return fmt.Sprintf("ask for one of these: %s (for example %s@%s)", have, e.Name, e.Have[0])
}

// Find returns the model with a name or alias, or an [*UnknownModelError]. The model
// must not be modified.
func (c *Catalog) Find(name string) (*Model, error) {
	for i := range c.Models {
		if m := &c.Models[i]; m.Name == name || slices.Contains(m.Aliases, name) {
			return m, nil
		}
	}
	return nil, &UnknownModelError{Name: name, Suggestions: c.suggest(name)}
}

// Resolve returns the newest release of the named model that satisfies the
// reference's constraint. Prereleases count only when the constraint itself names
// one ("^1.3.0-0"). The release is a copy that belongs to the caller. Errors are
// [*UnknownModelError], [*NoVersionError], and [*InvalidError] for a constraint that is
// not understood.
func (c *Catalog) Resolve(ref Ref) (*Release, error) {
	m, err := c.Find(ref.Name)
	if err != nil {
		return nil, err
	}
	text := ref.Constraint
	if text == "" {
		text = "*"
	}
	constraint, err := semver.NewConstraint(text)
	if err != nil {
		return nil, invalid("version constraint", ref.Constraint, "it is not understood")
	}
	none := &NoVersionError{Name: m.Name, Constraint: ref.Constraint}
	for i := range m.Releases {
		v, err := semver.StrictNewVersion(m.Releases[i].Version)
		if err != nil {
			return nil, &SchemaError{Where: fmt.Sprintf("model %q", m.Name), Err: err}
		}
		if constraint.Check(v) {
			return m.Releases[i].clone(), nil
		}
		none.Have = append(none.Have, m.Releases[i].Version)
	}
	return nil, none
}

// suggest returns the names of the models most similar to name: those that have it
// as a part first, then by edit distance, aliases included.
func (c *Catalog) suggest(name string) []string {
	type candidate struct {
		name     string
		distance int
	}
	// A third of the letters may be wrong, and two in a short name.
	most := max(2, len(name)/3)
	var found []candidate
	for _, m := range c.Models {
		best := most + 1
		for _, n := range slices.Concat([]string{m.Name}, m.Aliases) {
			d := levenshtein.ComputeDistance(name, n)
			if len(name) >= 3 && strings.Contains(n, name) {
				d = min(d, 1)
			}
			best = min(best, d)
		}
		if best <= most {
			found = append(found, candidate{m.Name, best})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, f := range found[:min(len(found), maxSuggestions)] {
		names = append(names, f.name)
	}
	return names
}
