package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// lockCommand returns `zoo lock`.
func (a *app) lockCommand() *cobra.Command {
	var remove []string
	cmd := &cobra.Command{
		Use:   "lock [NAME[@CONSTRAINT]]...",
		Short: "Write down what names stand for, so that they stand for the same everywhere",
		Long: `lock installs models as zoo pull does and writes zoo.lock: of each model its version,
its source files with their digests and the commit they are of, the digest of the
pack, and the version of its plugin, with the digests of the plugin's programs
unless it is built in. Keep the file with your project.

Every command that finds a zoo.lock in the working folder or in one of its parents
obeys it: a name in it stands for exactly what it says, or the command fails (exit
code 4, or 3 for a version or a plugin that is not there). The lock narrows down what
the catalog has, and chooses the commit where the catalog names a branch; names that
are not in it are as without it. zoo rm removes whatever it is told to. --lock names
another file, --no-lock goes without.

The file that is in force is brought up to date, or zoo.lock is made in the working
folder. Without names, the newest versions are locked of all that is in the file; where
there is no file, all that is installed is locked as it is.
` + "`zoo pull`" + ` without a name installs what the file says.`,
		Example: `  zoo lock gemma-4-e2b@^1 demo
  zoo lock                          # take the newest versions
  zoo lock --remove demo
  zoo pull                          # elsewhere: install the very same`,
		GroupID:           groupModels,
		Args:              args(0, -1, "names of models"),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.lock(cmd.Context(), args, remove)
		},
	}
	cmd.Flags().StringArrayVar(&remove, "remove", nil, "model to take out of the lock file; may be repeated")
	return cmd
}

// lock brings the lock file up to date.
func (a *app) lock(ctx context.Context, refs, remove []string) error {
	if a.global.noLock {
		return &usageError{"zoo lock writes a lock file, and --no-lock goes without", "leave out --no-lock"}
	}
	file := a.lockFile()
	if file == "" {
		file = catalog.LockFile
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return zoo.WithHint(fmt.Errorf("%w: no folder %q for the lock file", zoo.ErrNotFound, filepath.Dir(file)), "make it, or name a file in another one with --lock")
	}
	old, err := sdk.ReadLock(file)
	switch {
	case errors.Is(err, zoo.ErrNotFound):
		old = nil
	case err != nil:
		return err
	}
	for _, name := range remove {
		if old.Model(name) == nil {
			return zoo.WithHint(fmt.Errorf("%w: %q has no model %q", zoo.ErrNotFound, file, name), "give its name as it stands there")
		}
	}
	z, err := a.unlocked()
	if err != nil {
		return err
	}
	if len(refs) == 0 && len(remove) == 0 {
		if refs, err = a.toLock(ctx, z, old); err != nil {
			return err
		}
	}
	fresh := &catalog.Lock{}
	for _, ref := range refs {
		had := len(fresh.Models)
		m, err := z.Lock(ctx, fresh, ref)
		a.progress.end()
		if err != nil {
			return err
		}
		if len(fresh.Models) == had {
			return &usageError{fmt.Sprintf("%s is named twice", m.Name), "name a model once, with the version that is to be locked"}
		}
	}
	models := 0
	// Others may have written the file meanwhile: what is new is laid over what it has by now.
	err = z.UpdateLock(ctx, file, func(l *catalog.Lock) error {
		for _, m := range fresh.Models {
			l.Set(m, *fresh.Plugin(m.Plugin.Name, m.Plugin.Version))
		}
		for _, name := range remove {
			l.Remove(name)
		}
		models = len(l.Models)
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range fresh.Models {
		a.note("%s %s@%s: pack %s, plugin %s %s", a.style(styleGood, "locked"), m.Name, m.Version, m.Pack, m.Plugin.Name, m.Plugin.Version)
	}
	a.note("%s has %s", file, countOf(models, "model"))
	return nil
}

// toLock lists what is locked when nothing is named: what the file has, or newer versions
// of it, or else what is installed.
func (a *app) toLock(ctx context.Context, z *sdk.Zoo, old *catalog.Lock) ([]string, error) {
	var refs []string
	if old != nil {
		for _, m := range old.Models {
			refs = append(refs, m.Name+"@>="+m.Version)
		}
		return refs, nil
	}
	entries, err := z.List(ctx)
	if err != nil {
		return nil, err
	}
	models, err := z.Models(ctx)
	if err != nil {
		return nil, err
	}
	last := "" // of each model the newest comes first
	for _, e := range entries {
		if !e.Installed || e.Name == last {
			continue
		}
		last = e.Name
		if !slices.ContainsFunc(models, func(m catalog.Model) bool { return m.Name == e.Name }) {
			a.note("leaving out %s, which is in no catalog here", e.Name)
			continue
		}
		refs = append(refs, e.Name+"@="+e.Version)
	}
	if len(refs) == 0 {
		return nil, &usageError{"no model is installed that could be locked", "name models, such as `zoo lock demo`"}
	}
	return refs, nil
}

// lockedNames returns the models of the lock file that is in force, which installs them
// where no model is named.
func (a *app) lockedNames(z *sdk.Zoo) ([]string, error) {
	l, err := z.Locked()
	if err != nil {
		return nil, err
	}
	if l == nil || len(l.Models) == 0 {
		return nil, &usageError{"zoo pull needs the name of a model", "run `zoo list` to see which there are; without a name what a " + catalog.LockFile + " says is installed, and there is none here, or it is empty"}
	}
	names := make([]string, len(l.Models))
	for i, m := range l.Models {
		names[i] = m.Name
	}
	return names, nil
}
