package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// schemaVersion is the version of the schema that this package reads.
const schemaVersion = 1

// Limits on a whole catalog.
const (
	maxCatalogBytes = 1 << 20
	maxDepth        = 32
	maxKeys         = 100
	maxItems        = 10_000
	maxModels       = 10_000
	maxReleases     = 1_000
	maxFiles        = 1_000
	maxTextBytes    = 4_096
	maxSizeBytes    = 1 << 50
)

// document is the YAML form of a catalog.
type document struct {
	Schema  wholeNumber  `yaml:"schema"`
	Models  []modelYAML  `yaml:"models"`
	Plugins []pluginYAML `yaml:"plugins"`
}

type modelYAML struct {
	Name        string        `yaml:"name"`
	Title       string        `yaml:"title"`
	Description string        `yaml:"description"`
	Aliases     []string      `yaml:"aliases"`
	Releases    []releaseYAML `yaml:"releases"`
}

type releaseYAML struct {
	Version   string            `yaml:"version"`
	Plugin    PluginRef         `yaml:"plugin"`
	Licence   Licence           `yaml:"licence"`
	Gated     bool              `yaml:"gated"`
	Recipe    map[string]string `yaml:"recipe"`
	Pack      string            `yaml:"pack"`
	Source    sourceYAML        `yaml:"source"`
	Reference *sourceYAML       `yaml:"reference"`
}

type sourceYAML struct {
	Kind       string     `yaml:"kind"`
	Repository string     `yaml:"repository"`
	Revision   string     `yaml:"revision"`
	Files      []fileYAML `yaml:"files"`
}

type fileYAML struct {
	Path     string      `yaml:"path"`
	Size     wholeNumber `yaml:"size"`
	SHA256   string      `yaml:"sha256"`
	Optional bool        `yaml:"optional"`
}

// wholeNumber is an integer in decimal digits: the decoder alone would cut 1.5 to 1.
type wholeNumber int64

// UnmarshalYAML reads the digits.
func (n *wholeNumber) UnmarshalYAML(text []byte) error {
	v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no whole number", fault.Shorten(string(text)))
	}
	*n = wholeNumber(v)
	return nil
}

// source checks a source.
func (y *sourceYAML) source() (Source, error) {
	s := Source{Kind: y.Kind, Repository: y.Repository, Revision: y.Revision}
	for _, f := range y.Files {
		s.Files = append(s.Files, File{Path: f.Path, SizeBytes: int64(f.Size), SHA256: f.SHA256, Optional: f.Optional})
	}
	return s, s.Validate()
}

// SchemaError reports a catalog that does not follow the schema. It matches
// fault.ErrIntegrity.
type SchemaError struct {
	// Where names the place, such as `model "demo" release "1.0.0"`, or is "" for
	// the document as a whole.
	Where string
	// Err says what is wrong there.
	Err error
}

// Error gives the place and the reason.
func (e *SchemaError) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("catalog: %v", e.Err)
	}
	return fmt.Sprintf("catalog: %s: %v", e.Where, e.Err)
}

