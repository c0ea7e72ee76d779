package zoo_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// cancelled returns a context that has ended with a cause.
func cancelled(t testing.TB, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

func inf() float64 { return math.Inf(1) }

// allFiles lists the files below a folder by their slash-separated paths.
func allFiles(t testing.TB, dir string) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readFile(t testing.TB, dir, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, dir, path string, data []byte) {
	t.Helper()
	name := filepath.Join(dir, path)
	if info, err := os.Stat(name); err == nil {
		if err := os.Chmod(name, info.Mode()|0o200); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// openAndVerify opens a pack and reads it through.
func openAndVerify(dir string) error {
	p, err := zoo.OpenPack(dir)
	if err != nil {
		return err
	}
	return errors.Join(p.Verify(context.Background(), nil), p.Close())
}

// tensorAt returns the tensor at an offset of the weights file, or "".
func tensorAt(m *zoo.Manifest, offset int) string {
	for _, t := range m.Tensors {
		if o := int64(offset); o >= t.Offset && o < t.Offset+t.SizeBytes() {
			return t.Name
		}
	}
	return ""
}

// A flipped bit anywhere is found, and the file and the tensor are named.
func TestFlippedBits(t *testing.T) {
	dir, _ := buildPack(t, packSpec{seed: 6})
	p, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := p.Manifest()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, path := range allFiles(t, dir) {
		data := readFile(t, dir, path)
		var bits []int
		switch path {
		case zoo.DigestFile:
			for i := range 8 * len(data) {
				bits = append(bits, i)
			}
		case zoo.ManifestFile:
			for i := 0; i < len(data); i += 1 + r.IntN(5) {
				bits = append(bits, 8*i+r.IntN(8))
			}
		case zoo.WeightsFile:
			// Both ends of the header, and of every tensor and every padding.
			for _, tensor := range m.Tensors {
				first, end := int(tensor.Offset), int(tensor.Offset+tensor.SizeBytes())
				for _, at := range []int{first - 1, first, end - 1, end, end + 1} {
					bits = append(bits, 8*at+r.IntN(8))
				}
			}
			for _, at := range []int{0, 7, 8, 9, len(data) - 1} {
				bits = append(bits, 8*at+r.IntN(8))
			}
			for range 100 {
				bits = append(bits, r.IntN(8*len(data)))
			}
		default:
			for range min(8*len(data), 40) {
				bits = append(bits, r.IntN(8*len(data)))
			}
		}
		for _, bit := range bits {
			at := bit / 8
			data[at] ^= 1 << (bit % 8)
			writeFile(t, dir, path, data)
			err := openAndVerify(dir)
			data[at] ^= 1 << (bit % 8)
			damage, ok := errors.AsType[*zoo.DamageError](err)
			if !ok || !errors.Is(err, zoo.ErrIntegrity) || zoo.Hint(err) == "" {
				t.Fatalf("%s, byte %d: %v", path, at, err)
			}
			tensor := ""
			if path == zoo.WeightsFile {
				tensor = tensorAt(m, at)
			}
			if damage.File != path || damage.Tensor != tensor || damage.Pack != dir {
				t.Fatalf("%s, tensor %q, byte %d: reported as %+v", path, tensor, at, damage)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%s, byte %d: one damage, two errors: %v", path, at, err)
			}
		}
		writeFile(t, dir, path, data)
	}
	if err := openAndVerify(dir); err != nil {
		t.Errorf("all bits are back: %v", err)
	}
}

// A file that is cut or grows while the pack is open is an error, not a fault.
func TestVerifyOfChangedSizes(t *testing.T) {
	for _, path := range []string{zoo.WeightsFile, zoo.ConfigFile, zoo.TokenizerFile} {
		dir, _ := buildPack(t, packSpec{})
		p := openPack(t, dir)
		data := readFile(t, dir, path)
		for _, size := range []int{0, 5, len(data) - 1, len(data) + 1} {
			if err := os.Truncate(filepath.Join(dir, path), int64(size)); err != nil {
				t.Fatal(err)
			}
			err := p.Verify(t.Context(), nil)
			if !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s with %d of %d bytes: %v", path, size, len(data), err)
			}
		}
		writeFile(t, dir, path, data)
	}
	// The manifest of an open pack goes, or becomes that of another pack.
	dir, _ := buildPack(t, packSpec{})
	other, _ := buildPack(t, packSpec{seed: 1})
	p := openPack(t, dir)
	sign(t, dir, readFile(t, other, zoo.ManifestFile))
	if d, ok := errors.AsType[*zoo.DamageError](p.Verify(t.Context(), nil)); !ok || d.File != zoo.ManifestFile {
		t.Errorf("another manifest: %v", d)
	}
	if err := os.Remove(filepath.Join(dir, zoo.ManifestFile)); err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(t.Context(), nil); err == nil {
		t.Error("no manifest, no error")
	}
}

// Several damages are all named.
func TestSeveralDamages(t *testing.T) {
	dir, _ := buildPack(t, packSpec{seed: 7})
	p := openPack(t, dir)
	weights := readFile(t, dir, zoo.WeightsFile)
	for _, tensor := range p.Manifest().Tensors[1:3] {
		weights[tensor.Offset] ^= 1
	}
	weights[len(weights)-1] = 1
	writeFile(t, dir, zoo.WeightsFile, weights)
	writeFile(t, dir, zoo.ConfigFile, []byte(strings.ToUpper(testFiles[zoo.ConfigFile])))
	err := p.Verify(t.Context(), nil)
	var got []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		d := e.(*zoo.DamageError)
		got = append(got, strings.TrimSuffix(d.File+" "+d.Tensor, " "))
	}
	want := "config.json, weights.safetensors layers.0.qkv, weights.safetensors layers.0.gate/up, weights.safetensors"
	if strings.Join(got, ", ") != want {
		t.Errorf("found %q, want %q", strings.Join(got, ", "), want)
	}
}

// A file that is gone, cut, longer, a folder or a link to elsewhere is found when the pack is opened.
func TestChangedFiles(t *testing.T) {
	changes := map[string]func(t *testing.T, path string){
		"missing": func(t *testing.T, path string) {},
		"empty or one byte": func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"folder": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"link to elsewhere": func(t *testing.T, path string) {
			other := filepath.Join(t.TempDir(), "other")
			if err := os.Rename(path+".old", other); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(other, path); err != nil {
				t.Skip(err)
			}
		},
	}
	names := append([]string{zoo.DigestFile, zoo.WeightsFile}, keys(testFiles)...)
	for change, apply := range changes {
		for _, name := range names {
			t.Run(change+" "+name, func(t *testing.T) {
				dir, _ := buildPack(t, packSpec{})
				path := filepath.Join(dir, name)
				if err := os.Rename(path, path+".old"); err != nil {
					t.Fatal(err)
				}
				apply(t, path)
				p, err := zoo.OpenPack(dir)
				if err == nil {
					p.Close()
					t.Fatal("it opens")
				}
				if damage, ok := errors.AsType[*zoo.DamageError](err); change != "link to elsewhere" && (!ok || damage.File != name) {
					t.Errorf("reported as %v", err)
				}
				if !strings.Contains(err.Error(), filepath.Base(name)) {
					t.Errorf("the error does not name the file: %v", err)
				}
			})
		}
	}
}

func keys[V any](m map[string]V) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	return names
}

