package zoo

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
)

// Lists reports whether the release lists a file.
func (r FetchRequest) Lists(name string) bool { return r.index(name) >= 0 }

// index returns the place of a file in the release's list, or -1.
func (r FetchRequest) index(name string) int {
	return slices.IndexFunc(r.Release.Source.Files, func(f catalog.File) bool { return f.Path == name })
}

// Plan returns a plan of these files, each once: as the release lists them, with their
// sizes and digests, and others without.
func (r FetchRequest) Plan(names ...string) FetchPlan {
	var plan FetchPlan
	for _, name := range names {
		r.add(&plan, catalog.File{Path: name})
	}
	return plan
}

// add adds a file to a plan that does not have it.
func (r FetchRequest) add(plan *FetchPlan, f catalog.File) {
	if slices.ContainsFunc(plan.Files, func(have catalog.File) bool { return have.Path == f.Path }) {
		return
	}
	if i := r.index(f.Path); i >= 0 {
		f = r.Release.Source.Files[i]
	}
	plan.Files = append(plan.Files, f)
}

// PlanSafetensors returns a plan of weights in safetensors, after these other files: one
// file of weights, or an index and the shards that it names once r.Dir holds it. If the
// release lists neither, both are asked for as optional: one of them is there. An index
// that is malformed is a *checkpoint.FormatError.
func (r FetchRequest) PlanSafetensors(ctx context.Context, others ...string) (FetchPlan, error) {
	if err := ctx.Err(); err != nil {
		return FetchPlan{}, context.Cause(ctx)
	}
	plan := r.Plan(others...)
	switch {
	case r.Lists(checkpoint.WeightsFile):
		r.add(&plan, catalog.File{Path: checkpoint.WeightsFile})
		return plan, nil
	case r.Lists(checkpoint.IndexFile):
		r.add(&plan, catalog.File{Path: checkpoint.IndexFile})
	default:
		r.add(&plan, catalog.File{Path: checkpoint.WeightsFile, Optional: true})
		r.add(&plan, catalog.File{Path: checkpoint.IndexFile, Optional: true})
	}
	if r.Dir == "" {
		return plan, nil
	}
	// Where both are there the single file is what is read.
	if whole, err := checkpoint.Has(r.Dir, checkpoint.WeightsFile); whole || err != nil {
		return plan, err
	}
	index, err := checkpoint.ReadFile(r.Dir, checkpoint.IndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return plan, nil
	}
	if err != nil {
		return FetchPlan{}, err
	}
	shards, err := checkpoint.Shards(index)
	if err != nil {
		return FetchPlan{}, err
	}
	for _, name := range shards {
		r.add(&plan, catalog.File{Path: name})
	}
	return plan, nil
}
