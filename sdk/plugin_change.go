package sdk

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// PluginChange says what the installation or the removal of a plugin has brought about.
type PluginChange struct {
	// Plugin is the plugin: as [Zoo.Plugins] shows it once it is installed, or did before
	// it was removed. What was only fetched has nothing but name and version.
	Plugin PluginEntry
	// Fresh says that something was done: it is false where the plugin was installed already.
	Fresh bool
	// Moves are the models that are run with another plugin than before, sorted by name.
	Moves []PluginMove
	// Stale are the models whose packs were made by another program that was installed as
	// the same version, so that nothing tells them apart from what the one that is there now
	// makes. They stay as they are until the model is removed and pulled.
	Stale []string
}

// PluginMove is a model that is run with another plugin than before.
type PluginMove struct {
	// Model is its name.
	Model string
	// Before and After are the plugins, whose Version is "" where there is none.
	Before, After PluginUse
	// Problem says why the model, which is installed, cannot be run before something is
	// done, and Hint what; both are "" for other models.
	Problem, Hint string
}

// PluginUse is a plugin that is taken for a model.
type PluginUse struct {
	Version string
	// Origin is [PluginBuiltIn] or [PluginInstalled].
	Origin string
}

// observation is what models were run with before a change.
type observation struct {
	z      *Zoo
	models *catalog.Catalog
	list   []candidate
}

// observe looks at the plugins. What is installed can be changed without a catalog, which
// then is taken for empty.
func (z *Zoo) observe(ctx context.Context) (*observation, error) {
	models, err := z.catalog()
	if err != nil {
		z.set.logger.Warn("cannot tell what changes for the models of the catalog", "err", err)
		models = &catalog.Catalog{}
	}
	list, err := z.registry.candidates(ctx)
	return &observation{z, models, list}, err
}

// installed returns what the installation of a plugin has changed; sound is the plugin if
// it was there already, or nil.
func (o *observation) installed(ctx context.Context, p, sound *zoo.StoredPlugin) (*PluginChange, error) {
	change := &PluginChange{Fresh: sound == nil}
	after, uses, err := o.look(ctx, change)
	if err != nil {
		return nil, fmt.Errorf("plugin %s %s is installed, but not what follows from it known: %w", p.Name, p.Version, err)
	}
	i := slices.IndexFunc(after, func(c candidate) bool { return c.stored != nil && c.stored.ID() == p.ID() })
	if i < 0 {
		return nil, fault.WithHint(fmt.Errorf("%w: plugin %s %s was removed while it was installed", fault.ErrNotFound, p.Name, p.Version), "install it again")
	}
	change.Plugin = entryOf(after, &after[i], usersOf(uses, after, &after[i]))
	if o.replaced(p) {
		for _, u := range uses {
			if u.record != nil && u.record.Plugin == p.ID() && !slices.Contains(change.Stale, u.model) {
				change.Stale = append(change.Stale, u.model)
			}
		}
	}
	return change, nil
}

// replaced reports whether another program was installed as the same version.
func (o *observation) replaced(p *zoo.StoredPlugin) bool {
	return slices.ContainsFunc(o.list, func(c candidate) bool {
		return c.stored != nil && c.stored.ID() == p.ID() && c.sha256() != "" && c.sha256() != p.SHA256
	})
}

// removed returns what the removal of a plugin has changed.
func (o *observation) removed(ctx context.Context, found *candidate) (*PluginChange, error) {
	change := &PluginChange{Fresh: true}
	_, uses, err := o.look(ctx, change)
	if err != nil {
		return nil, fmt.Errorf("plugin %s is removed, but not what follows from it known: %w", found, err)
	}
	change.Plugin = PluginEntry{Name: found.about.Name, Version: found.about.Version, Models: []string{}}
	for i := range o.list {
		if c := &o.list[i]; found.stored != nil && c.stored == found.stored {
			change.Plugin = entryOf(o.list, c, usersOf(uses, o.list, c))
		}
	}
	return change, nil
}

// look lists the plugins and the models once more, and notes which models have moved.
func (o *observation) look(ctx context.Context, change *PluginChange) ([]candidate, []use, error) {
	after, err := o.z.registry.candidates(ctx)
	if err != nil {
		return nil, nil, err
	}
	uses, err := o.z.uses(ctx, o.models)
	if err != nil {
		return nil, nil, err
	}
	for _, u := range uses {
		installed := slices.ContainsFunc(uses, func(o use) bool { return o.model == u.model && o.record != nil })
		if u.record == nil && installed {
			continue // what is installed is what is run
		}
		was, _ := choose(o.list, u.plugin, anyCandidate)
		is, missing := choose(after, u.plugin, anyCandidate)
		move := PluginMove{Model: u.model, Before: used(was), After: used(is)}
		if move.Before == move.After {
			continue
		}
		move.Problem, move.Hint = o.z.obstacleTo(ctx, u, is, missing)
		change.Moves = append(change.Moves, move)
	}
	slices.SortStableFunc(change.Moves, func(a, b PluginMove) int { return cmp.Compare(a.Model, b.Model) })
	return after, uses, context.Cause(ctx)
}

// used describes a candidate, or none.
func used(c *candidate) PluginUse {
	if c == nil {
		return PluginUse{}
	}
	return PluginUse{Version: c.about.Version, Origin: originOf(c)}
}

// obstacleTo says why an installed model cannot be run with a plugin, or without one for
// the reason given, and what to do about it.
func (z *Zoo) obstacleTo(ctx context.Context, u use, c *candidate, missing error) (problem, hint string) {
	if u.record == nil {
		return "", ""
	}
	if c == nil {
		err := z.remake(ctx, u.record, z.registry.advise(u.plugin, missing))
		return err.Error(), fault.Hint(err)
	}
	pack, err := zoo.OpenPack(z.packDir(u.record.Pack))
	if err != nil {
		return err.Error(), fault.Hint(err)
	}
	defer pack.Close()
	if _, state, err := z.store.ReadReceipt(pack, pluginID(c.about)); err == nil && state == zoo.ReceiptPassed {
		return "", ""
	}
	maker := ""
	if made := u.record.Plugin.Version; made != c.about.Version {
		maker = fmt.Sprintf(", which %s has made,", made)
	}
	return fmt.Sprintf("its pack%s has not passed its gate with %s", maker, c.about.Version),
		fmt.Sprintf("run %s, or %s to have it made anew", z.registry.command("gate", u.model), z.pulling(u.model))
}