// Is reports whether target is fault.ErrIntegrity. The cause is not unwrapped: a
// bad name in a catalog is not a wrong use of the command.
func (e *SchemaError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what to do with a catalog that cannot be read.
func (e *SchemaError) Hint() string {
	return "correct the catalog, or use a version of zoo that knows its schema"
}

// Parse reads a catalog of which nobody knows who made it: its plugins are not
// [Plugin].Signed. Every error is a [*SchemaError]: text that is no YAML or too
// large or too deep, anchors, aliases and tags, unknown and repeated fields, names
// and paths that break their rules, two models or plugins of one name, two releases of
// one version, constraints that are not understood, and programs whose size or digest
// is not known.
func Parse(data []byte) (*Catalog, error) {
	doc, err := decode(data)
	if err != nil {
		return nil, &SchemaError{Err: err}
	}
	if doc.Schema != schemaVersion {
		return nil, &SchemaError{Where: "schema", Err: fmt.Errorf("version %d is not the supported version %d", doc.Schema, schemaVersion)}
	}
	if len(doc.Models) > maxModels {
		return nil, &SchemaError{Where: "models", Err: fmt.Errorf("%d are more than %d", len(doc.Models), maxModels)}
	}
	c := &Catalog{Models: make([]Model, 0, len(doc.Models))}
	taken := make(map[string]string, 2*len(doc.Models)) // name or alias -> its model
	for i := range doc.Models {
		m, err := doc.Models[i].model(taken)
		if err != nil {
			return nil, locate(fmt.Sprintf("model %q", fault.Shorten(doc.Models[i].Name)), err)
		}
		c.Models = append(c.Models, m)
	}
	slices.SortFunc(c.Models, func(a, b Model) int { return cmp.Compare(a.Name, b.Name) })
	if c.Plugins, err = doc.plugins(); err != nil {
		return nil, err
	}
	return c, nil
}

// plugins checks the plugins. Errors are [*SchemaError].
func (d *document) plugins() ([]Plugin, error) {
	if len(d.Plugins) > maxPlugins {
		return nil, &SchemaError{Where: "plugins", Err: fmt.Errorf("%d are more than %d", len(d.Plugins), maxPlugins)}
	}
	var plugins []Plugin
	taken := make(map[string]bool, len(d.Plugins))
	for i := range d.Plugins {
		p, err := d.Plugins[i].plugin()
		if err == nil && taken[p.Name] {
			err = errors.New("it stands twice")
		}
		if err != nil {
			return nil, locate(fmt.Sprintf("plugin %q", fault.Shorten(d.Plugins[i].Name)), err)
		}
		taken[p.Name] = true
		plugins = append(plugins, p)
	}
	slices.SortFunc(plugins, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	return plugins, nil
}

// decode turns YAML into a document. The grammar is narrowed first to what a
// catalog needs, so that a small hostile text cannot grow when it is decoded or
// exhaust the stack of the recursive parser.
func decode(data []byte) (doc document, err error) {
	if len(data) > maxCatalogBytes {
		return doc, fmt.Errorf("%d bytes are more than %d", len(data), maxCatalogBytes)
	}
	text := string(data)
	if err := checkTokens(lexer.Tokenize(text)); err != nil {
		return doc, err
	}
	if err := yaml.UnmarshalWithOptions(data, &doc, yaml.Strict()); err != nil {
		return doc, errors.New(yaml.FormatError(err, false, false))
	}
	return doc, nil
}

// level is one collection that is open at a token.
type level struct {
	column      int // where a block collection's entries begin; 0 for a flow collection
	keys, items int
}

// checkTokens refuses anchors, aliases, merge keys, tags, directives and second
// documents, nesting deeper than maxDepth, and collections so large that the decoder,
// whose time grows with the square of their length, would not come back.
func checkTokens(tokens token.Tokens) error {
	started := false
	var levels []level
	for _, t := range tokens {
		top := len(levels) - 1
		inFlow := top >= 0 && levels[top].column == 0
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType,
			token.DocumentHeaderType, token.DocumentEndType:
			if t.Type == token.DocumentHeaderType && !started {
				break
			}
			return fmt.Errorf("line %d: %q is not part of a catalog", t.Position.Line, fault.Shorten(t.Value))
		case token.InvalidType:
			return fmt.Errorf("line %d: %s", t.Position.Line, t.Error)
		case token.MappingStartType, token.SequenceStartType:
			levels = append(levels, level{})
		case token.MappingEndType, token.SequenceEndType:
			if inFlow {
				levels = levels[:top]
			}
		case token.CollectEntryType:
			if inFlow {
				levels[top].items++
			}
		case token.SequenceEntryType, token.MappingValueType, token.MappingKeyType:
			if !inFlow {
				levels = openBlock(levels, entryColumn(t))
				top = len(levels) - 1
			}
			if t.Type == token.SequenceEntryType {
				levels[top].items++
			} else {
				levels[top].keys++
			}
		}
		started = started || t.Type != token.CommentType
		if len(levels) > maxDepth {
			return fmt.Errorf("line %d: nested deeper than %d", t.Position.Line, maxDepth)
		}
		if n := len(levels); n > 0 && (levels[n-1].keys > maxKeys || levels[n-1].items > maxItems) {
			return fmt.Errorf("line %d: more than %d keys in a mapping or %d items in a list", t.Position.Line, maxKeys, maxItems)
		}
	}
	return nil
}

// entryColumn is the column at which the entry that a token belongs to begins.
func entryColumn(t *token.Token) int {
	if t.Type == token.MappingValueType && t.Prev != nil {
		return t.Prev.Position.Column
	}
	return t.Position.Column
}

// openBlock closes the block collections that an entry at a column ends, and opens one
// there if there is none yet.
func openBlock(levels []level, column int) []level {
	for n := len(levels); n > 0 && levels[n-1].column > column; n = len(levels) {
		levels = levels[:n-1]
	}
	if n := len(levels); n == 0 || levels[n-1].column < column {
		levels = append(levels, level{column: column})
	}
	return levels
}

// locate puts a place in front of an error.
func locate(where string, err error) error {
	var inner *SchemaError
	if errors.As(err, &inner) {
		return &SchemaError{Where: strings.TrimSuffix(where+" "+inner.Where, " "), Err: inner.Err}
	}
	return &SchemaError{Where: where, Err: err}
}

// model checks one model and enters its names into taken.
func (y *modelYAML) model(taken map[string]string) (Model, error) {
	for _, name := range slices.Concat([]string{y.Name}, y.Aliases) {
		if err := ValidateName(name); err != nil {
			return Model{}, err
		}
		if other, ok := taken[name]; ok {
			return Model{}, fmt.Errorf("the name %q belongs to model %q already", name, other)
		}
		taken[name] = y.Name
	}
	switch {
	case y.Title == "":
		return Model{}, errors.New("the title is missing")
	case len(y.Title) > maxTextBytes || len(y.Description) > maxTextBytes:
		return Model{}, fmt.Errorf("title or description is longer than %d bytes", maxTextBytes)
	case len(y.Releases) == 0 || len(y.Releases) > maxReleases:
		return Model{}, fmt.Errorf("%d releases are not 1 to %d", len(y.Releases), maxReleases)
	}
	m := Model{Name: y.Name, Title: y.Title, Description: strings.TrimSpace(y.Description), Aliases: y.Aliases}
	for i := range y.Releases {
		r, err := y.Releases[i].release(y.Name)
		if err != nil {
			return Model{}, locate(fmt.Sprintf("release %q", fault.Shorten(y.Releases[i].Version)), err)
		}
		m.Releases = append(m.Releases, r)
	}
	slices.SortFunc(m.Releases, func(a, b Release) int { return compareVersions(b.Version, a.Version) })
	for i := 1; i < len(m.Releases); i++ {
		if compareVersions(m.Releases[i-1].Version, m.Releases[i].Version) == 0 {
			return Model{}, fmt.Errorf("the version %q stands twice", m.Releases[i].Version)
		}
	}
	return m, nil
}

// compareVersions orders two valid versions; build metadata does not count.
func compareVersions(a, b string) int {
	return semver.MustParse(a).Compare(semver.MustParse(b))
}

// release checks one release.
func (y *releaseYAML) release(model string) (Release, error) {
	if _, err := semver.StrictNewVersion(y.Version); err != nil || len(y.Version) > maxNameBytes {
		return Release{}, errors.New("the version is not a full semantic version such as 1.0.0")
	}
	if err := ValidateName(y.Plugin.Name); err != nil {
		return Release{}, locate("plugin", err)
	}
	if _, err := semver.NewConstraint(y.Plugin.Constraint); err != nil || y.Plugin.Constraint == "" || len(y.Plugin.Constraint) > maxNameBytes {
		return Release{}, locate("plugin", fmt.Errorf("the constraint %q is not understood", fault.Shorten(y.Plugin.Constraint)))
	}
	if err := y.Licence.validate(); err != nil {
		return Release{}, locate("licence", err)
	}
	r := Release{
		Model: model, Version: y.Version, Plugin: y.Plugin, Recipe: y.Recipe, Licence: y.Licence, Gated: y.Gated,
	}
	if y.Pack != "" {
		d, err := ParseDigest(y.Pack)
		if err != nil {
			return Release{}, locate("pack", err)
		}
		r.Pack = d
	}
	for key, value := range y.Recipe {
		if ValidateName(key) != nil || ValidateName(value) != nil {
			return Release{}, locate("recipe", fmt.Errorf("the setting %q: %q is not made of two names", fault.Shorten(key), fault.Shorten(value)))
		}
	}
	var err error
	if r.Source, err = y.Source.source(); err != nil {
		return Release{}, locate("source", err)
	}
	if y.Reference != nil {
		reference, err := y.Reference.source()
		if err != nil {
			return Release{}, locate("reference", err)
		}
		r.Reference = &reference
	}
	return r, nil
}

// validate checks the form of a licence; the expression's identifiers are not
// looked up.
func (l Licence) validate() error {
	if l.SPDX == "" || len(l.SPDX) > maxNameBytes {
		return fmt.Errorf("the SPDX expression must have 1 to %d bytes", maxNameBytes)
	}
	for i := range len(l.SPDX) {
		if c := l.SPDX[i]; !isPathByte(c) && strings.IndexByte(" ():", c) < 0 {
			return fmt.Errorf("%q is no SPDX expression", l.SPDX)
		}
	}
	u, err := url.Parse(l.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || len(l.URL) > maxTextBytes {
		return fmt.Errorf("%q is no https address", fault.Shorten(l.URL))
	}
	return nil
}

// Validate checks a source as [Parse] does: a known kind, a repository and a
// revision of the right form, and files of which no two have one path, in whatever
// letter case, or a path that is a folder of another. Its error is an [*InvalidError].
func (s Source) Validate() error {
	switch s.Kind {
	case KindHub:
		if err := ValidateRepository(s.Repository); err != nil {
			return err
		}
		if err := ValidateRevision(s.Revision); err != nil {
			return err
		}
	case KindEmbedded:
		if err := ValidatePath(s.Repository); err != nil {
			return err
		}
		if s.Revision != "" {
			return invalid("revision", s.Revision, "an embedded source has none")
		}
	default:
		return invalid("source kind", s.Kind, "it is neither %q nor %q", KindHub, KindEmbedded)
	}
	return ValidateFiles(s.Files)
}

// ValidateFiles checks a list of files by the rules of [Source.Validate].
func ValidateFiles(files []File) error {
	if len(files) == 0 || len(files) > maxFiles {
		return invalid("number of files", strconv.Itoa(len(files)), "it is not 1 to %d", maxFiles)
	}
	paths := make(map[string]bool, len(files))
	for _, f := range files {
		if err := f.validate(); err != nil {
			return err
		}
		folded := strings.ToLower(f.Path)
		if paths[folded] {
			return invalid("path", f.Path, "it stands twice")
		}
		paths[folded] = true
	}
	for p := range paths {
		for i, c := range p {
			if c == '/' && paths[p[:i]] {
				return invalid("path", p[:i], "it is both a file and a folder")
			}
		}
	}
	return nil
}

// validate checks one file.
func (f File) validate() error {
	if err := ValidatePath(f.Path); err != nil {
		return err
	}
	if f.SizeBytes < 0 || f.SizeBytes > maxSizeBytes {
		return invalid("file", f.Path, "the size %d is not 0 to %d", f.SizeBytes, int64(maxSizeBytes))
	}
	if f.SHA256 != "" && (len(f.SHA256) != 64 || !isLowerHex(f.SHA256)) {
		return invalid("file", f.Path, "the sha256 %q is not 64 lower-case hex digits", fault.Shorten(f.SHA256))
	}
	return nil
}
