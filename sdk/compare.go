package sdk

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// CompareOptions says how two packs are compared. The zero value compares what is in them.
type CompareOptions struct {
	// Tokens is how many greedy tokens of either are compared for each of a few prompts; 0 compares none.
	Tokens int
	// Tolerance is the largest relative difference (rel_l2) at which numbers that the
	// packs keep in different formats count as equal. It does not apply to equal formats.
	Tolerance float64
}

// maxCompareTokens bounds the tokens that a user may ask for.
const maxCompareTokens = 4096

// Comparison is what [Zoo.Compare] has found.
type Comparison struct {
	A ComparedPack `json:"a"`
	B ComparedPack `json:"b"`
	// Equal says that numbers and files are equal, and that the tokens agree as far as
	// they were compared. What the packs were made of, and by what, does not matter.
	Equal bool `json:"equal"`
	// NumbersEqual says that all families are equal, or close where their formats differ.
	NumbersEqual bool `json:"numbers_equal"`
	// FilesEqual says that the files beside the weights are equal, to the byte: they decide
	// what is computed with the numbers, and what text becomes which tokens.
	FilesEqual bool `json:"files_equal"`
	// Facts lists in what the manifests differ apart from weights and constants, by kind and name.
	Facts []Difference `json:"facts"`
	// Families are in the order of the weights of A, then those that only B has, then constants.
	Families []CompareFamily `json:"families"`
	// Prompts is empty if no tokens were compared. TokensProblem says why they could not be.
	Prompts       []ComparePrompt `json:"prompts"`
	TokensProblem string          `json:"tokens_problem,omitempty"`
}

// ComparedPack is one of two packs.
type ComparedPack struct {
	Name      string         `json:"name"`
	Digest    catalog.Digest `json:"digest"`
	SizeBytes int64          `json:"size"`
	Plugin    zoo.PluginID   `json:"plugin"`
}

// Difference is one thing in which two manifests differ.
type Difference struct {
	// What is "plugin", "recipe", "source" or "file", and Name which of them.
	What string `json:"what"`
	Name string `json:"name"`
	// A and B say what either pack has; "" for nothing.
	A string `json:"a"`
	B string `json:"b"`
}

// Compare holds two packs against each other, number by number: their weights family
// by family, where a family is the tensors of all layers with one name, their
// constants, and, if asked, the tokens that they give. The packs are named as for
// [Zoo.Open] and must be there; they need no gate. Packs that differ are no error.
//
// It reads both packs once, twice where they differ, with all processors and some
// megabytes of memory. The figures do not depend on the number of processors. Options
// are those of running, for the tokens.
func (z *Zoo) Compare(ctx context.Context, a, b string, how CompareOptions, opts ...Option) (*Comparison, error) {
	set, err := z.refine(opts)
	if err != nil {
		return nil, err
	}
	if err := set.check(z.backends); err != nil {
		return nil, err
	}
	switch {
	case how.Tokens < 0 || how.Tokens > maxCompareTokens:
		return nil, fault.WithHint(fmt.Errorf("%w: %d tokens to compare are not 0 to %d", fault.ErrUsage, how.Tokens, maxCompareTokens),
			fmt.Sprintf("ask for 1 to %d tokens, or for 0 to run neither pack", maxCompareTokens))
	case !(how.Tolerance >= 0) || math.IsInf(how.Tolerance, 0):
		return nil, fault.WithHint(fmt.Errorf("%w: a tolerance of %g", fault.ErrUsage, how.Tolerance),
			"give 0, for which values must be equal, or a small number such as 0.01")
	}
	var sides [2]subject
	for i, name := range [...]string{a, b} {
		if sides[i], err = z.openCompared(ctx, set, name); err != nil {
			return nil, err
		}
		defer sides[i].pack.Close()
	}
	c := &comparison{zoo: z, set: set, how: how, sides: sides}
	return c.run(ctx)
}

