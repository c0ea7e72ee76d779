package gemma4

import (
	"context"

	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/golden"
)

// selfPrompts are the texts that published gates of this family used.
var selfPrompts = [...]string{
	"Why is the sky blue?",
	"What is the capital of France?",
	"Explain photosynthesis in one sentence.",
}

// Gate returns what a pack is held against: the reference values in the folder, see package
// golden, and the texts that need no reference. Without a folder it returns the texts
// alone. All ids and sizes are checked against the pack's configuration.
func Gate(ctx context.Context, req zoo.GateRequest) (*zoo.Reference, error) {
	ref := &zoo.Reference{}
	if req.Dir != "" {
		cfg, err := ParseConfig(req.Pack.Config)
		if err != nil {
			return nil, err
		}
		model := golden.Model{Vocab: cfg.Text.VocabSize, TokenLimit: cfg.TokenLimit(), Context: cfg.Text.MaxPositionEmbeddings}
		if ref, err = golden.Read(ctx, req.Dir, model); err != nil {
			return nil, err
		}
	}
	ref.Prompts = append(ref.Prompts, selfPrompts[:]...)
	return ref, nil
}
