package zoo

import (
	"context"
	"fmt"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

// Estimator is what a plugin also implements if it can tell beforehand, from shapes
// alone, how large the pack of a release will be and what running it will take.
type Estimator interface {
	// Estimate describes the pack that Convert would make of a release. A release whose
	// shapes the plugin does not have, with a request that does not give them, is [ErrNotFound].
	Estimate(ctx context.Context, req EstimateRequest) (Estimate, error)
}

// EstimateRequest asks for an estimate.
type EstimateRequest struct {
	// Release is the catalog's entry.
	Release catalog.Release
	// Sources lists the source files with their sizes, as far as these are known.
	Sources []catalog.File
	// Config is the checkpoint's config.json where that is at hand. Without it the plugin
	// takes the shapes that it knows for the release.
	Config []byte
}

// Estimate says what a pack will be.
type Estimate struct {
	// PackBytes is the size of all its files: exact for the weights if the assumptions
	// hold, and about right for the rest.
	PackBytes int64 `json:"pack_bytes"`
	// Program is what [Plugin.Run] will return for it, but for the values of constants.
	Program *program.Program `json:"program"`
	// Assumptions says, in one sentence each, what only the weights can show.
	Assumptions []string `json:"assumptions,omitempty"`
}

// PlannedBytes returns the size of a pack of these tensors, with a manifest of these
// recipe, sources, files and constants: what [PackWriter] would write, but for digests
// and the digits of constants, which all are of nearly the same length. The files are
// those beside the weights, the manifest and the digest. Errors are [ErrUsage].
func PlannedBytes(id PluginID, recipe map[string]string, sources, files []catalog.File, tensors []PlannedTensor, constants map[string]float32) (int64, error) {
	layout, err := layoutWeights(tensors)
	if err != nil {
		return 0, fmt.Errorf("size of a pack: %w", err)
	}
	digest := strings.Repeat("0", 64)
	m := Manifest{Format: PackFormat, Plugin: id, Recipe: recipe, Constants: constants}
	for i, t := range tensors {
		m.Tensors = append(m.Tensors, Tensor{Name: t.Name, Matrix: t.Matrix, Offset: layout.offset(i), SHA256: digest})
	}
	for _, f := range sources {
		m.Sources = append(m.Sources, ManifestFileEntry{Path: f.Path, SizeBytes: f.SizeBytes, SHA256: digest})
	}
	total := layout.sizeBytes()
	m.Files = append(m.Files, ManifestFileEntry{Path: WeightsFile, SizeBytes: total, SHA256: digest})
	for _, f := range files {
		m.Files = append(m.Files, ManifestFileEntry{Path: f.Path, SizeBytes: f.SizeBytes, SHA256: digest})
		total += f.SizeBytes
	}
	manifest, err := m.Encode()
	if err != nil {
		return 0, fmt.Errorf("size of a pack: %w: %w", fault.ErrUsage, err)
	}
	return total + int64(len(manifest)+len(encodeDigest(catalog.DigestOf(manifest)))), nil
}
