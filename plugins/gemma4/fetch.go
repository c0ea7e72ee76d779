package gemma4

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/zoo"
)

// Fetch names the files of a release that [Convert] reads: those of the release's
// list, with their sizes and digests, and others, such as the shards that an index
// in req.Dir names, without. Files that no conversion reads are left out; a
// .litertlm file is one of them if the release lists safetensors as well. An
// index that is malformed is a *checkpoint.FormatError.
func Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	if err := ctx.Err(); err != nil {
		return zoo.FetchPlan{}, context.Cause(ctx)
	}
	listed := req.Release.Source.Files
	var plan zoo.FetchPlan
	add := func(name string, optional bool) {
		for _, f := range plan.Files {
			if f.Path == name {
				return
			}
		}
		f := catalog.File{Path: name, Optional: optional}
		if i := slices.IndexFunc(listed, func(f catalog.File) bool { return f.Path == name }); i >= 0 {
			f = listed[i]
		}
		plan.Files = append(plan.Files, f)
	}
	lists := func(name string) bool {
		return slices.ContainsFunc(listed, func(f catalog.File) bool { return f.Path == name })
	}
	for _, name := range copiedFiles {
		add(name, false)
	}
	add(tokenizerSource, false)
	single, split := lists(weightsSource), lists(indexSource)
	if !single && !split {
		names := make([]string, len(listed))
		for i, f := range listed {
			names[i] = f.Path
		}
		lite, err := liteFile(names)
		if err != nil {
			return zoo.FetchPlan{}, err
		}
		if lite != "" {
			add(lite, false)
			return plan, nil
		}
	}
	switch {
	case single:
		add(weightsSource, false)
		return plan, nil
	case split:
		add(indexSource, false)
	default:
		// The release leaves it open; one of the two is there.
		add(weightsSource, true)
		add(indexSource, true)
	}
	if req.Dir == "" {
		return plan, nil
	}
	// Where both are there the single file is what is read.
	if whole, err := checkpoint.Has(req.Dir, weightsSource); whole || err != nil {
		return plan, err
	}
	index, err := checkpoint.ReadFile(req.Dir, indexSource)
	if errors.Is(err, fs.ErrNotExist) {
		return plan, nil
	}
	if err != nil {
		return zoo.FetchPlan{}, err
	}
	shards, err := checkpoint.Shards(index)
	if err != nil {
		return zoo.FetchPlan{}, err
	}
	for _, name := range shards {
		add(name, false)
	}
	return plan, nil
}
