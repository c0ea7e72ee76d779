package zoo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Limits on a manifest.
const (
	maxManifestBytes = 16 << 20
	maxPackFiles     = 256
	maxPackBytes     = 1 << 50
	maxNameBytes     = 200
	maxVersionBytes  = 64
)

// ParseManifest reads a pack.json: the one spelling that [Manifest.Encode] gives, of
// a manifest that obeys all rules on names, paths, digests and places. Whether the
// files are as it says is [OpenPack]'s business. Errors are [*FormatError] and
// [*ManifestError]. Memory stays in proportion to len(data).
func ParseManifest(data []byte) (*Manifest, error) {
	m, err := parseManifest(data)
	if err == nil {
		_, err = m.check()
	}
	return m, asManifestError(err)
}

// asManifestError makes a *ManifestError of what is no *FormatError.
func asManifestError(err error) error {
	var format *FormatError
	if err == nil || errors.As(err, &format) {
		return err
	}
	return &ManifestError{Err: err}
}

// Encode returns the manifest as it stands in pack.json: one line of JSON with
// fields in the order of their declaration, lists in their order, maps sorted by
// key, no escapes for HTML, and a newline at the end. Absent lists and maps are
// written as empty ones.
func (m *Manifest) Encode() ([]byte, error) {
	full := *m
	if full.Sources == nil {
		full.Sources = []ManifestFileEntry{}
	}
	if full.Files == nil {
		full.Files = []ManifestFileEntry{}
	}
	if full.Tensors == nil {
		full.Tensors = []Tensor{}
	}
	if full.Constants == nil {
		full.Constants = map[string]float32{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(&full); err != nil {
		return nil, fmt.Errorf("encode %s: %w", ManifestFile, err)
	}
	return b.Bytes(), nil
}

// parseManifest decodes data and checks that it is spelled canonically. It decodes
// piece by piece and stops at the first one that is wrong, so that a short text
// cannot make long lists.
func parseManifest(data []byte) (*Manifest, error) {
	if len(data) > maxManifestBytes {
		return nil, fmt.Errorf("%d bytes are more than %d", len(data), maxManifestBytes)
	}
	m := &Manifest{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := decodeManifest(d, m); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	canonical, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(canonical, data) {
		return nil, fmt.Errorf("it is not in canonical form from byte %d on", commonPrefix(canonical, data))
	}
	return m, nil
}

// decodeManifest reads the members of a manifest.
func decodeManifest(d *json.Decoder, m *Manifest) error {
	if err := expectDelim(d, '{'); err != nil {
		return err
	}
	for first := true; d.More(); first = false {
		t, err := d.Token()
		if err != nil {
			return err
		}
		// A later format may look like anything, but for its first member.
		if first {
			if t != "format" {
				return errors.New("it does not start with the format")
			}
			if err := d.Decode(&m.Format); err != nil {
				return err
			}
			if m.Format != PackFormat {
				return &FormatError{Format: m.Format}
			}
			continue
		}
		switch t {
		case "plugin":
			err = d.Decode(&m.Plugin)
		case "recipe":
			err = d.Decode(&m.Recipe)
		case "sources":
			m.Sources, err = decodeList(d, checkEntry)
		case "files":
			m.Files, err = decodeList(d, checkEntry)
		case "tensors":
			m.Tensors, err = decodeList(d, checkTensor)
		case "constants":
			err = d.Decode(&m.Constants)
		default:
			err = fmt.Errorf("it has a member %.40q that is not known", t)
		}
		if err != nil {
			return err
		}
	}
	return expectDelim(d, '}')
}

// decodeList reads a list of which each element passes check.
func decodeList[T any](d *json.Decoder, check func(T) error) ([]T, error) {
	if err := expectDelim(d, '['); err != nil {
		return nil, err
	}
	var list []T
	for d.More() {
		var v T
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		if err := check(v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, expectDelim(d, ']')
}

// expectDelim reads one token, which must be want.
func expectDelim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%.40q in place of %q", fmt.Sprint(t), want.String())
	}
	return nil
}

// commonPrefix returns the number of equal bytes at the start of a and b.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// check applies all rules to a manifest and returns where its tensors must lie.
func (m *Manifest) check() (*weightsLayout, error) {
	if err := checkPlugin(m.Plugin); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(m.Recipe)) {
		if err := checkRecipe(key, m.Recipe[key]); err != nil {
			return nil, err
		}
	}
	if err := checkEntries("source", m.Sources); err != nil {
		return nil, err
	}
	if err := checkEntries("file", m.Files); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Constants)) {
		if err := checkConstant(name, m.Constants[name]); err != nil {
			return nil, err
		}
	}
	return m.checkPlaces()
}

