package zoo

import (
	"context"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/program"
)

// Plugin is one model family: it knows a checkpoint's layout and how to run the
// pack made of it. It knows no device, opens no connection and is handed every
// folder it may use. The same interface is served in process and, with the same
// data, from another process; so everything in it is plain data.
//
// Methods are safe for concurrent use, hold no state between calls, and change nothing
// in the requests that they are given.
type Plugin interface {
	// Describe tells who the plugin is.
	Describe(ctx context.Context) (Description, error)
	// Fetch names the files that Convert needs. The host downloads them.
	Fetch(ctx context.Context, req FetchRequest) (FetchPlan, error)
	// Convert makes a pack in an empty folder out of a checkpoint. The same
	// checkpoint, recipe and plugin version give the same bytes everywhere.
	Convert(ctx context.Context, req ConvertRequest) (Conversion, error)
	// Gate returns what a pack is held against.
	Gate(ctx context.Context, req GateRequest) (*Reference, error)
	// Run returns the program that a backend replays over the pack's weights.
	Run(ctx context.Context, req RunRequest) (*program.Program, error)
}

// Resolver is what a plugin also implements if only asking tells which of the optional
// interfaces it has, [Synthesizer] and [Estimator], such as one in another process. A
// [Registry] hands out what Resolve returns in its place.
type Resolver interface {
	Plugin
	// Resolve asks, and returns the same plugin as a value that has exactly those interfaces.
	Resolve(ctx context.Context) (Plugin, error)
}

// Description tells who a plugin is.
type Description struct {
	// Name is the name that catalogs use, such as "gemma4e2b".
	Name string `json:"name"`
	// Version is a semantic version. It is part of the identity of every pack.
	Version string `json:"version"`
	// Title is one line for people.
	Title string `json:"title"`
	// Operations is the version of the operations in the programs that Run returns.
	Operations int `json:"operations"`
}

// FetchRequest asks which files of a release are needed.
type FetchRequest struct {
	// Release is the catalog's entry.
	Release catalog.Release
	// Dir is the folder that holds the files fetched so far, so that an index can name further ones.
	Dir string
}

// FetchPlan lists files. The host fetches what is missing and asks again until nothing is.
type FetchPlan struct {
	Files []catalog.File
}

// ConvertRequest asks for a pack.
type ConvertRequest struct {
	// Checkpoint is the folder of source files.
	Checkpoint string
	// Sources lists these files with their sizes and digests, which the host has verified.
	Sources []catalog.File
	// Recipe chooses between ways to convert, such as "grid"; it is part of the pack's identity.
	Recipe map[string]string
	// Dir is an empty folder that takes the pack.
	Dir string
	// Progress, if set, is told the source bytes read so far and in all.
	Progress func(doneBytes, totalBytes int64)
	// Report asks for the errors of rounding in the result, for which the checkpoint is
	// read once more, beforehand. It does not change the pack.
	Report bool
}

// Conversion is what a plugin tells of a conversion.
type Conversion struct {
	// Rounding lists the errors of rounding by family of tensors, and in each family by
	// the name of the grid, if they were asked for and anything can be rounded.
	Rounding []RoundingError `json:"rounding,omitempty"`
}

// RoundingError says what rounding to a grid does to a family of tensors: one tensor,
// or those of the same name in all layers.
type RoundingError struct {
	// Family is the name of the tensors, with "*" for the number of the layer.
	Family string `json:"family"`
	// Grid is the name of the grid.
	Grid string `json:"grid"`
	// Tensors and Numbers count what the family holds.
	Tensors int   `json:"tensors"`
	Numbers int64 `json:"numbers"`
	// Problem says which number the grid cannot hold, and is "" if it holds them all; else the errors are 0.
	Problem string `json:"problem,omitempty"`
	// RelL2 is the length of the vector of all errors over that of all numbers.
	RelL2 float64 `json:"rel_l2"`
	// MaxAbs is the largest magnitude of an error.
	MaxAbs float64 `json:"max_abs"`
}

// PackInfo is what a plugin is told of a pack: everything but the weights.
type PackInfo struct {
	// Manifest is the parsed pack.json.
	Manifest *Manifest
	// Config is the checkpoint's config.json, as it lies in the pack.
	Config []byte
}

// GateRequest asks for reference values.
type GateRequest struct {
	Pack PackInfo
	// Dir is a folder with golden.json and golden.safetensors, and perhaps questions.jsonl, or "" if there is none.
	Dir string
}

// Reference is what a pack is held against.
type Reference struct {
	// Runs are token sequences of a reference implementation.
	Runs []ReferenceRun `json:"runs"`
	// Questions make up a task score.
	Questions []Question `json:"questions"`
	// Prompts are texts for the checks that need no reference.
	Prompts []string `json:"prompts"`
}

// ReferenceRun is one greedy run of a reference implementation.
type ReferenceRun struct {
	// Prompt holds the token ids fed first.
	Prompt []int32 `json:"prompt"`
	// Greedy holds the most likely token after the prompt and after each token before it.
	Greedy []int32 `json:"greedy"`
	// Margin holds the difference of the two largest logits at each of these steps.
	Margin []float32 `json:"margin"`
	// LastLogits are the logits after the last greedy token; empty if not known.
	LastLogits []float32 `json:"last_logits,omitempty"`
	// PromptLogits are the logits after each token of the prompt, [len(Prompt), vocabulary]; empty if not known.
	PromptLogits [][]float32 `json:"prompt_logits,omitempty"`
}

// Question is one task of a score: right means exactly the expected answer.
type Question struct {
	Question string `json:"question"`
	Expected string `json:"expected"`
	// Reference is what the reference implementation answers.
	Reference string `json:"reference"`
}

// RunRequest asks for a program.
type RunRequest struct {
	Pack PackInfo
}
