package sdk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/download"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// referenceDir is the folder within a checkpoint's folder that keeps what the gate compares with.
const referenceDir = ".reference"

// Installed is what Pull has brought about, or found.
type Installed struct {
	// Record says which release is installed from which files.
	Record zoo.Record
	// Receipt tells how the pack did at its gate.
	Receipt zoo.Receipt
	// PackBytes is the size of the pack.
	PackBytes int64
	// Fresh says that something had to be done.
	Fresh bool
}

// Pull installs the release that a reference ("name" or "name@constraint") stands
// for in the catalog: it fetches the source files, converts them, verifies the pack
// and puts it to its gate. What is there already and sound is not done again, and
// a call that was cut short goes on where it stopped. A second call for the same
// release, in this process or another, waits for the first.
//
// A pack that fails its gate stays installed, so that it can be looked into, but is
// not opened; the error then matches zoo.ErrGateFailed.
func (z *Zoo) Pull(ctx context.Context, ref string) (*Installed, error) {
	release, err := z.resolve(ref)
	if err != nil {
		return nil, err
	}
	return z.pull(ctx, z.set, release)
}

// pull installs a release.
func (z *Zoo) pull(ctx context.Context, set settings, release *catalog.Release) (*Installed, error) {
	plugin, c, err := z.registry.find(ctx, release.Plugin)
	if err != nil {
		return nil, fmt.Errorf("%s@%s: %w", release.Model, release.Version, err)
	}
	about := c.about
	if done, err := z.installed(ctx, set, release, about); done != nil || err != nil {
		return done, err
	}
	set.events.Resolved(*release)
	lock, err := z.store.Lock(ctx, release.Model, release.Version, func() {
		set.events.Waiting(release.Model, release.Version)
	})
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	// Whoever held the lock may have done everything.
	if done, err := z.installed(ctx, set, release, about); done != nil || err != nil {
		return done, err
	}
	p := &puller{z: z, set: set, release: release, plugin: plugin, about: about, program: c.sha256(), lock: lock}
	return p.run(ctx)
}

// installed returns what Pull returns if nothing is left to do, and nil otherwise.
func (z *Zoo) installed(ctx context.Context, set settings, release *catalog.Release, about zoo.Description) (*Installed, error) {
	pack, record, err := z.sound(ctx, set, release, about)
	if pack == nil || err != nil {
		return nil, err
	}
	defer pack.Close()
	receipt, state, err := z.store.ReadReceipt(pack, pluginID(about))
	if err != nil || state != zoo.ReceiptPassed {
		return nil, err
	}
	return &Installed{Record: *record, Receipt: *receipt, PackBytes: pack.SizeBytes()}, nil
}

