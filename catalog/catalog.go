package catalog

import (
	"maps"
	"slices"
)

// Kinds of [Source].
const (
	// KindHub is a repository on a Hugging Face compatible hub.
	KindHub = "hub"
	// KindEmbedded is a set of files embedded in the binary; see [Embedded].
	KindEmbedded = "embedded"
)

// Catalog is a list of models, and of plugins that can be installed for them. It is
// read-only after [Parse] and may then be used by many goroutines.
type Catalog struct {
	// Models are sorted by name.
	Models []Model
	// Plugins are sorted by name. Those that are built in are none of them.
	Plugins []Plugin
	// Signature is what [ParseSigned] has checked, or nil.
	Signature *Signature
}

// Model is one named model with all its releases.
type Model struct {
	// Name is what users type: lower-case letters, digits, '.', '-' and '_',
	// at most 64 bytes, unique among all names and aliases.
	Name string
	// Title is one line for listings.
	Title string
	// Description is free text of a few sentences; it may be empty.
	Description string
	// Aliases are other names of the same model, under the rules of Name.
	Aliases []string
	// Releases are sorted newest first.
	Releases []Release
}

// Release is one version of a model: where its files come from, which plugin
// turns them into a pack, and under which licence they stand.
type Release struct {
	// Model is the name of the model that the release belongs to.
	Model string
	// Version is a full semantic version such as "1.2.0".
	Version string
	// Plugin names the plugin that converts and runs the release.
	Plugin PluginRef
	// Source holds the checkpoint.
	Source Source
	// Reference holds golden.json, golden.safetensors and questions.jsonl for
	// the gate, or is nil when none are published.
	Reference *Source
	// Recipe holds conversion settings, such as "grid": they are part of the
	// pack's identity. It may be nil.
	Recipe map[string]string
	// Licence is the licence of the weights.
	Licence Licence
	// Gated says that the hub hands the files only to accounts that have
	// accepted the licence there.
	Gated bool
	// Pack is the digest that conversion must yield, or "" when it is bound at
	// the first conversion.
	Pack Digest
}

// PluginRef names a plugin and the versions of it that will do.
type PluginRef struct {
	Name string `yaml:"name"`
	// Constraint is a semantic version constraint such as "^1".
	Constraint string `yaml:"constraint"`
}

// Licence is an SPDX licence expression and the page that holds its text.
type Licence struct {
	SPDX string `yaml:"spdx"`
	URL  string `yaml:"url"`
}

// Source is a set of files in one repository at one revision.
type Source struct {
	// Kind is [KindHub] or [KindEmbedded].
	Kind string
	// Repository is "owner/name" on a hub, or the name to give [Embedded].
	Repository string
	// Revision is a commit, tag or branch of a hub's repository; "" if embedded.
	// Only a full commit (see [Source.Pinned]) stays the same for ever; the
	// commit behind any other is bound at the first download.
	Revision string
	// Files are the wanted files of the repository, never empty.
	Files []File
}

// File is one file of a source.
type File struct {
	// Path is relative and slash-separated; see [ValidatePath].
	Path string `json:"path"`
	// SizeBytes is the exact length, or 0 when it is not known.
	SizeBytes int64 `json:"size"`
	// SHA256 is 64 lower-case hex digits, or "" when only the server knows it.
	SHA256 string `json:"sha256"`
	// Optional says that a repository without the file is complete all the same.
	Optional bool `json:"optional,omitempty"`
}

// Pinned reports whether the revision is a full commit, which no server can move.
// An embedded source is always pinned.
func (s Source) Pinned() bool {
	return s.Kind == KindEmbedded || IsCommit(s.Revision)
}

// IsCommit reports whether a revision is a full git commit: 40 lower-case hex digits.
func IsCommit(revision string) bool {
	return len(revision) == 40 && isLowerHex(revision)
}

// clone returns a copy of r that shares no memory with it.
func (r *Release) clone() *Release {
	c := *r
	c.Source.Files = slices.Clone(r.Source.Files)
	if r.Reference != nil {
		ref := *r.Reference
		ref.Files = slices.Clone(ref.Files)
		c.Reference = &ref
	}
	c.Recipe = maps.Clone(r.Recipe)
	return &c
}

// isLowerHex reports whether s holds nothing but 0-9 and a-f.
func isLowerHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}
