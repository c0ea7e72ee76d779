package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// syntheticDir is the folder of the store with packs of random weights, by model.
const syntheticDir = "synthetic"

// Synthesize returns the folder of a pack with random weights in the shapes of a model
// of the catalog, in the store's folder "synthetic". It writes the pack if it is not
// there, is damaged or was made by another version of the plugin; whoever wants the
// space removes the folder. The pack shows how fast the model would be
// ([Zoo.Bench]) and says nothing; it has no gate to pass.
//
// A model of a plugin that makes none is zoo.ErrUsage, one without a plugin in this
// build zoo.ErrNotFound, and too little space zoo.ErrNoSpace.
func (z *Zoo) Synthesize(ctx context.Context, model string, opts ...Option) (dir string, err error) {
	set, err := z.refine(opts)
	if err != nil {
		return "", err
	}
	release, maker, id, err := z.synthesizer(ctx, model)
	if err != nil {
		return "", err
	}
	s := &synthesis{zoo: z, set: set, maker: maker, id: id, model: release.Model,
		dir: filepath.Join(z.store.Home(), syntheticDir, release.Model)}
	if ok, err := s.whole(ctx); ok || err != nil {
		return s.dir, err
	}
	lock, err := z.store.Lock(ctx, release.Model, release.Version, func() { set.events.Waiting(release.Model, release.Version) })
	if err != nil {
		return "", err
	}
	defer lock.Unlock()
	// Somebody else may have made it meanwhile.
	if ok, err := s.whole(ctx); ok || err != nil {
		return s.dir, err
	}
	stage, err := lock.Stage()
	if err != nil {
		return "", err
	}
	return s.dir, s.write(ctx, stage)
}

// synthesizer returns the release of a model, and the plugin that makes random weights in its shapes.
func (z *Zoo) synthesizer(ctx context.Context, model string) (*catalog.Release, zoo.Synthesizer, zoo.PluginID, error) {
	release, err := z.resolve(model)
	if err != nil {
		return nil, nil, zoo.PluginID{}, err
	}
	plugin, about, err := z.registry.Find(ctx, release.Plugin)
	if err != nil {
		return nil, nil, zoo.PluginID{}, fmt.Errorf("%s: %w", release.Model, err)
	}
	maker, ok := plugin.(zoo.Synthesizer)
	if !ok {
		return nil, nil, zoo.PluginID{}, fmt.Errorf("%w: plugin %q makes no random weights", fault.ErrUsage, about.Name)
	}
	return release, maker, pluginID(about), nil
}

// synthesis makes one pack of random weights.
type synthesis struct {
	zoo   *Zoo
	set   settings
	maker zoo.Synthesizer
	id    zoo.PluginID
	model string
	dir   string
}

// whole reports whether the pack is there, undamaged and what would be written today.
func (s *synthesis) whole(ctx context.Context) (bool, error) {
	pack, err := s.zoo.store.OpenDir(ctx, s.dir, func(done, total int64) { s.set.events.Verify("random weights", done, total) })
	switch {
	case errors.Is(err, fault.ErrNotFound), errors.Is(err, fault.ErrIntegrity):
		return false, nil
	case err != nil:
		return false, err
	}
	m := pack.Manifest()
	return m.Synthetic() && m.Plugin == s.id, pack.Close()
}

// write makes the pack in stage and moves it to its place.
func (s *synthesis) write(ctx context.Context, stage string) error {
	told := false
	err := s.maker.Synthesize(ctx, zoo.SynthesizeRequest{
		Model: s.model,
		Dir:   stage,
		Progress: func(done, total int64) {
			if !told {
				told = true
				s.set.events.Notice(fmt.Sprintf("writing %s of random weights in the shapes of %s, once, to %s; remove that folder to free the space",
					humanize.Bytes(uint64(total)), s.model, s.dir))
			}
			s.set.events.Synthesize(done, total)
		},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o755); err != nil {
		return atomicfile.MapError(s.dir, err)
	}
	// Another version's, or a damaged one.
	if err := os.RemoveAll(s.dir); err != nil {
		return atomicfile.MapError(s.dir, err)
	}
	if err := atomicfile.CommitDir(stage, s.dir, atomicfile.DirOptions{ReadOnly: true}); err != nil {
		return err
	}
	pack, err := s.zoo.store.OpenDir(ctx, s.dir, func(done, total int64) { s.set.events.Verify("random weights", done, total) })
	if err != nil {
		return err
	}
	return pack.Close()
}
