package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// Entry is one release as [Zoo.List] shows it.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Title is one line for people, "" when the catalog no longer has the model.
	Title string `json:"title"`
	// Installed says that the release is in the store; the fields up to Time are empty otherwise.
	Installed bool `json:"installed"`
	// Pack is the digest of the pack and PackBytes its size.
	Pack      catalog.Digest `json:"pack,omitempty"`
	PackBytes int64          `json:"pack_bytes,omitempty"`
	// Gate says how the pack stands: "oracle" or "self" for the level of a passed
	// gate, else what is amiss.
	Gate string `json:"gate,omitempty"`
	// Reference says where the values come from that a gate holds the pack against:
	// [FromCatalog], [FromAdoption], or "" for none.
	Reference string `json:"reference,omitempty"`
	// Time is when the release was installed.
	Time *time.Time `json:"installed_at,omitempty"`
	// DownloadBytes is the size of the source files as far as it is known.
	DownloadBytes int64 `json:"download_bytes"`
	// Licence is the SPDX expression of the weights' licence.
	Licence string `json:"licence"`
	// Lock is [LockObeyed] or [LockDiffers] for a model that is in the lock file, else "".
	Lock string `json:"lock,omitempty"`
	// Problem says why this build cannot run the release, or is "".
	Problem string `json:"problem,omitempty"`
}

// How a release stands to what the lock file says of its model.
const (
	// LockObeyed is the release that is locked; if it is installed, its pack is the one that is locked.
	LockObeyed = "locked"
	// LockDiffers is one that is installed and not what is locked.
	LockDiffers = "not as locked"
)

// List returns what is installed, sorted by name and newest version first, and
// then the newest release of every other model in the catalog.
func (z *Zoo) List(ctx context.Context) ([]Entry, error) {
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	if _, err := z.lock(); err != nil {
		return nil, err
	}
	records, err := z.store.Installed(ctx)
	if err != nil {
		return nil, err
	}
	entries := []Entry{}
	have := make(map[string]bool)
	for i := range records {
		have[records[i].Name()] = true
		entries = append(entries, z.entry(ctx, models, &records[i].Release, &records[i]))
	}
	for _, m := range models.Models {
		if have[m.Name] {
			continue
		}
		release, err := z.resolveIn(models, catalog.Ref{Name: m.Name})
		var locked *catalog.LockError
		switch {
		case errors.As(err, &locked):
			entries = append(entries, z.entry(ctx, models, &m.Releases[0], nil))
			entries[len(entries)-1].Problem = err.Error()
			continue
		case err != nil:
			release = &m.Releases[0] // nothing but prereleases
		}
		entries = append(entries, z.entry(ctx, models, release, nil))
	}
	return entries, nil
}

// entry describes a release; record is nil when it is not installed.
func (z *Zoo) entry(ctx context.Context, models *catalog.Catalog, release *catalog.Release, record *zoo.Record) Entry {
	e := Entry{Name: release.Model, Version: release.Version, Licence: release.Licence.SPDX}
	if d := z.referenceDetails(release, record); d != nil {
		e.Reference = d.From
	}
	if m, err := models.Find(release.Model); err == nil {
		e.Title = m.Title
	}
	files := release.Source.Files
	plugin := release.Plugin
	if record != nil {
		files = record.Sources
		plugin = z.runner(record, record.Plugin)
		e.Installed, e.Pack, e.Time = true, record.Pack, &record.Installed
		e.PackBytes, e.Gate = z.standing(ctx, record)
	}
	e.Lock = z.lockOf(e.Name, e.Version, e.Pack)
	for _, f := range files {
		e.DownloadBytes += f.SizeBytes
	}
	if _, err := z.registry.Describe(ctx, plugin); err != nil {
		e.Problem = err.Error()
	}
	return e
}

// madeBy refers to the plugins that run what a plugin has made: those of the same
// major version that are not older.
func madeBy(id zoo.PluginID) catalog.PluginRef {
	return catalog.PluginRef{Name: id.Name, Constraint: "^" + id.Version}
}

// standing returns the size of an installed pack and how it did at its gate.
func (z *Zoo) standing(ctx context.Context, record *zoo.Record) (packBytes int64, verdict string) {
	pack, err := zoo.OpenPack(z.packDir(record.Pack))
	if err != nil {
		return 0, err.Error()
	}
	defer pack.Close()
	_, verdict = z.verdict(ctx, record, pack)
	return pack.SizeBytes(), verdict
}

