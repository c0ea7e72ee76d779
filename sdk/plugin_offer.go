package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// advise adds to an error about a missing plugin how to get it from the catalog.
func (r *roster) advise(ref catalog.PluginRef, err error) error {
	var missing *zoo.MissingPluginError
	if !errors.As(err, &missing) {
		return err
	}
	models, cerr := r.catalog()
	if cerr != nil {
		return err
	}
	lock, lerr := r.lock()
	if version := lock.PluginVersion(ref.Name); lerr == nil && ref.Constraint == "="+version && len(missing.Have) > 0 {
		err = fault.WithHint(err, fmt.Sprintf("the lock file names that version, and there is %s: lock the models anew with `zoo lock`, or go without the lock file with --no-lock", strings.Join(missing.Have, ", ")))
	}
	offered, _, oerr := offer(models, ref)
	var useless *UnfitPluginError
	var elsewhere *catalog.PlatformError
	var unsigned *UnsignedPluginError
	switch {
	case oerr == nil:
		name := ref.Name
		if newest, _, err := offer(models, catalog.PluginRef{Name: ref.Name}); err != nil || newest.Version != offered.Version {
			name += "@" + offered.Version
		}
		return fault.WithHint(err, "run "+r.command("plugin", "install", name))
	case errors.As(oerr, &useless), errors.As(oerr, &elsewhere), errors.As(oerr, &unsigned):
		return fault.WithHint(err, fmt.Sprintf("the catalog has it, but %v: %s", oerr, fault.Hint(oerr)))
	}
	return err
}

// command spells out a command of zoo for a hint, with the flags that it needs beside its
// arguments.
func (r *roster) command(words ...string) string {
	line := []string{"zoo"}
	for _, w := range slices.Concat(words, r.flags) {
		if strings.ContainsAny(w, " \t*?<>|&;()$'\"\\#") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		line = append(line, w)
	}
	return "`" + strings.Join(line, " ") + "`"
}

// remake adds to an error about a missing plugin that another one makes the pack of an
// installed model anew, if that is so.
func (z *Zoo) remake(ctx context.Context, record *zoo.Record, err error) error {
	var missing *zoo.MissingPluginError
	if record == nil || !errors.As(err, &missing) {
		return err
	}
	if l, lerr := z.lock(); lerr != nil || l.Model(record.Name()) != nil {
		return err // it is made by the plugin that is locked
	}
	list, lerr := z.registry.candidates(ctx)
	if lerr != nil {
		return err
	}
	c, cerr := choose(list, record.Release.Plugin, anyCandidate)
	if cerr != nil {
		return err
	}
	hint := fmt.Sprintf("run %s to have its pack made anew by %s", z.pulling(record.Name()), c.about.Version)
	if models, cerr := z.catalog(); cerr == nil {
		if _, _, oerr := offer(models, catalog.PluginRef{Name: missing.Name, Constraint: missing.Constraint}); oerr == nil {
			hint = fault.Hint(err) + ", or " + hint
		}
	}
	return fault.WithHint(err, hint)
}

// pulling spells out the command that pulls a model, and what it needs.
func (z *Zoo) pulling(model string) string {
	line := z.registry.command("pull", model)
	if models, err := z.catalog(); err == nil {
		if _, err := models.Find(model); err != nil {
			line += " with the catalog that it is from (--catalog)"
		}
	}
	return line
}

// findRunner finds the plugin that runs the pack that a plugin has made, as [Zoo.runner]
// refers to it. The record is nil for the folder of a pack.
func (z *Zoo) findRunner(ctx context.Context, record *zoo.Record, made zoo.PluginID) (zoo.Plugin, zoo.Description, error) {
	p, about, err := z.registry.Find(ctx, z.runner(record, made))
	return p, about, z.remake(ctx, record, err)
}

// offer returns the newest version of a plugin of the catalog that satisfies the
// constraint and that this host can use, and its program. Errors match zoo.ErrNotFound,
// zoo.ErrUsage for a constraint that is not understood, or are an [*UnsignedPluginError]
// where there is such a version.
func offer(models *catalog.Catalog, ref catalog.PluginRef) (catalog.PluginVersion, catalog.Binary, error) {
	var none catalog.PluginVersion
	p := models.FindPlugin(ref.Name)
	if p == nil {
		return none, catalog.Binary{}, fault.WithHint(fmt.Errorf("%w: the catalog has no plugin %q", fault.ErrNotFound, ref.Name),
			"`zoo plugin list` shows those of the catalog; one that you have as a file is installed with --from FILE")
	}
	var have []string
	for _, v := range p.Versions {
		have = append(have, v.Version)
	}
	satisfied, err := satisfies(ref, have)
	if err != nil {
		return none, catalog.Binary{}, err
	}
	var first error
	for _, v := range p.Versions {
		version, err := semver.StrictNewVersion(v.Version)
		if err != nil {
			return none, catalog.Binary{}, err
		}
		if !satisfied(version) {
			continue
		}
		err = unfit(zoo.PluginID{Name: p.Name, Version: v.Version}, runtime.GOOS, runtime.GOARCH, v.Protocol, v.Operations)
		if err == nil {
			binary, berr := v.Binary(p.Name)
			switch {
			case berr == nil && !p.Signed:
				return none, catalog.Binary{}, &UnsignedPluginError{Plugin: zoo.PluginID{Name: p.Name, Version: v.Version}}
			case berr == nil:
				return v, binary, nil
			}
			err = berr
		}
		first = cmp.Or(first, err)
	}
	if first == nil {
		first = fault.WithHint(fmt.Errorf("%w: no version of plugin %q in the catalog satisfies %q", fault.ErrNotFound, ref.Name, cmp.Or(ref.Constraint, "*")),
			"ask for one of these: "+strings.Join(have, ", "))
	}
	return none, catalog.Binary{}, first
}
