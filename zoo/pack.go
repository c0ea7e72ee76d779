package zoo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/mmap"
	"github.com/zoo-sdk/zoo/quant"
)

// Progress is told how many bytes of how many are done. Calls never overlap and
// never go back.
type Progress func(doneBytes, totalBytes int64)

// Pack is an open pack: its files are mapped, nothing is copied. It implements
// backends.Weights. Its methods may be called by many goroutines.
type Pack struct {
	dir      string
	model    string // for messages; "" if the pack belongs to no installed model
	root     *os.Root
	digest   catalog.Digest
	bytes    int64 // of the manifest and the digest file
	manifest *Manifest
	layout   *weightsLayout
	files    map[string]*packFile
	tensors  map[string]int // indices into manifest.Tensors
	weights  []byte

	closed atomic.Bool // by Close
	ended  atomic.Bool // the mappings

	mu       sync.Mutex
	users    int // of Retain
	closeErr error
}

// packFile is an open file of a pack. The handle is kept so that verification reads
// the very file that is mapped, and gets an error, not a fault, where a device fails.
type packFile struct {
	ManifestFileEntry
	f *os.File
	m *mmap.Map
}

// OpenPack opens the pack in a folder. It checks the manifest against pack.digest
// and everything that can be told without reading the other files through: sizes,
// the weights file's header, where tensors lie. Errors are [*DamageError],
// [*ManifestError], [*FormatError], [ErrNotFound] for a folder that holds no pack,
// and those of the file system. [Pack.Verify] reads the rest; [Store.OpenDir] does
// so when it is needed.
func OpenPack(dir string) (*Pack, error) { return openPack(dir, "") }

// openPack is OpenPack for a pack of a model, whose name goes into errors.
func openPack(dir, model string) (*Pack, error) {
	p := &Pack{dir: dir, model: model, files: map[string]*packFile{}}
	if err := p.open(); err != nil {
		return nil, errors.Join(atomicfile.MapError(dir, err), p.Close())
	}
	return p, nil
}

func (p *Pack) open() error {
	root, err := os.OpenRoot(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return p.noPack()
	}
	if err != nil {
		return fmt.Errorf("open pack: %w", err)
	}
	p.root = root
	data, err := p.readManifest()
	if err != nil {
		return err
	}
	p.digest = catalog.DigestOf(data)
	p.bytes = int64(len(data) + len(encodeDigest(p.digest)))
	if p.manifest, err = parseManifest(data); err == nil {
		p.layout, err = p.manifest.check()
	}
	if err != nil {
		return p.placeError(asManifestError(err))
	}
	for _, entry := range p.manifest.Files {
		if err := p.openFile(entry); err != nil {
			return err
		}
	}
	p.weights = p.files[WeightsFile].m.Bytes()
	if err := p.checkHeader(p.weights[:len(p.layout.header)]); err != nil {
		return err
	}
	p.tensors = make(map[string]int, len(p.manifest.Tensors))
	for i, t := range p.manifest.Tensors {
		p.tensors[t.Name] = i
	}
	return nil
}

// noPack reports a folder without a manifest.
func (p *Pack) noPack() error {
	return fault.WithHint(fmt.Errorf("there is no pack in folder %q: %w", p.dir, fault.ErrNotFound),
		"give the folder that holds "+ManifestFile+", or a model's name")
}

// placeError enters the folder into an error about a manifest.
func (p *Pack) placeError(err error) error {
	if e, ok := errors.AsType[*ManifestError](err); ok {
		e.Pack = p.dir
	}
	if e, ok := errors.AsType[*FormatError](err); ok {
		e.Pack = p.dir
	}
	return err
}

// damage makes a DamageError of this pack.
func (p *Pack) damage(file, tensor, want, got string) *DamageError {
	return &DamageError{Pack: p.dir, Model: p.model, File: file, Tensor: tensor, Want: want, Got: got}
}

// readManifest reads the manifest and the digest file and holds them against each other.
func (p *Pack) readManifest() ([]byte, error) {
	data, err := p.readSmall(ManifestFile, maxManifestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.noPack()
	}
	if err != nil {
		return nil, err
	}
	got := encodeDigest(catalog.DigestOf(data))
	want, err := p.readSmall(DigestFile, int64(len(got)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.damage(DigestFile, "", "a file", "none")
	}
	if err != nil || bytes.Equal(got, want) {
		return data, err
	}
	// One of the two is damaged. A digest file that differs from the manifest's digest
	// in a few places is damaged itself, as a change to the manifest changes all of its
	// digest.
	same := 0
	for i := range min(len(got), len(want)) {
		if got[i] == want[i] {
			same++
		}
	}
	if same > len(got)/2 {
		return nil, p.damage(DigestFile, "", fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
	}
	if d, err := catalog.ParseDigest(string(bytes.TrimSuffix(want, []byte("\n")))); err == nil {
		return nil, p.damage(ManifestFile, "", d.String(), catalog.DigestOf(data).String())
	}
	return nil, p.damage(DigestFile, "", fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
}

// readSmall reads a file of at most so many bytes.
func (p *Pack) readSmall(name string, most int64) ([]byte, error) {
	f, err := p.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, p.damage(name, "", "a file", "a "+kindOf(info))
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, p.damage(name, "", fmt.Sprintf("at most %d bytes", most), "more")
	}
	return data, err
}

// kindOf names what is no regular file.
func kindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "folder"
	}
	return "special file"
}