// verdict returns the receipt of a pack, if it counts, and how it did at its gate; record
// is nil for the folder of a pack.
func (z *Zoo) verdict(ctx context.Context, record *zoo.Record, pack *zoo.Pack) (*zoo.Receipt, string) {
	runner := pack.Manifest().Plugin
	if about, err := z.registry.Describe(ctx, z.runner(record, runner)); err == nil {
		runner = pluginID(about)
	}
	receipt, state, err := z.store.ReadReceipt(pack, runner)
	switch {
	case err != nil:
		return nil, err.Error()
	case state == zoo.ReceiptPassed:
		return receipt, string(receipt.Level)
	}
	return receipt, state.String()
}

// packDir returns the folder of a pack in the store, as package zoo lays it out.
func (z *Zoo) packDir(d catalog.Digest) string {
	return filepath.Join(z.store.Home(), "packs", d.Hex())
}

// checkpointDir returns the folder of a release's source files in the store.
func (z *Zoo) checkpointDir(r *zoo.Record) string {
	return filepath.Join(z.store.Home(), "checkpoints", r.Name(), r.Version())
}

// Details is what [Zoo.Show] knows of a model.
type Details struct {
	// Name is the model's name, or the folder of a pack.
	Name string `json:"name"`
	// Model is nil for the folder of a pack.
	Model *ModelDetails `json:"model,omitempty"`
	// Pack is nil when there is none that can be opened, and PackProblem says why.
	Pack        *PackDetails `json:"pack,omitempty"`
	PackProblem string       `json:"pack_problem,omitempty"`
	// Problem says why the model cannot be run here, or is "", and Hint what to do about it.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// ModelDetails says what a release of a model is.
type ModelDetails struct {
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Aliases     []string `json:"aliases"`
	// Versions are those that the catalog has, newest first.
	Versions []string `json:"versions"`
	// Version is the one described here: the installed one, or else the one that would be.
	Version   string     `json:"version"`
	Installed bool       `json:"installed"`
	Time      *time.Time `json:"installed_at,omitempty"`
	// Licence and LicenceURL are the weights' licence; Gated says that it has to be accepted at the hub.
	Licence    string `json:"licence"`
	LicenceURL string `json:"licence_url"`
	Gated      bool   `json:"gated"`
	// Plugin and Constraint say what converts and runs it.
	Plugin     string `json:"plugin"`
	Constraint string `json:"constraint"`
	// Kind, Repository and Revision say where the source files are from; Commit is
	// the commit that they were of, where that is known.
	Kind       string `json:"kind"`
	Repository string `json:"repository"`
	Revision   string `json:"revision,omitempty"`
	Commit     string `json:"commit,omitempty"`
	// Lock is as in [Entry].
	Lock string `json:"lock,omitempty"`
	// Files are the source files with what is known about them.
	Files []catalog.File `json:"files"`
	// Checkpoint says whether any of them are kept in the store.
	Checkpoint bool `json:"checkpoint"`
	// Reference says what gates hold the pack against; nil stands for nothing but itself.
	Reference *ReferenceDetails `json:"reference,omitempty"`
}

// Where reference values come from.
const (
	FromCatalog  = "catalog"
	FromAdoption = "adopted"
)

// ReferenceDetails says where reference values come from.
type ReferenceDetails struct {
	// From is FromCatalog, FromAdoption, or "" where there is nothing but Unused.
	From string `json:"from"`
	// Time is when they were adopted.
	Time *time.Time `json:"adopted_at,omitempty"`
	// Files are the files with what is known about them.
	Files []catalog.File `json:"files"`
	// Unused says why values that were adopted are not used, or is "".
	Unused string `json:"unused,omitempty"`
}

// PackDetails says what is in a pack.
type PackDetails struct {
	Dir       string         `json:"dir"`
	Digest    catalog.Digest `json:"digest"`
	SizeBytes int64          `json:"size"`
	// Plugin made the pack.
	Plugin zoo.PluginID      `json:"plugin"`
	Recipe map[string]string `json:"recipe,omitempty"`
	// Tensors counts the tensors by their format, most bytes first.
	Tensors []FormatDetails `json:"tensors"`
	// Gate is as in [Entry], and Receipt what the gate measured, if that counts.
	Gate    string       `json:"gate"`
	Receipt *zoo.Receipt `json:"receipt,omitempty"`
	// Layers, Hidden, Vocab and Context are the model's dimensions; 0 when this build cannot run it.
	Layers  int `json:"layers,omitempty"`
	Hidden  int `json:"hidden,omitempty"`
	Vocab   int `json:"vocab,omitempty"`
	Context int `json:"context,omitempty"`
	// Defaults are the settings of generation that it comes with.
	Defaults Defaults `json:"defaults"`
}

// FormatDetails counts the tensors of one format.
type FormatDetails struct {
	Format    string `json:"format"`
	Count     int    `json:"count"`
	SizeBytes int64  `json:"size"`
}

// Show returns what is known of the model or the pack that a name stands for. It
// changes nothing and does not read weights.
func (z *Zoo) Show(ctx context.Context, name string) (*Details, error) {
	t, err := z.locate(name)
	if err != nil {
		return nil, err
	}
	if t.dir != "" {
		d := &Details{Name: t.dir}
		pack, err := zoo.OpenPack(t.dir)
		if err != nil {
			return nil, err
		}
		defer pack.Close()
		return d, z.describe(ctx, d, nil, pack)
	}
	release := t.release
	if t.record != nil {
		release = &t.record.Release
	}
	models, err := z.catalog()
	if err != nil {
		return nil, err
	}
	d := &Details{Name: release.Model, Model: z.modelDetails(models, release, t.record)}
	if t.record == nil {
		if _, err := z.registry.Describe(ctx, release.Plugin); err != nil {
			d.Problem, d.Hint = err.Error(), fault.Hint(err)
		}
		return d, nil
	}
	pack, err := zoo.OpenPack(z.packDir(t.record.Pack))
	if err != nil {
		d.PackProblem = err.Error()
		return d, nil
	}
	defer pack.Close()
	return d, z.describe(ctx, d, t.record, pack)
}

// modelDetails describes a release; record is nil when it is not installed.
func (z *Zoo) modelDetails(models *catalog.Catalog, release *catalog.Release, record *zoo.Record) *ModelDetails {
	d := &ModelDetails{
		Aliases:    []string{},
		Versions:   []string{},
		Version:    release.Version,
		Licence:    release.Licence.SPDX,
		LicenceURL: release.Licence.URL,
		Gated:      release.Gated,
		Plugin:     release.Plugin.Name,
		Constraint: release.Plugin.Constraint,
		Kind:       release.Source.Kind,
		Repository: release.Source.Repository,
		Revision:   release.Source.Revision,
		Files:      release.Source.Files,
		Reference:  z.referenceDetails(release, record),
	}
	if m, err := models.Find(release.Model); err == nil {
		d.Title, d.Description = m.Title, m.Description
		d.Aliases = append(d.Aliases, m.Aliases...)
		for _, r := range m.Releases {
			d.Versions = append(d.Versions, r.Version)
		}
	}
	if record != nil {
		d.Installed, d.Time, d.Commit, d.Files = true, &record.Installed, record.Commit, record.Sources
		d.Checkpoint = z.keepsCheckpoint(record)
		d.Lock = z.lockOf(release.Model, release.Version, record.Pack)
	} else {
		d.Lock = z.lockOf(release.Model, release.Version, "")
	}
	return d
}

// keepsCheckpoint reports whether any source file of an installed version is kept in the store.
func (z *Zoo) keepsCheckpoint(record *zoo.Record) bool {
	dir := z.checkpointDir(record)
	return slices.ContainsFunc(record.Sources, func(f catalog.File) bool {
		_, ok := regularSize(dir, f) // the folder keeps what gates compare with, too
		return ok
	})
}

// referenceDetails describes the reference values of a release; record is nil when it is not installed.
func (z *Zoo) referenceDetails(release *catalog.Release, record *zoo.Record) *ReferenceDetails {
	d := ReferenceDetails{Files: []catalog.File{}}
	if release.Reference != nil {
		d.From, d.Files = FromCatalog, release.Reference.Files
	}
	if record == nil {
		return d.orNil()
	}
	r, err := z.store.Reference(record.Name(), record.Version())
	switch {
	case errors.Is(err, fault.ErrNotFound):
	case err != nil:
		d.Unused = err.Error()
	case !r.Fits(record):
		d.Unused = fmt.Sprintf("those adopted are %s", misfit)
	default:
		d.From, d.Time, d.Files = FromAdoption, &r.Adopted, r.Files
	}
	return d.orNil()
}

// orNil returns nil for details that tell nothing.
func (d ReferenceDetails) orNil() *ReferenceDetails {
	if d.From == "" && d.Unused == "" {
		return nil
	}
	return &d
}

// describe fills in what an open pack tells; record is nil for the folder of a pack. Its
// error is the context's.
func (z *Zoo) describe(ctx context.Context, d *Details, record *zoo.Record, pack *zoo.Pack) error {
	manifest := pack.Manifest()
	p := &PackDetails{
		Dir:       pack.Dir(),
		Digest:    pack.Digest(),
		SizeBytes: pack.SizeBytes(),
		Plugin:    manifest.Plugin,
		Recipe:    manifest.Recipe,
		Tensors:   formats(manifest.Tensors),
	}
	p.Receipt, p.Gate = z.verdict(ctx, record, pack)
	d.Pack = p
	var err error
	if p.Defaults, err = readDefaults(pack); err != nil {
		d.PackProblem = err.Error()
	}
	plugin, _, err := z.findRunner(ctx, record, manifest.Plugin)
	if err != nil {
		d.Problem, d.Hint = err.Error(), fault.Hint(err)
		return context.Cause(ctx)
	}
	run, err := plugin.Run(ctx, zoo.RunRequest{Pack: pack.Info()})
	if err != nil {
		d.Problem, d.Hint = err.Error(), fault.Hint(err)
		return context.Cause(ctx)
	}
	p.dimensions(run)
	return nil
}

// dimensions reads the sizes of a program.
func (d *PackDetails) dimensions(p *program.Program) {
	d.Layers, d.Vocab, d.Context = len(p.Layers), p.Vocab, p.Context
	if h := int(p.Hidden); h >= 0 && h < len(p.Buffers) {
		d.Hidden = p.Buffers[h].Cols
	}
}

// formats counts tensors by format.
func formats(tensors []zoo.Tensor) []FormatDetails {
	list := []FormatDetails{}
	for _, t := range tensors {
		name := t.Format.String()
		i := slices.IndexFunc(list, func(f FormatDetails) bool { return f.Format == name })
		if i < 0 {
			i = len(list)
			list = append(list, FormatDetails{Format: name})
		}
		list[i].Count++
		list[i].SizeBytes += t.Matrix.SizeBytes()
	}
	slices.SortStableFunc(list, func(a, b FormatDetails) int { return cmp.Compare(b.SizeBytes, a.SizeBytes) })
	return list
}

// Remove removes the installed version that a reference stands for: the newest one
// that satisfies it, or one whose record is damaged, with the reference values that
// were adopted for it, or else what a killed removal has left. A pack that another
// model shares stays. It returns the name and the version that are gone.
func (z *Zoo) Remove(ctx context.Context, ref string) (name, version string, err error) {
	t, err := z.locate(ref)
	var damaged *zoo.RecordError
	switch {
	case errors.As(err, &damaged):
		name, version = damaged.Model, damaged.Version
	case err != nil:
		return "", "", err
	case t.release != nil:
		name, version = t.release.Model, t.release.Version
		if _, err := z.store.Reference(name, version); errors.Is(err, fault.ErrNotFound) {
			return "", "", &zoo.NotInstalledError{Model: name}
		}
	default:
		record, err := t.installed()
		if err != nil {
			return "", "", err
		}
		name, version = record.Name(), record.Version()
	}
	return name, version, z.store.Remove(ctx, name, version)
}

// RemoveCheckpoint deletes the source files of an installed version and keeps its pack.
func (z *Zoo) RemoveCheckpoint(ctx context.Context, ref string) (*zoo.Record, error) {
	record, err := z.record(ref)
	if err != nil {
		return nil, err
	}
	lock, err := z.store.Lock(ctx, record.Name(), record.Version(), func() { z.set.events.Waiting(record.Name(), record.Version()) })
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	return record, lock.RemoveCheckpoint()
}

// record returns the installed version that a reference stands for.
func (z *Zoo) record(ref string) (*zoo.Record, error) {
	t, err := z.locate(ref)
	if err != nil {
		return nil, err
	}
	return t.installed()
}

// installed returns the record of an installed version, and an error for all else.
func (t target) installed() (*zoo.Record, error) {
	switch {
	case t.dir != "":
		return nil, fault.WithHint(fmt.Errorf("%w: %q is a folder, not an installed model", zoo.ErrUsage, t.dir),
			"give the name of an installed model, as `zoo list --installed` shows it")
	case t.record == nil:
		return nil, &zoo.NotInstalledError{Model: t.release.Model}
	}
	return t.record, nil
}

// exists reports whether there is a folder.
func exists(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}
