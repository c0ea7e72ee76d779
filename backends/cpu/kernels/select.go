package kernels

import (
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Variants returns the sets that this machine runs, the plain Go one first and the fastest last.
func Variants() []*Set { return append([]*Set{Generic()}, native()...) }

// Best returns the fastest set that this machine runs.
func Best() *Set {
	all := Variants()
	return all[len(all)-1]
}

// Named returns the set of a name, or the fastest for "". The error matches fault.ErrUsage.
func Named(name string) (*Set, error) {
	if name == "" {
		return Best(), nil
	}
	var names []string
	for _, s := range Variants() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return nil, fault.WithHint(fmt.Errorf("%w: this machine runs no kernels %q", fault.ErrUsage, name),
		"choose "+strings.Join(names, " or "))
}