// sound opens the installed pack of a release. It returns nil if there is none, if
// another version of the plugin made it, or if it is damaged, and so has to be
// made anew.
func (z *Zoo) sound(ctx context.Context, set settings, release *catalog.Release, about zoo.Description) (*zoo.Pack, *zoo.Record, error) {
	record, err := z.store.Record(release.Model, release.Version)
	switch {
	case errors.Is(err, fault.ErrNotFound), errors.Is(err, fault.ErrIntegrity):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case record.Plugin != pluginID(about), release.Pack != "" && release.Pack != record.Pack:
		return nil, nil, nil
	}
	pack, err := z.store.Open(ctx, record, func(done, total int64) { set.events.Verify("pack", done, total) })
	switch {
	case errors.Is(err, fault.ErrIntegrity), errors.Is(err, fault.ErrNotFound):
		set.events.Notice(fmt.Sprintf("the installed pack of %s@%s is damaged and is made anew: %v", release.Model, release.Version, err))
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	return pack, record, nil
}

// pluginID names a plugin by what it says of itself.
func pluginID(d zoo.Description) zoo.PluginID { return zoo.PluginID{Name: d.Name, Version: d.Version} }

// asDefault returns the settings without what decides how a pack is run, for the
// gate that admits it: that one is about how it is opened by default.
func (s settings) asDefault() settings {
	s.cache, s.activations, s.context = "", "", 0
	return s
}

// puller is one pull, with the release's lock held.
type puller struct {
	z       *Zoo
	set     settings
	release *catalog.Release
	plugin  zoo.Plugin
	about   zoo.Description
	program string // its sha256, or ""
	lock    *zoo.Lock
}

// run does what is left to do.
func (p *puller) run(ctx context.Context) (*Installed, error) {
	pack, record, err := p.z.sound(ctx, p.set, p.release, p.about)
	if err != nil {
		return nil, err
	}
	if pack == nil {
		if pack, record, err = p.make(ctx); err != nil {
			return nil, err
		}
	}
	defer pack.Close()
	reference, err := p.z.reference(ctx, p.set, p.lock, record)
	if err != nil {
		return nil, err
	}
	subject := subject{name: p.release.Model, record: record, pack: pack, plugin: p.plugin, about: p.about}
	report, err := p.z.gate(ctx, p.set.asDefault(), subject, GateOptions{Reference: reference, Quick: true})
	if err != nil {
		return nil, err
	}
	if p.set.discard {
		if err := p.lock.RemoveCheckpoint(); err != nil {
			return nil, err
		}
	}
	return &Installed{Record: *record, Receipt: report.Receipt(), PackBytes: pack.SizeBytes(), Fresh: true}, nil
}

// make fetches the checkpoint, converts it and commits the pack.
func (p *puller) make(ctx context.Context) (*zoo.Pack, *zoo.Record, error) {
	dir, err := p.lock.CheckpointDir()
	if err != nil {
		return nil, nil, err
	}
	record, err := p.fetch(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	stage, err := p.lock.Stage()
	if err != nil {
		return nil, nil, err
	}
	_, err = p.plugin.Convert(ctx, zoo.ConvertRequest{
		Checkpoint: dir,
		Sources:    record.Sources,
		Recipe:     p.release.Recipe,
		Dir:        stage,
		Progress:   p.set.events.Convert,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("convert %s@%s: %w", p.release.Model, p.release.Version, err)
	}
	if err := checkMaker(stage, p.about); err != nil {
		return nil, nil, err
	}
	if err := p.z.checkLocked(p.release, stage); err != nil {
		return nil, nil, err
	}
	pack, err := p.lock.Commit(ctx, stage, *record, func(done, total int64) { p.set.events.Verify("new pack", done, total) })
	if err != nil {
		return nil, nil, err
	}
	record, err = p.z.store.Record(p.release.Model, p.release.Version)
	if err != nil {
		_ = pack.Close()
		return nil, nil, err
	}
	return pack, record, nil
}

// fetch brings the source files into dir, in as many rounds as the plugin asks
// for, and returns the record that binds them.
func (p *puller) fetch(ctx context.Context, dir string) (*zoo.Record, error) {
	origins, err := p.set.origins()
	if err != nil {
		return nil, err
	}
	listed, err := p.z.listed(p.release)
	if err != nil {
		return nil, err
	}
	// What is locked stays with the lock: the record is for those without it, too.
	record := &zoo.Record{Release: *listed, Program: p.program}
	source := p.release.Source
	record.Locked = source.Revision != listed.Source.Revision
	known := make(map[string]catalog.File)
	// What an earlier pull of the release has seen binds this one, and a lock as well.
	if old, err := p.z.store.Record(p.release.Model, p.release.Version); err == nil && sameSource(old.Release.Source, listed.Source) {
		for _, f := range old.Sources {
			known[f.Path] = f
		}
		for _, f := range source.Files {
			if k, ok := known[f.Path]; ok && f.SHA256 != "" && f.SHA256 != k.SHA256 {
				return nil, &zoo.SourceChangedError{Model: p.release.Model, Version: p.release.Version, File: f.Path, Want: k.SHA256, Got: f.SHA256}
			}
		}
		if old.Commit != "" && !record.Locked {
			source.Revision = old.Commit
		}
		if old.Commit == source.Revision {
			record.Locked = old.Locked
		}
	}
	asked := make(map[string]bool)
	for {
		plan, err := p.plugin.Fetch(ctx, zoo.FetchRequest{Release: *p.release, Dir: dir})
		if err != nil {
			return nil, fmt.Errorf("%s@%s: files to fetch: %w", p.release.Model, p.release.Version, err)
		}
		if err := catalog.ValidateFiles(plan.Files); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", p.about.Name, err)
		}
		var wanted []catalog.File
		for _, f := range plan.Files {
			if asked[f.Path] {
				continue
			}
			asked[f.Path] = true
			wanted = append(wanted, bind(f, known[f.Path]))
		}
		if len(wanted) == 0 {
			break
		}
		got, err := download.Fetch(ctx, download.Request{
			Source:   source,
			Files:    wanted,
			Origins:  origins,
			Dir:      dir,
			Progress: p.set.events.Download,
			Logger:   p.set.logger,
		})
		if err != nil {
			return nil, err
		}
		record.Sources = append(record.Sources, got.Files...)
		if !source.Pinned() && catalog.IsCommit(got.Revision) {
			source.Revision = got.Revision // all rounds are of one commit
		}
	}
	if source.Kind == catalog.KindHub && catalog.IsCommit(source.Revision) {
		record.Commit = source.Revision
	}
	slices.SortFunc(record.Sources, func(a, b catalog.File) int { return strings.Compare(a.Path, b.Path) })
	return record, nil
}

// sameSource reports whether two sources are the same repository at the same revision.
func sameSource(a, b catalog.Source) bool {
	return a.Kind == b.Kind && a.Repository == b.Repository && a.Revision == b.Revision
}

// bind fills in what is known about a file where the catalog or the plugin is silent.
func bind(f, known catalog.File) catalog.File {
	if f.SHA256 == "" && (f.SizeBytes == 0 || f.SizeBytes == known.SizeBytes) {
		f.SHA256, f.SizeBytes = known.SHA256, known.SizeBytes
	}
	return f
}

// reference returns the folder of the reference values that the pack of a record is
// held against, or "" if there are none: the adopted ones, or the published ones,
// which are brought beside the checkpoint. The lock is the release's.
func (z *Zoo) reference(ctx context.Context, set settings, lock *zoo.Lock, record *zoo.Record) (string, error) {
	adopted, err := z.adopted(set, record)
	if err != nil {
		return "", err
	}
	if adopted != nil {
		return z.store.VerifyReference(ctx, adopted)
	}
	return z.publishedReference(ctx, set, lock, record)
}

// publishedReference is reference without what was adopted.
func (z *Zoo) publishedReference(ctx context.Context, set settings, lock *zoo.Lock, record *zoo.Record) (string, error) {
	if record.Release.Reference == nil {
		return "", nil
	}
	dir, err := lock.CheckpointDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, referenceDir)
	return dir, z.fetchSource(ctx, set, *record.Release.Reference, dir)
}

// fetchSource brings the files of a source into dir.
func (z *Zoo) fetchSource(ctx context.Context, set settings, source catalog.Source, dir string) error {
	origins, err := set.origins()
	if err != nil {
		return err
	}
	_, err = download.Fetch(ctx, download.Request{
		Source:   source,
		Origins:  origins,
		Dir:      dir,
		Progress: set.events.Download,
		Logger:   set.logger,
	})
	return err
}