// sign makes a folder's manifest valid to its digest file.
func sign(t testing.TB, dir string, manifest []byte) {
	t.Helper()
	writeFile(t, dir, zoo.ManifestFile, manifest)
	writeFile(t, dir, zoo.DigestFile, []byte(string(catalog.DigestOf(manifest))+"\n"))
}

// Manifests that lie, with a digest that agrees with them.
func TestHostileManifests(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, old) {
				panic(fmt.Sprintf("the manifest has no %q", old))
			}
			return strings.Replace(s, old, new, 1)
		}
	}
	dir, _ := buildPack(t, packSpec{recipe: map[string]string{"grid": "q4_0"}})
	good := string(readFile(t, dir, zoo.ManifestFile))
	p, err := zoo.OpenPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := p.Manifest()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	offset := func(i int) string { return fmt.Sprintf(`"offset":%d`, m.Tensors[i].Offset) }
	weights := fmt.Sprintf(`"path":"weights.safetensors","size":%d`, m.Files[len(m.Files)-1].SizeBytes)
	if !strings.Contains(good, weights) {
		t.Fatal("the weights are not last")
	}
	tests := []struct {
		name   string
		change func(string) string
		want   string // part of the error
	}{
		{"newer format", replace(`"format":1`, `"format":2`), "format 2"},
		{"newer format of another shape", func(string) string { return `{"format":7,"tensors":"elsewhere"}` + "\n" }, "format 7"},
		{"format 0", replace(`"format":1`, `"format":0`), "format 0"},
		{"format is text", replace(`"format":1`, `"format":"1"`), "cannot unmarshal"},
		{"format is huge", replace(`"format":1`, `"format":99999999999999999999`), "cannot unmarshal"},
		{"format comes later", replace(`"format":1,`, ``), "does not start with the format"},
		{"empty", func(string) string { return "" }, "unexpected EOF"},
		{"not JSON", func(string) string { return "pack" }, "invalid character"},
		{"list", func(string) string { return "[]\n" }, "in place of"},
		{"null", func(string) string { return "null\n" }, "in place of"},
		{"cut", func(s string) string { return s[:len(s)/2] }, "EOF"},
		{"deeply nested", func(s string) string { return `{"format":1,"plugin":` + strings.Repeat("[", 100_000) }, ""},
		{"more follows", func(s string) string { return s + "{}\n" }, "canonical"},
		{"space", replace(`"format":1,`, `"format":1, `), "canonical"},
		{"no newline", func(s string) string { return strings.TrimSuffix(s, "\n") }, "canonical"},
		{"member twice", replace(`"format":1,`, `"format":1,"constants":{},`), "canonical"},
		{"key twice", replace(`"zero":0`, `"zero":0,"zero":0`), "canonical"},
		{"unknown member", replace(`"format":1,`, `"format":1,"extra":0,`), "not known"},
		{"unknown field", replace(`"path":"config.json"`, `"path":"config.json","mode":7`), "unknown field"},
		{"other case", replace(`"plugin":`, `"Plugin":`), "not known"},
		{"null list", replace(`"sources":[`, `"sources":null,"old":[`), "in place of"},
		{"plugin without version", replace(`"version":"1.2.3"`, `"version":""`), "version"},
		{"plugin of an odd name", replace(`"name":"testfamily"`, `"name":"Test Family"`), "name"},
		{"recipe with control characters", replace(`"grid":"q4_0"`, `"grid":"q4\u0000"`), "printable"},
		{"path leaves the folder", replace(`"path":"extra/notes.txt"`, `"path":"../notes.txt"`), "path"},
		{"absolute path", replace(`"path":"extra/notes.txt"`, `"path":"/etc/passwd"`), "path"},
		{"path with a drive", replace(`"path":"extra/notes.txt"`, `"path":"c:notes.txt"`), "path"},
		{"path with a backslash", replace(`"path":"extra/notes.txt"`, `"path":"extra\\notes.txt"`), "path"},
		{"device", replace(`"path":"extra/notes.txt"`, `"path":"extra/nul"`), "device"},
		{"same file twice", replace(`"path":"extra/notes.txt"`, `"path":"config.json"`), "twice"},
		{"not sorted", replace(`"path":"extra/notes.txt"`, `"path":"a"`), "out of order"},
		{"only case differs", replace(`"path":"config.json","size":28`, `"path":"Extra/notes.txt","size":28`), "only in case"},
		{"file in a file", replace(`"path":"generation_config.json"`, `"path":"extra/Notes.txt/x"`), "out of order"},
		{"file in a file, sorted", replace(`"path":"generation_config.json"`, `"path":"extra/notes.txt/x"`), "lies in another"},
		{"lists the manifest", replace(`"path":"tokenizer.bin"`, `"path":"pack.json"`), "own files"},
		{"lists the receipt", replace(`"path":"extra/notes.txt"`, `"path":"gate.json"`), "own files"},
		{"negative size", replace(`"path":"config.json","size":28`, `"path":"config.json","size":-1`), "size -1"},
		{"other size", replace(`"path":"config.json","size":28`, `"path":"config.json","size":27`), "27 bytes"},
		{"absurd size", replace(`"path":"config.json","size":28`, `"path":"config.json","size":9223372036854775807`), "size"},
		{"size is a fraction", replace(`"path":"config.json","size":28`, `"path":"config.json","size":28.5`), "cannot unmarshal"},
		{"short digest", replace(m.Files[0].SHA256, "ab"), "sha256"},
		{"digest in upper case", replace(m.Files[0].SHA256, strings.ToUpper(m.Files[0].SHA256)), "sha256"},
		{"no weights", replace(`"path":"weights.safetensors"`, `"path":"weights2.safetensors"`), "lists no"},
		{"weights of another size", replace(weights, `"path":"weights.safetensors","size":16384`), "its tensors need"},
		{"tensor beyond the end", replace(offset(6), `"offset":1048576`), "starts at byte"},
		{"tensor at a negative offset", replace(offset(6), `"offset":-64`), "starts at byte"},
		{"tensor at no multiple of 64", replace(offset(1), fmt.Sprintf(`"offset":%d`, m.Tensors[1].Offset+1)), "starts at byte"},
		{"tensors overlap", replace(offset(1), offset(0)), "starts at byte"},
		{"tensor of another shape", replace(`"rows":33`, `"rows":49`), "starts at byte"},
		{"tensor of a huge shape", replace(`"rows":33`, `"rows":4611686018427387904`), "shape"},
		{"tensor of no shape", replace(`"rows":33`, `"rows":0`), "shape"},
		{"tensor of large shape", replace(`"rows":33`, `"rows":16777216`), ""},
		{"tensor of an unknown format", replace(`"bits":2`, `"bits":3`), "3 bits"},
		{"tensor of an unknown layout", replace(`"layout":"blocks16"`, `"layout":"blocks17"`), "layout"},
		{"tensor name twice", replace(`"name":"proj"`, `"name":"norm"`), "twice"},
		{"other tensor name", replace(`"name":"proj"`, `"name":"pron"`), "header"},
		{"name of padding", replace(`"name":"proj"`, `"name":"__padding__.1"`), "reserved"},
		{"no tensors", func(s string) string {
			return s[:strings.Index(s, `"tensors":[`)] + `"tensors":[],` + s[strings.Index(s, `"constants"`):]
		}, "without tensors"},
		{"infinite constant", replace(`"zero":0`, `"zero":1e999`), ""},
		{"constant beyond float32", replace(`"zero":0`, `"zero":1e39`), ""},
		{"constant is text", replace(`"zero":0`, `"zero":"0"`), ""},
		{"constant too exact", replace(`0.038878`, `0.0388780000000001`), "canonical"},
		{"huge", func(s string) string { return s + strings.Repeat(" ", 17<<20) }, "at most"},
		{"many empty tensors", func(s string) string {
			return `{"format":1,"tensors":[` + strings.Repeat("{},", 4<<20) + "{}]}\n"
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sign(t, dir, []byte(tt.change(good)))
			err := openAndVerify(dir)
			if !errors.Is(err, zoo.ErrIntegrity) || zoo.Hint(err) == "" || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want an integrity error with %q", err, tt.want)
			}
			if !strings.Contains(fmt.Sprint(err), dir) {
				t.Errorf("the error does not name the pack: %v", err)
			}
		})
	}
	sign(t, dir, []byte(good))
	if err := openAndVerify(dir); err != nil {
		t.Errorf("as it was: %v", err)
	}
}

