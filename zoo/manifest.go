package zoo

import "github.com/zoo-sdk/zoo/quant"

// PackFormat is the version of the pack's layout on disk.
const PackFormat = 1

// Names of files in a pack.
const (
	// ManifestFile lists everything else; its sha256 is the pack's digest.
	ManifestFile = "pack.json"
	// DigestFile repeats the pack's digest, so that a changed manifest is noticed wherever the pack lies.
	DigestFile = "pack.digest"
	// WeightsFile holds the tensors.
	WeightsFile = "weights.safetensors"
	// ConfigFile is the checkpoint's config.json.
	ConfigFile = "config.json"
	// GenerationFile is the checkpoint's generation_config.json.
	GenerationFile = "generation_config.json"
	// TokenizerFile is the compiled tokenizer.
	TokenizerFile = "tokenizer.bin"
	// TokenizerConfigFile is the checkpoint's tokenizer_config.json.
	TokenizerConfigFile = "tokenizer_config.json"
	// TemplateFile is the checkpoint's chat template.
	TemplateFile = "chat_template.jinja"
	// ReceiptFile is written beside the manifest when a pack has been put to its gate; it is no part of the pack.
	ReceiptFile = "gate.json"
)

// Manifest is pack.json: what a pack is made of and what lies in it. It has no
// times, paths or host names, so that equal input gives equal bytes.
type Manifest struct {
	// Format is PackFormat.
	Format int `json:"format"`
	// Plugin made the pack.
	Plugin PluginID `json:"plugin"`
	// Recipe is the recipe that was followed.
	Recipe map[string]string `json:"recipe,omitempty"`
	// Sources lists the checkpoint's files that went into the pack, by path.
	Sources []ManifestFileEntry `json:"sources"`
	// Files lists the pack's files but the manifest and the digest, by path.
	Files []ManifestFileEntry `json:"files"`
	// Tensors lists the tensors in the order in which they lie in the weights file.
	Tensors []Tensor `json:"tensors"`
	// Constants are single numbers of the checkpoint, such as activation scales, by name.
	Constants map[string]float32 `json:"constants"`
}

// PluginID names a plugin and its version.
type PluginID struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// ManifestFileEntry is one file with its size and sha256.
type ManifestFileEntry struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size"`
	// SHA256 is 64 hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// Tensor is one matrix in the weights file, where it is a U8 tensor of its size in bytes.
type Tensor struct {
	// Name is unique in the pack.
	Name string `json:"name"`
	quant.Matrix
	// Offset is where the tensor starts in the weights file; a multiple of 64.
	Offset int64 `json:"offset"`
	// SHA256 is the digest of the tensor's bytes, so that damage can be named.
	SHA256 string `json:"sha256"`
}
