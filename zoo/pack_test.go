package zoo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/quant"
	"github.com/zoo-sdk/zoo/zoo"
)

// testPlugin is the plugin of all packs in these tests.
var testPlugin = zoo.PluginID{Name: "testfamily", Version: "1.2.3"}

// testTensors has a tensor of every format, and some that need padding after them.
func testTensors() []zoo.PlannedTensor {
	return []zoo.PlannedTensor{
		{Name: "embed", Matrix: quant.Matrix{Format: quant.Int2, Layout: quant.Blocks, Rows: 40, Cols: 64}},
		{Name: "layers.0.qkv", Matrix: quant.Matrix{Format: quant.Int4, Layout: quant.Blocks, Rows: 33, Cols: 65}},
		{Name: "layers.0.gate/up", Matrix: quant.Matrix{Format: quant.Int4x32, Layout: quant.Blocks, Rows: 16, Cols: 64}},
		{Name: "norm", Matrix: quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 24}},
		{Name: "proj", Matrix: quant.Matrix{Format: quant.BF16, Layout: quant.Rows, Rows: 3, Cols: 5}},
		{Name: "ple", Matrix: quant.Matrix{Format: quant.Int8, Layout: quant.Rows, Rows: 7, Cols: 12}},
		{Name: "one", Matrix: quant.Matrix{Format: quant.BF16, Layout: quant.Rows, Rows: 1, Cols: 1}},
	}
}

// testSources are two files of a checkpoint.
func testSources() []catalog.File {
	return []catalog.File{
		{Path: "model.safetensors", SizeBytes: 4096, SHA256: strings.Repeat("ab", 32)},
		{Path: "config.json", SizeBytes: 17, SHA256: strings.Repeat("01", 32)},
	}
}

// packSpec is what buildPack writes. The zero value is a small pack.
type packSpec struct {
	seed   uint64
	plugin zoo.PluginID
	recipe map[string]string
	piece  int // bytes in a call of Write; 0 stands for the whole tensor
}

