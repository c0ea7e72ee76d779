package gemma4

import (
	"context"
	"slices"

	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// Fetch names the files of a release that [Convert] reads: those of the release's
// list, with their sizes and digests, and others, such as the shards that an index
// in req.Dir names, without. Files that no conversion reads are left out; a
// .litertlm file is one of them if the release lists safetensors as well. An
// index that is malformed is a *checkpoint.FormatError.
func Fetch(ctx context.Context, req zoo.FetchRequest) (zoo.FetchPlan, error) {
	small := append(slices.Clone(copiedFiles[:]), packing.TokenizerSource)
	if !req.Lists(weightsSource) && !req.Lists(indexSource) {
		var names []string
		for _, f := range req.Release.Source.Files {
			names = append(names, f.Path)
		}
		lite, err := liteFile(names)
		if err != nil {
			return zoo.FetchPlan{}, err
		}
		if lite != "" {
			return req.Plan(append(small, lite)...), context.Cause(ctx)
		}
	}
	return req.PlanSafetensors(ctx, small...)
}
