package packing

import (
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// tokenizerShare is about how many bytes of tokenizer.json make one of the compiled
	// form: from 1.9, of a small one, to 2.3.
	tokenizerShare = 2
	// pieceBytes is about the size of a piece in the compiled form.
	pieceBytes = 56
)

// EstimateBytes returns the size that the pack is going to have, for a zoo.Estimator: that
// of its tensors, with the small files of a checkpoint that it takes over as they are, which
// have the sizes that the request gives, and about that of a tokenizer with so many pieces.
// Its plugin, recipe, tensors and constants must be set. Errors are fault.ErrUsage.
func (p *Pack) EstimateBytes(req zoo.EstimateRequest, copied []string, pieces int) (int64, error) {
	size := func(name string) int64 {
		if i := slices.IndexFunc(req.Sources, func(f catalog.File) bool { return f.Path == name }); i >= 0 {
			return req.Sources[i].SizeBytes
		}
		return 0
	}
	var files []catalog.File
	for _, name := range copied {
		files = append(files, catalog.File{Path: name, SizeBytes: size(name)})
	}
	compiled := size(TokenizerSource) / tokenizerShare
	if compiled == 0 {
		compiled = int64(pieces) * pieceBytes
	}
	files = append(files, catalog.File{Path: zoo.TokenizerFile, SizeBytes: compiled})
	return zoo.PlannedBytes(p.Plugin, p.Recipe, req.Sources, files, p.Planned(), p.Constants)
}
