package zoo

import "context"

// Synthesizer is what a plugin also implements if it can write packs of random
// weights in the shapes of a model: they say nothing and are as fast as the model, so
// that its speed can be seen without its download.
type Synthesizer interface {
	// Synthesize makes a pack of random weights in an empty folder, with the recipe
	// that [Manifest.Synthetic] looks for. The same model and plugin version give the
	// same bytes everywhere. A model whose shapes the plugin does not have is [ErrUsage].
	Synthesize(ctx context.Context, req SynthesizeRequest) error
}

// SynthesizeRequest asks for a pack of random weights.
type SynthesizeRequest struct {
	// Model is the catalog's name of the model whose shapes the pack is to have.
	Model string
	// Dir is an empty folder that takes the pack.
	Dir string
	// Progress, if set, is told the bytes of weights made so far and in all.
	Progress func(doneBytes, totalBytes int64)
}

// The setting of a recipe that marks a pack of random weights.
const (
	// RecipeWeights is its key.
	RecipeWeights = "weights"
	// RandomWeights is its value.
	RandomWeights = "random"
)

// Synthetic reports whether the pack holds random weights, made by a [Synthesizer].
func (m *Manifest) Synthetic() bool { return m.Recipe[RecipeWeights] == RandomWeights }