// A digest in a manifest that is wrong from the start is found by reading.
func TestWrongDigestsInManifest(t *testing.T) {
	dir, _ := buildPack(t, packSpec{})
	p := openPack(t, dir)
	good := string(readFile(t, dir, zoo.ManifestFile))
	digests := map[string]string{}
	for _, f := range p.Manifest().Files {
		digests[f.SHA256] = f.Path
	}
	for _, tensor := range p.Manifest().Tensors {
		digests[tensor.SHA256] = tensor.Name
	}
	for digest, name := range digests {
		sign(t, dir, []byte(strings.Replace(good, digest, strings.Repeat("0", 64), 1)))
		err := openAndVerify(dir)
		if _, ok := errors.AsType[*zoo.DamageError](err); !ok || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	dir, _ := buildPack(f, packSpec{recipe: map[string]string{"grid": "q4_0"}})
	good := readFile(f, dir, zoo.ManifestFile)
	f.Add(good)
	f.Add([]byte(`{"format":1,"plugin":{"name":"a","version":"1.0.0"},"sources":[],"files":[],"tensors":[],"constants":{}}` + "\n"))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"tensors":[{"name":"a","bits":4,"scale":"f32","layout":"rows","rows":16777216,"cols":16777216,"offset":0,"sha256":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := zoo.ParseManifest(data)
		if err != nil {
			if !errors.Is(err, zoo.ErrIntegrity) {
				t.Errorf("not an integrity error: %v", err)
			}
			return
		}
		again, err := m.Encode()
		if err != nil || string(again) != string(data) {
			t.Errorf("accepted %q, which encodes as %q, %v", data, again, err)
		}
		for _, tensor := range m.Tensors {
			if tensor.Offset%64 != 0 || tensor.SizeBytes() <= 0 {
				t.Errorf("accepted tensor %+v", tensor)
			}
		}
	})
}