// openFile opens and maps one listed file.
func (p *Pack) openFile(entry ManifestFileEntry) error {
	// Handles stay within the folder, whatever links lie in it.
	f, err := p.root.Open(entry.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return p.damage(entry.Path, "", fmt.Sprintf("%d bytes", entry.SizeBytes), "no file")
	}
	if err != nil {
		return fmt.Errorf("open pack: %w", err)
	}
	file := &packFile{ManifestFileEntry: entry, f: f}
	p.files[entry.Path] = file
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("open pack: %w", err)
	case !info.Mode().IsRegular():
		return p.damage(entry.Path, "", "a file", "a "+kindOf(info))
	case info.Size() != entry.SizeBytes:
		return p.damage(entry.Path, "", fmt.Sprintf("%d bytes", entry.SizeBytes), fmt.Sprintf("%d bytes", info.Size()))
	}
	path := filepath.Join(p.dir, filepath.FromSlash(entry.Path))
	if file.m, err = mmap.Open(path); err != nil {
		return fmt.Errorf("open pack: %w", err)
	}
	// The mapping was made by path: make sure that it is of the same file.
	again, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open pack: %w", err)
	}
	if !os.SameFile(info, again) || int64(file.m.Len()) != entry.SizeBytes {
		return p.damage(entry.Path, "", "a file that stays the same", "one that was replaced while it was opened")
	}
	return nil
}

// checkHeader holds the start of the weights file against what follows from the manifest.
func (p *Pack) checkHeader(got []byte) error {
	if want := p.layout.header; !bytes.Equal(got, want) {
		return p.damage(WeightsFile, "", "the header that follows from the manifest",
			fmt.Sprintf("another from byte %d on", commonPrefix(got, want)))
	}
	return nil
}

// Dir returns the folder that the pack was opened from.
func (p *Pack) Dir() string { return p.dir }

// Digest returns the sha256 of the manifest.
func (p *Pack) Digest() catalog.Digest { return p.digest }

// Manifest returns the parsed manifest, which must not be modified.
func (p *Pack) Manifest() *Manifest { return p.manifest }

// Info returns what plugins are told. Its bytes are mapped, read-only and valid
// until [Pack.Close]; Config is nil if the pack has no config.json.
func (p *Pack) Info() PackInfo {
	config, err := p.File(ConfigFile)
	if err != nil {
		config = nil
	}
	return PackInfo{Manifest: p.manifest, Config: config}
}

// Tensor returns a tensor's bytes, which are mapped, read-only and valid until
// [Pack.Close], its matrix, and whether there is a tensor of that name. Who retains the
// pack finds it after Close, too, and may use it until release.
func (p *Pack) Tensor(name string) (data []byte, m quant.Matrix, ok bool) {
	i, ok := p.tensors[name]
	if !ok || p.ended.Load() {
		return nil, quant.Matrix{}, false
	}
	t := &p.manifest.Tensors[i]
	end := t.Offset + t.SizeBytes()
	return p.weights[t.Offset:end:end], t.Matrix, true
}

// Mapping returns the weights file as it is mapped, which every tensor is a part
// of, or nil after [Pack.Close]. Its start lies at the start of a page. It is valid as
// long as what [Pack.Tensor] returns and must not be changed.
func (p *Pack) Mapping() []byte {
	if p.ended.Load() {
		return nil
	}
	return p.weights
}

// File returns the content of a file by its path in the pack. The bytes are mapped,
// read-only and valid until [Pack.Close]. A file that the manifest does not list is
// [ErrNotFound].
func (p *Pack) File(path string) ([]byte, error) {
	f, ok := p.files[path]
	switch {
	case !ok:
		return nil, fmt.Errorf("pack %q has no file %q: %w", p.dir, path, fault.ErrNotFound)
	case p.closed.Load():
		return nil, fmt.Errorf("pack %q: file %q: %w", p.dir, path, fs.ErrClosed)
	}
	return f.m.Bytes(), nil
}

// SizeBytes returns the size of all files of the pack, the manifest included.
func (p *Pack) SizeBytes() int64 {
	total := p.bytes
	for _, e := range p.manifest.Files {
		total += e.SizeBytes
	}
	return total
}

// Close ends all mappings, or has the last who retains the pack do so. Nobody else may
// use the pack's bytes afterwards. A second call does nothing.
func (p *Pack) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed.Store(true)
	p.end()
	return p.closeErr
}

// Retain implements backends.Retainer: tensors are found, and their bytes stay valid,
// until release is called.
func (p *Pack) Retain() (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return nil, fmt.Errorf("pack %q: %w", p.dir, fs.ErrClosed)
	}
	p.users++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.users--
		p.end()
	}), nil
}

// end ends the mappings of a closed pack that nobody retains. p.mu is locked.
func (p *Pack) end() {
	if !p.closed.Load() || p.users > 0 || p.ended.Swap(true) {
		return
	}
	var errs []error
	for _, f := range p.files {
		if f.m != nil {
			errs = append(errs, f.m.Close())
		}
		errs = append(errs, f.f.Close())
	}
	if p.root != nil {
		errs = append(errs, p.root.Close())
	}
	p.closeErr = errors.Join(errs...)
}
