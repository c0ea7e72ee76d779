package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// AdoptionError reports reference values that were not adopted, since the pack does
// not meet them. It matches zoo.ErrGateFailed.
type AdoptionError struct {
	// Model is the model's name, and Dir the folder with the values.
	Model, Dir string
	// Err is the gate's verdict.
	Err error
}

// Error says that nothing was adopted, and why.
func (e *AdoptionError) Error() string {
	return fmt.Sprintf("the reference values in %q are not adopted: %v", e.Dir, e.Err)
}

// Unwrap returns the gate's verdict.
func (e *AdoptionError) Unwrap() error { return e.Err }

// Hint says how to look into it.
func (e *AdoptionError) Hint() string {
	return fmt.Sprintf("see every figure with `zoo gate %[1]s --reference %[2]q --report FILE.html` (a failed gate keeps the model from opening until `zoo gate %[1]s` passes); "+
		"values meet a pack of the same weights on the same grid only", e.Model, e.Dir)
}

// AdoptReference makes the values in a folder (golden.json, golden.safetensors and
// perhaps questions.jsonl) the reference of an installed model: it copies them into
// the store, gates the pack against the copy, and keeps it if the pack passes. From
// then on gates of that release are held against them in place of those that the
// catalog has, if any, as long as the pack is made from the same source files to the
// same recipe.
//
// When the pack does not pass, the report and an [*AdoptionError] are returned, and
// what was adopted before, and the receipt, stay as they are. A pack is gated as it
// is opened by default; options for another cache or other activations are
// zoo.ErrUsage.
func (z *Zoo) AdoptReference(ctx context.Context, name, dir string, opts ...Option) (*GateReport, error) {
	if err := checkReferenceDir(dir); err != nil {
		return nil, err
	}
	set, s, lock, err := z.lockInstalled(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	defer s.pack.Close()
	stage, files, err := lock.StageReference(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := checkOrigin(stage, s.record); err != nil {
		return nil, err
	}
	g, err := z.usualGating(ctx, set, s, stage)
	if err != nil {
		return nil, err
	}
	if len(g.request.Reference.Runs) == 0 {
		return nil, fmt.Errorf("%w: there is no reference run in %q", fault.ErrIntegrity, dir)
	}
	report, err := g.run(ctx, set.events, s.name)
	if errors.Is(err, fault.ErrGateFailed) {
		err = &AdoptionError{Model: s.name, Dir: dir, Err: err}
	}
	if err != nil {
		return report, err
	}
	// The values and their receipt belong together.
	ctx = context.WithoutCancel(ctx)
	err = lock.CommitReference(ctx, stage, zoo.AdoptedReference{
		Model:   s.record.Name(),
		Version: s.record.Version(),
		Sources: s.record.Sources,
		Recipe:  s.record.Release.Recipe,
		Files:   files,
	})
	if err != nil {
		return report, err
	}
	return report, z.writeReceipt(ctx, s, report)
}

// ForgetReference removes the reference values that were adopted for an installed
// model and gates its pack anew, against those that the catalog has or else against
// itself. The report is nil unless they are gone: they stay when the gate cannot be
// finished, but not when the pack fails it. Where none were adopted, the error matches
// zoo.ErrNotFound.
func (z *Zoo) ForgetReference(ctx context.Context, name string, opts ...Option) (*GateReport, error) {
	set, s, lock, err := z.lockInstalled(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	defer s.pack.Close()
	if _, err := z.store.Reference(s.record.Name(), s.record.Version()); errors.Is(err, fault.ErrNotFound) {
		return nil, err
	}
	dir, err := z.publishedReference(ctx, set, lock, s.record)
	if err != nil {
		return nil, err
	}
	g, err := z.usualGating(ctx, set, s, dir)
	if err != nil {
		return nil, err
	}
	report, err := g.run(ctx, set.events, s.name)
	if report == nil {
		return nil, err
	}
	// The receipt goes first: a process that is killed in between leaves values without
	// a receipt, which the next gate makes, and not a receipt without its values.
	if werr := z.writeReceipt(context.WithoutCancel(ctx), s, report); werr != nil {
		return nil, errors.Join(err, werr)
	}
	if rerr := lock.RemoveReference(); rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	return report, err
}

// lockInstalled takes the lock of an installed model and opens its pack.
func (z *Zoo) lockInstalled(ctx context.Context, name string, opts []Option) (set settings, s subject, lock *zoo.Lock, err error) {
	if set, err = z.refine(opts); err != nil {
		return set, s, nil, err
	}
	if err := set.check(z.backends); err != nil {
		return set, s, nil, err
	}
	z.passedOver(set)
	t, err := z.locate(name)
	if err != nil {
		return set, s, nil, err
	}
	record, err := t.installed()
	if t.dir != "" {
		err = fault.WithHint(err, fmt.Sprintf("values are adopted for an installed model (`zoo list --installed`); hold a folder against some with `zoo gate %s --reference DIR`", t.dir))
	}
	if err != nil {
		return set, s, nil, err
	}
	s, lock, err = z.openLocked(ctx, set, name, record)
	return set, s, lock, err
}

// usualGating prepares the gate that admits a pack, and refuses settings with which
// it would be another.
func (z *Zoo) usualGating(ctx context.Context, set settings, s subject, reference string) (*gating, error) {
	g, err := z.gating(ctx, set, s, GateOptions{Reference: reference})
	if err != nil {
		return nil, err
	}
	if o := g.request.Options; !g.usual {
		return nil, fault.WithHint(fmt.Errorf("%w: a reference is for how %s is opened by default, not with %s activations and a %s cache", fault.ErrUsage, s.name, o.Activations, o.Cache),
			"choose neither activations nor a cache, on the command line, in the environment or in the configuration file")
	}
	return g, nil
}

// adopted returns the reference values that were adopted for an installed release, or
// nil. Values of other source files or of another recipe are passed over with a notice.
func (z *Zoo) adopted(set settings, record *zoo.Record) (*zoo.AdoptedReference, error) {
	r, err := z.store.Reference(record.Name(), record.Version())
	if errors.Is(err, fault.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !r.Fits(record) {
		set.events.Notice(fmt.Sprintf("the reference values that were adopted for %s@%s are %s, and are not used; adopt new ones, or run `zoo gate %s --forget`",
			record.Name(), record.Version(), misfit, record.Name()))
		return nil, nil
	}
	return r, nil
}

// misfit says why adopted values are not used.
const misfit = "of other source files or another recipe"

// checkOrigin compares what golden.json says of its own origin, if it does, with what
// a pack was made from: two sets of weights of one model are easily mixed up.
func checkOrigin(dir string, record *zoo.Record) error {
	data, err := checkpoint.ReadFile(dir, zoo.GoldenFile)
	if err != nil {
		return err
	}
	var origin struct {
		Grid   string `json:"grid"`
		Source []struct {
			Path   string `json:"path"`
			SHA256 string `json:"sha256"`
		} `json:"source"`
	}
	if err := json.Unmarshal(data, &origin); err != nil {
		return fmt.Errorf("%w: %s: not the JSON it should be: %w", fault.ErrIntegrity, zoo.GoldenFile, err)
	}
	bad := func(format string, args ...any) error {
		return fault.WithHint(fmt.Errorf("%w: %s: %s", fault.ErrIntegrity, zoo.GoldenFile, fmt.Sprintf(format, args...)),
			fmt.Sprintf("make the reference values from the very files and with the grid that `zoo show --json %s` lists", record.Name()))
	}
	if want := record.Release.Recipe["grid"]; want != "" && origin.Grid != "" && origin.Grid != want {
		return bad("the values are for weights on the grid %q, the pack's are on %q", origin.Grid, want)
	}
	for _, of := range origin.Source {
		i := slices.IndexFunc(record.Sources, func(f catalog.File) bool { return f.Path == of.Path })
		if i < 0 {
			return bad("the values are of %.80q, which is no source file of the pack", of.Path)
		}
		if want := record.Sources[i].SHA256; of.SHA256 != want {
			return bad("the values are of another %s (sha256 %.16s…) than the pack (%.16s…)", of.Path, of.SHA256, want)
		}
	}
	return nil
}