// checkPlaces checks the list of tensors as a whole and against the weights file's size.
func (m *Manifest) checkPlaces() (*weightsLayout, error) {
	planned := make([]PlannedTensor, len(m.Tensors))
	for i, t := range m.Tensors {
		planned[i] = PlannedTensor{Name: t.Name, Matrix: t.Matrix}
	}
	layout, err := layoutWeights(planned)
	if err != nil {
		return nil, err
	}
	for i, t := range m.Tensors {
		if want := layout.offset(i); t.Offset != want {
			return nil, fmt.Errorf("tensor %q starts at byte %d, it must be %d", t.Name, t.Offset, want)
		}
	}
	i := slices.IndexFunc(m.Files, func(e ManifestFileEntry) bool { return e.Path == WeightsFile })
	if i < 0 {
		return nil, fmt.Errorf("it lists no %q", WeightsFile)
	}
	if got := m.Files[i].SizeBytes; got != layout.sizeBytes() {
		return nil, fmt.Errorf("file %q has %d bytes, its tensors need %d", WeightsFile, got, layout.sizeBytes())
	}
	return layout, nil
}

// checkPlugin checks the name and the version of a plugin.
func checkPlugin(id PluginID) error {
	if err := catalog.ValidateName(id.Name); err != nil {
		return fmt.Errorf("plugin: %w", err)
	}
	if _, err := semver.StrictNewVersion(id.Version); err != nil || len(id.Version) > maxVersionBytes {
		return fmt.Errorf("plugin %q has version %.80q, which is not a semantic version of at most %d bytes: %w", id.Name, id.Version, maxVersionBytes, fault.ErrUsage)
	}
	return nil
}

// checkRecipe checks one setting of a recipe.
func checkRecipe(key, value string) error {
	if err := checkName("recipe setting", key); err != nil {
		return err
	}
	if len(value) > maxNameBytes || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("recipe setting %q has value %.80q, which is not printable ASCII of at most %d bytes: %w", key, value, maxNameBytes, fault.ErrUsage)
	}
	return nil
}

// checkConstant checks the name and the value of a constant.
func checkConstant(name string, value float32) error {
	if err := checkName("constant", name); err != nil {
		return err
	}
	if v := float64(value); math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("constant %q is %v: %w", name, value, fault.ErrUsage)
	}
	return nil
}

// checkName checks the name of a tensor, a constant or a recipe setting.
func checkName(what, name string) error {
	bad := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/:+", r)
	})
	if bad || name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("%s %.80q: a name has 1 to %d letters, digits and \"._-/:+\": %w", what, name, maxNameBytes, fault.ErrUsage)
	}
	return nil
}

// checkEntries checks a list of files as a whole: sorted by path, every path once
// even where case does not count, and no file that is also a folder.
func checkEntries(what string, entries []ManifestFileEntry) error {
	if len(entries) > maxPackFiles {
		return fmt.Errorf("%d %ss are more than %d: %w", len(entries), what, maxPackFiles, fault.ErrUsage)
	}
	seen := make(map[string]bool, len(entries))
	for i, e := range entries {
		if err := checkEntry(e); err != nil {
			return err
		}
		if i > 0 && entries[i-1].Path >= e.Path {
			return fmt.Errorf("%s %q is listed twice or out of order: %w", what, e.Path, fault.ErrUsage)
		}
		folded := strings.ToLower(e.Path)
		if seen[folded] {
			return fmt.Errorf("%s %q differs from another only in case: %w", what, e.Path, fault.ErrUsage)
		}
		seen[folded] = true
		if what == "file" && reservedFile(folded) {
			return fmt.Errorf("file %q is not part of a pack's own files: %w", e.Path, fault.ErrUsage)
		}
	}
	for _, e := range entries {
		for i, c := range e.Path {
			if folder := strings.ToLower(e.Path[:i]); c == '/' && seen[folder] {
				return fmt.Errorf("%s %q lies in another one: %w", what, e.Path, fault.ErrUsage)
			}
		}
	}
	return nil
}

// reservedFile reports whether a path in lower case is one that no manifest may list.
func reservedFile(folded string) bool {
	return slices.Contains([]string{ManifestFile, DigestFile, ReceiptFile}, folded)
}

// checkEntry checks one file by itself.
func checkEntry(e ManifestFileEntry) error {
	if err := catalog.ValidatePath(e.Path); err != nil {
		return err
	}
	if e.SizeBytes < 0 || e.SizeBytes > maxPackBytes {
		return fmt.Errorf("file %q has size %d: %w", e.Path, e.SizeBytes, fault.ErrUsage)
	}
	if err := checkSHA256(e.SHA256); err != nil {
		return fmt.Errorf("file %q: %w", e.Path, err)
	}
	return nil
}

// checkTensor checks one tensor by itself.
func checkTensor(t Tensor) error {
	if err := checkPlanned(PlannedTensor{t.Name, t.Matrix}); err != nil {
		return err
	}
	if err := checkSHA256(t.SHA256); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// checkPlanned checks the name and the matrix of a tensor.
func checkPlanned(t PlannedTensor) error {
	if err := checkName("tensor", t.Name); err != nil {
		return err
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

// checkSHA256 checks the form of a digest in hex.
func checkSHA256(hexes string) error {
	if _, err := catalog.ParseDigest("sha256:" + hexes); err != nil {
		return fmt.Errorf("sha256 %.80q is not 64 lower-case hex digits: %w", hexes, fault.ErrUsage)
	}
	return nil
}