// openCompared opens a verified pack, and finds its plugin if there is one.
func (z *Zoo) openCompared(ctx context.Context, set settings, name string) (s subject, err error) {
	t, err := z.locate(name)
	if err != nil {
		return subject{}, err
	}
	if t.release != nil {
		return subject{}, &zoo.NotInstalledError{Model: t.release.Model}
	}
	s = subject{name: name, record: t.record}
	progress := func(done, total int64) { set.events.Verify("pack", done, total) }
	if t.record != nil {
		if err := z.obeys(t.record); err != nil {
			return subject{}, err
		}
		s.pack, err = z.store.Open(ctx, t.record, progress)
	} else {
		s.pack, err = z.store.OpenDir(ctx, t.dir, progress)
	}
	if err != nil {
		return subject{}, err
	}
	if s.plugin, s.about, err = z.findRunner(ctx, s.record, s.pack.Manifest().Plugin); err != nil {
		s.plugin = nil // numbers can be compared without
	}
	return s, nil
}

// comparison compares two packs.
type comparison struct {
	zoo   *Zoo
	set   settings
	how   CompareOptions
	sides [2]subject
}

// run compares everything.
func (c *comparison) run(ctx context.Context) (*Comparison, error) {
	a, b := c.sides[0], c.sides[1]
	r := &Comparison{A: a.compared(), B: b.compared(), NumbersEqual: true, Prompts: []ComparePrompt{}}
	r.Facts = differences(facts(a.pack.Manifest()), facts(b.pack.Manifest()))
	r.FilesEqual = !slices.ContainsFunc(r.Facts, func(d Difference) bool { return d.What == factFile })
	var err error
	if r.Families, err = c.families(ctx); err != nil {
		return nil, err
	}
	r.Families = append(r.Families, constantFamilies(a.pack.Manifest().Constants, b.pack.Manifest().Constants)...)
	for i := range r.Families {
		f := &r.Families[i]
		f.judge(c.how.Tolerance)
		r.NumbersEqual = r.NumbersEqual && (f.Verdict == VerdictEqual || f.Verdict == VerdictClose)
	}
	r.Equal = r.NumbersEqual && r.FilesEqual
	if c.how.Tokens == 0 {
		return r, nil
	}
	if r.Prompts, r.TokensProblem, err = c.tokens(ctx); err != nil {
		return nil, err
	}
	for _, p := range r.Prompts {
		r.Equal = r.Equal && p.Problem == "" && p.Fork == nil
	}
	return r, nil
}

// compared describes the pack of a subject.
func (s subject) compared() ComparedPack {
	return ComparedPack{Name: s.name, Digest: s.pack.Digest(), SizeBytes: s.pack.SizeBytes(), Plugin: s.pack.Manifest().Plugin}
}

// factFile is what a [Difference] of files beside the weights is called.
const factFile = "file"

// differences lists in what two sets of facts differ, by kind and name.
func differences(a, b map[[2]string]string) []Difference {
	list := []Difference{}
	for key, va := range a {
		if vb := b[key]; va != vb {
			list = append(list, Difference{What: key[0], Name: key[1], A: va, B: vb})
		}
	}
	for key, vb := range b {
		if _, ok := a[key]; !ok {
			list = append(list, Difference{What: key[0], Name: key[1], B: vb})
		}
	}
	slices.SortFunc(list, func(x, y Difference) int {
		return strings.Compare(x.What+"\x00"+x.Name, y.What+"\x00"+y.Name)
	})
	return list
}

// facts lists what a manifest says of other things than weights and constants, by kind and name.
func facts(m *zoo.Manifest) map[[2]string]string {
	all := map[[2]string]string{{"plugin", m.Plugin.Name}: m.Plugin.Version}
	for k, v := range m.Recipe {
		all[[2]string{"recipe", k}] = v
	}
	for _, f := range m.Sources {
		all[[2]string{"source", f.Path}] = f.SHA256
	}
	for _, f := range m.Files {
		if f.Path != zoo.WeightsFile { // its tensors say more
			all[[2]string{factFile, f.Path}] = f.SHA256
		}
	}
	return all
}