// data returns the bytes of a tensor.
func (s packSpec) data(t zoo.PlannedTensor) []byte {
	seed := sha256.Sum256(fmt.Appendf(nil, "%d %s", s.seed, t.Name))
	b := make([]byte, t.SizeBytes())
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// testFiles are the further files of all test packs.
var testFiles = map[string]string{
	zoo.ConfigFile:     `{"model_type": "testfamily"}`,
	zoo.TokenizerFile:  strings.Repeat("tokens ", 1000),
	zoo.GenerationFile: "",
	"extra/notes.txt":  "a file in a folder",
}

// write fills an empty folder with the pack.
func (s packSpec) write(dir string) (catalog.Digest, error) {
	if s.plugin == (zoo.PluginID{}) {
		s.plugin = testPlugin
	}
	w, err := zoo.NewPackWriter(dir, s.plugin, s.recipe, testSources())
	if err != nil {
		return "", err
	}
	defer w.Close()
	if err := w.Plan(testTensors()); err != nil {
		return "", err
	}
	for _, tensor := range testTensors() {
		err := w.WriteTensor(tensor.Name, func(out io.Writer) error {
			data := s.data(tensor)
			piece := s.piece
			if piece == 0 {
				piece = len(data)
			}
			for c := range slices.Chunk(data, piece) {
				if _, err := out.Write(c); err != nil {
					return err
				}
				clear(c) // the writer may not keep it
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	for path, content := range testFiles { // in any order
		if err := w.WriteFile(path, []byte(content)); err != nil {
			return "", err
		}
	}
	if err := w.SetConstants(map[string]float32{"layers.0.input_scale": 0.038878, "a": -1e-30, "zero": 0}); err != nil {
		return "", err
	}
	return w.Finish(context.Background())
}

// buildPack writes a pack into a new folder.
func buildPack(t testing.TB, s packSpec) (dir string, digest catalog.Digest) {
	t.Helper()
	dir = t.TempDir()
	digest, err := s.write(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, digest
}

// openPack opens a pack that is in order.
func openPack(t testing.TB, dir string) *zoo.Pack {
	t.Helper()
	p, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPackRoundTrip(t *testing.T) {
	spec := packSpec{seed: 1, recipe: map[string]string{"grid": "q4_0", "a": "<&>"}}
	dir, digest := buildPack(t, spec)
	p := openPack(t, dir)
	if p.Digest() != digest || p.Dir() != dir {
		t.Errorf("digest %s in %q, want %s in %q", p.Digest(), p.Dir(), digest, dir)
	}
	if err := p.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for _, want := range testTensors() {
		data, m, ok := p.Tensor(want.Name)
		if !ok || m != want.Matrix || !bytes.Equal(data, spec.data(want)) {
			t.Errorf("tensor %q: %v, %+v, %d bytes: not as written", want.Name, ok, m, len(data))
		}
		if cap(data) != len(data) {
			t.Errorf("tensor %q: the slice reaches beyond the tensor", want.Name)
		}
	}
	if _, _, ok := p.Tensor("none"); ok {
		t.Error("there is a tensor that was not written")
	}
	var size int64
	for path, want := range testFiles {
		got, err := p.File(path)
		if err != nil || string(got) != want {
			t.Errorf("file %q: %q, %v", path, got, err)
		}
	}
	if _, err := p.File(zoo.TemplateFile); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
	if got := p.Info(); string(got.Config) != testFiles[zoo.ConfigFile] || got.Manifest != p.Manifest() {
		t.Errorf("info has config %q", got.Config)
	}
	for _, path := range allFiles(t, dir) {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if p.SizeBytes() != size {
		t.Errorf("size %d, the files have %d", p.SizeBytes(), size)
	}
	m := p.Manifest()
	if diff := cmp.Diff(map[string]string{"grid": "q4_0", "a": "<&>"}, m.Recipe); diff != "" {
		t.Error(diff)
	}
	if len(m.Sources) != 2 || m.Sources[0].Path != "config.json" || m.Plugin != testPlugin {
		t.Errorf("manifest: %+v", m)
	}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := zoo.ParseManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, again); diff != "" {
		t.Error(diff)
	}
	if !bytes.HasSuffix(data, []byte("}\n")) || bytes.Contains(data, []byte(`\u0026`)) || !bytes.HasPrefix(data, []byte(`{"format":1,"plugin":`)) {
		t.Errorf("not the canonical form: %.80s", data)
	}
}

// The weights file is safetensors for anybody.
func TestPackIsSafetensors(t *testing.T) {
	spec := packSpec{seed: 2}
	dir, _ := buildPack(t, spec)
	path := filepath.Join(dir, zoo.WeightsFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size()%(16<<10) != 0 {
		t.Errorf("%d bytes are no multiple of 16 KiB", info.Size())
	}
	ckpt := t.TempDir()
	if err := os.Link(path, filepath.Join(ckpt, "model.safetensors")); err != nil {
		t.Skip(err)
	}
	c, err := checkpoint.Open(ckpt)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := openPack(t, dir)
	for i, want := range testTensors() {
		got, ok := c.Tensor(want.Name)
		if !ok || got.DType != checkpoint.U8 || !bytes.Equal(got.Data, spec.data(want)) {
			t.Errorf("tensor %q is not there as bytes", want.Name)
		}
		if off := p.Manifest().Tensors[i].Offset; off%64 != 0 {
			t.Errorf("tensor %q starts at %d", want.Name, off)
		}
	}
}

// Equal input gives equal bytes, however it is handed over; anything else does not.
func TestPackIsReproducible(t *testing.T) {
	dir, digest := buildPack(t, packSpec{seed: 3})
	// This digest may only change with PackFormat: others have it in their records.
	const pinned = catalog.Digest("sha256:ca91dfcbd623529c183bd040275eb193fc827eb0ef1877c56043e2e15d205710")
	if digest != pinned {
		t.Errorf("digest %s, it used to be %s", digest, pinned)
	}
	for _, piece := range []int{1, 7, 64, 1000} {
		other, got := buildPack(t, packSpec{seed: 3, piece: piece})
		if got != digest {
			t.Errorf("in pieces of %d: digest %s, want %s", piece, got, digest)
		}
		for _, path := range allFiles(t, dir) {
			if !bytes.Equal(readFile(t, dir, path), readFile(t, other, path)) {
				t.Errorf("in pieces of %d: %q differs", piece, path)
			}
		}
	}
	for name, spec := range map[string]packSpec{
		"other data":   {seed: 4},
		"other plugin": {seed: 3, plugin: zoo.PluginID{Name: "testfamily", Version: "1.2.4"}},
		"other recipe": {seed: 3, recipe: map[string]string{"grid": "none"}},
	} {
		if _, got := buildPack(t, spec); got == digest {
			t.Errorf("%s: the same digest", name)
		}
	}
}

// The manifest's digests are those of the bytes, as other tools compute them.
func TestPackDigests(t *testing.T) {
	dir, digest := buildPack(t, packSpec{seed: 5})
	p := openPack(t, dir)
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	if got := "sha256:" + sum(readFile(t, dir, zoo.ManifestFile)); got != string(digest) {
		t.Errorf("digest %s, sha256 %s", digest, got)
	}
	if got := string(readFile(t, dir, zoo.DigestFile)); got != string(digest)+"\n" {
		t.Errorf("%s holds %q", zoo.DigestFile, got)
	}
	for _, f := range p.Manifest().Files {
		if got := sum(readFile(t, dir, f.Path)); got != f.SHA256 {
			t.Errorf("file %q: %s, sha256 %s", f.Path, f.SHA256, got)
		}
	}
	weights := readFile(t, dir, zoo.WeightsFile)
	for _, tensor := range p.Manifest().Tensors {
		if got := sum(weights[tensor.Offset:][:tensor.SizeBytes()]); got != tensor.SHA256 {
			t.Errorf("tensor %q: %s, sha256 %s", tensor.Name, tensor.SHA256, got)
		}
	}
}

func TestPackAfterClose(t *testing.T) {
	dir, _ := buildPack(t, packSpec{})
	p, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, ok := p.Tensor("norm"); ok {
		t.Error("a closed pack has a tensor")
	}
	if _, err := p.File(zoo.ConfigFile); err == nil {
		t.Error("a closed pack has a file")
	}
	if p.Mapping() != nil {
		t.Error("a closed pack has a mapping")
	}
	if _, err := p.Retain(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed pack is retained: %v", err)
	}
}

// TestPackRetained looks tensors up and reads them before and after the pack was closed:
// they are there until the last who retains the pack has released it.
func TestPackRetained(t *testing.T) {
	dir, _ := buildPack(t, packSpec{})
	p, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, _, ok := p.Tensor("norm")
	if !ok {
		t.Fatal("no tensor")
	}
	want := bytes.Clone(data)
	first, err := p.Retain()
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Retain()
	if err != nil {
		t.Fatal(err)
	}
	first()
	first()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Retain(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed pack is retained: %v", err)
	}
	// Were it not retained this would be a fault that ends the test.
	if !bytes.Equal(data, want) || !mapped(t, dir, true) {
		t.Error("the tensor is not what it was")
	}
	if again, _, ok := p.Tensor("norm"); !ok || !bytes.Equal(again, want) || p.Mapping() == nil {
		t.Error("who retains a closed pack does not find its tensors")
	}
	second()
	if _, _, ok := p.Tensor("norm"); ok || p.Mapping() != nil {
		t.Error("a closed pack that nobody retains still gives tensors")
	}
	if mapped(t, dir, false) {
		t.Error("a closed pack that nobody retains is still mapped")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// mapped reports whether this process has mapped a file below a folder. Where the
// system does not tell, it is what the caller wants.
func mapped(t *testing.T, dir string, want bool) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if errors.Is(err, fs.ErrNotExist) {
		return want
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(maps, []byte(dir+"/"))
}

func TestOpenPackMissing(t *testing.T) {
	empty := t.TempDir()
	for name, dir := range map[string]string{"empty folder": empty, "no folder": filepath.Join(empty, "none")} {
		_, err := zoo.OpenPack(dir)
		if !errors.Is(err, zoo.ErrNotFound) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// misuse is a way to use a PackWriter that must fail.
func TestPackWriterMisuse(t *testing.T) {
	plan := testTensors()
	rename := func(name string) []zoo.PlannedTensor {
		tensors := testTensors()
		tensors[2].Name = name
		return tensors
	}
	write := func(w *zoo.PackWriter, name string, n int) error {
		return w.WriteTensor(name, func(out io.Writer) error {
			_, err := out.Write(make([]byte, n))
			return err
		})
	}
	first := plan[0]
	size := int(first.SizeBytes())
	all := func(w *zoo.PackWriter) error {
		for _, t := range plan {
			if err := write(w, t.Name, int(t.SizeBytes())); err != nil {
				return err
			}
		}
		return nil
	}
	boom := errors.New("boom")
	tests := map[string]func(w *zoo.PackWriter) error{
		"no tensors":         func(w *zoo.PackWriter) error { return w.Plan(nil) },
		"twice planned":      func(w *zoo.PackWriter) error { return errors.Join(w.Plan(plan), w.Plan(plan)) },
		"same name":          func(w *zoo.PackWriter) error { return w.Plan(rename("embed")) },
		"empty name":         func(w *zoo.PackWriter) error { return w.Plan(rename("")) },
		"name of the format": func(w *zoo.PackWriter) error { return w.Plan(rename("__metadata__")) },
		"name of padding":    func(w *zoo.PackWriter) error { return w.Plan(rename("__padding__.3")) },
		"long name":          func(w *zoo.PackWriter) error { return w.Plan(rename(strings.Repeat("a", 201))) },
		"name with a quote":  func(w *zoo.PackWriter) error { return w.Plan(rename(`a"b`)) },
		"bad matrix":         func(w *zoo.PackWriter) error { return w.Plan([]zoo.PlannedTensor{{Name: "a"}}) },
		"too large": func(w *zoo.PackWriter) error {
			m := quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1 << 24, Cols: 1 << 24}
			return w.Plan([]zoo.PlannedTensor{{Name: "a", Matrix: m}, {Name: "b", Matrix: m}})
		},
		"tensor before plan": func(w *zoo.PackWriter) error { return write(w, first.Name, size) },
		"finish before plan": func(w *zoo.PackWriter) error { return nil },
		"nothing written":    func(w *zoo.PackWriter) error { return w.Plan(plan) },
		"one is missing":     func(w *zoo.PackWriter) error { return errors.Join(w.Plan(plan), write(w, first.Name, size)) },
		"wrong order": func(w *zoo.PackWriter) error {
			return errors.Join(w.Plan(plan), write(w, plan[1].Name, int(plan[1].SizeBytes())))
		},
		"too short":    func(w *zoo.PackWriter) error { return errors.Join(w.Plan(plan), write(w, first.Name, size-1)) },
		"too long":     func(w *zoo.PackWriter) error { return errors.Join(w.Plan(plan), write(w, first.Name, size+1)) },
		"one too many": func(w *zoo.PackWriter) error { return errors.Join(w.Plan(plan), all(w), write(w, "more", 1)) },
		"source fails": func(w *zoo.PackWriter) error {
			return errors.Join(w.Plan(plan), w.WriteTensor(first.Name, func(io.Writer) error { return boom }))
		},
		"file twice":            func(w *zoo.PackWriter) error { return errors.Join(w.WriteFile("a", nil), w.WriteFile("a", nil)) },
		"file differs in case":  func(w *zoo.PackWriter) error { return errors.Join(w.WriteFile("a", nil), w.WriteFile("A", nil)) },
		"file in a file":        func(w *zoo.PackWriter) error { return errors.Join(w.WriteFile("a", nil), w.WriteFile("a/b", nil)) },
		"file outside":          func(w *zoo.PackWriter) error { return w.WriteFile("../a", nil) },
		"absolute file":         func(w *zoo.PackWriter) error { return w.WriteFile("/a", nil) },
		"file is the manifest":  func(w *zoo.PackWriter) error { return w.WriteFile("pack.json", nil) },
		"file is the digest":    func(w *zoo.PackWriter) error { return w.WriteFile("Pack.Digest", nil) },
		"file is the receipt":   func(w *zoo.PackWriter) error { return w.WriteFile("gate.json", nil) },
		"file is the weights":   func(w *zoo.PackWriter) error { return w.WriteFile("weights.safetensors", nil) },
		"constant is infinite":  func(w *zoo.PackWriter) error { return w.SetConstants(map[string]float32{"a": float32(inf())}) },
		"constant is no number": func(w *zoo.PackWriter) error { return w.SetConstants(map[string]float32{"a": float32(inf() - inf())}) },
		"constant without name": func(w *zoo.PackWriter) error { return w.SetConstants(map[string]float32{"": 1}) },
		"constant set twice": func(w *zoo.PackWriter) error {
			return errors.Join(w.SetConstants(map[string]float32{"a": 1}), w.SetConstants(map[string]float32{"a": 1}))
		},
	}
	for name, use := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w, err := zoo.NewPackWriter(dir, testPlugin, nil, testSources())
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			err = use(w)
			atFinish := slices.Contains([]string{"finish before plan", "nothing written", "one is missing"}, name)
			if (err == nil) != atFinish {
				t.Fatalf("got %v", err)
			}
			digest, ferr := w.Finish(t.Context())
			if ferr == nil || digest != "" {
				t.Fatalf("it finished, after %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), ferr.Error()) {
				t.Errorf("finish says %q, the first error was %q", ferr, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if _, err := zoo.OpenPack(dir); err == nil {
				t.Error("what it left opens as a pack")
			}
		})
	}
}

func TestNewPackWriterRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	source := func(f catalog.File) []catalog.File { return []catalog.File{f} }
	good := testSources()[0]
	tests := []struct {
		name    string
		dir     string
		id      zoo.PluginID
		recipe  map[string]string
		sources []catalog.File
	}{
		{name: "folder is not empty", dir: full},
		{name: "folder is missing", dir: filepath.Join(full, "none")},
		{name: "plugin name", id: zoo.PluginID{Name: "../a", Version: "1.0.0"}},
		{name: "plugin version", id: zoo.PluginID{Name: "a", Version: "1.0"}},
		{name: "recipe key", recipe: map[string]string{"": "a"}},
		{name: "recipe value", recipe: map[string]string{"a": "line\nbreak"}},
		{name: "source without digest", sources: source(catalog.File{Path: "a"})},
		{name: "source twice", sources: []catalog.File{good, good}},
		{name: "source outside", sources: source(catalog.File{Path: "../a", SHA256: good.SHA256})},
		{name: "negative size", sources: source(catalog.File{Path: "a", SizeBytes: -1, SHA256: good.SHA256})},
		{name: "upper-case digest", sources: source(catalog.File{Path: "a", SHA256: strings.Repeat("AB", 32)})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.dir == "" {
				tt.dir = t.TempDir()
			}
			if tt.id == (zoo.PluginID{}) {
				tt.id = testPlugin
			}
			if _, err := zoo.NewPackWriter(tt.dir, tt.id, tt.recipe, tt.sources); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestPackWriterAfterFinish(t *testing.T) {
	dir := t.TempDir()
	w, err := zoo.NewPackWriter(dir, testPlugin, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Plan(testTensors()[6:]); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteTensor("one", func(out io.Writer) error { _, err := out.Write([]byte{1, 2}); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = w.Finish(t.Context())
	for _, err := range []error{err, w.WriteFile("late", nil), w.Plan(testTensors()), w.SetConstants(nil)} {
		if !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("got %v", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := openAndVerify(dir); err != nil {
		t.Error(err)
	}
}

// Many pieces in flight: the digests must still be those of the bytes in order.
func TestPackWriterLarge(t *testing.T) {
	m := quant.Matrix{Format: quant.Int8, Layout: quant.Rows, Rows: 9001, Cols: 1001}
	small := quant.Matrix{Format: quant.F32, Layout: quant.Rows, Rows: 1, Cols: 3}
	dir := t.TempDir()
	w, err := zoo.NewPackWriter(dir, testPlugin, nil, testSources())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Plan([]zoo.PlannedTensor{{Name: "a", Matrix: m}, {Name: "b", Matrix: small}, {Name: "c", Matrix: m}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		err := w.WriteTensor(name, func(out io.Writer) error {
			n := m.SizeBytes()
			if name == "b" {
				n = small.SizeBytes()
			}
			r := rand.New(rand.NewPCG(1, uint64(name[0])))
			buf := make([]byte, 100_000)
			for n > 0 {
				piece := buf[:min(n, int64(1+r.IntN(len(buf))))]
				for i := range piece {
					piece[i] = byte(r.Uint32())
				}
				if _, err := out.Write(piece); err != nil {
					return err
				}
				n -= int64(len(piece))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last, total int64
	progress := func(done, of int64) {
		if done < last || done > of {
			t.Errorf("progress went from %d to %d of %d", last, done, of)
		}
		last, total = done, of
	}
	p := openPack(t, dir)
	if err := p.Verify(t.Context(), progress); err != nil {
		t.Error(err)
	}
	if last != total || total != p.SizeBytes() {
		t.Errorf("progress ended at %d of %d, the pack has %d bytes", last, total, p.SizeBytes())
	}
}

func TestFinishObeysContext(t *testing.T) {
	stop := errors.New("stop")
	dir := t.TempDir()
	w, err := zoo.NewPackWriter(dir, testPlugin, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Plan(testTensors()[3:4]); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteTensor("norm", func(out io.Writer) error { _, err := out.Write(make([]byte, 96)); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(cancelled(t, stop)); !errors.Is(err, stop) {
		t.Errorf("finish: %v", err)
	}
	good, _ := buildPack(t, packSpec{})
	if err := openPack(t, good).Verify(cancelled(t, stop), nil); !errors.Is(err, stop) {
		t.Errorf("verify: %v", err)
	}
}
