package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	shard1 = "model-00001-of-00002.safetensors"
	shard2 = "model-00002-of-00002.safetensors"
)

// shards returns a checkpoint of two shards that hold "a" and "b", with an index of these members.
func shards(index ...string) map[string][]byte {
	return map[string][]byte{
		shard1:                         file(object(tensor("a", "U8", "[2]", 0, 2)), 2),
		shard2:                         file(object(tensor("b", "U8", "[3]", 0, 3)), 3),
		"model.safetensors.index.json": []byte(`{"metadata":{"total_size":5},"weight_map":{` + strings.Join(index, ",") + `}}`),
		"other.safetensors":            []byte("of no concern"),
	}
}

func TestOpenShards(t *testing.T) {
	c, err := checkpoint.Open(put(t, shards(`"a":"`+shard1+`"`, `"b":"`+shard2+`"`)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if diff := cmp.Diff([]string{"a", "b"}, c.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if b, _ := c.Tensor("b"); b.File != shard2 || len(b.Data) != 3 {
		t.Errorf("b: %+v", b)
	}
}

func TestShardsRefused(t *testing.T) {
	a, b := `"a":"`+shard1+`"`, `"b":"`+shard2+`"`
	with := func(files map[string][]byte, name string, data []byte) map[string][]byte {
		if data == nil {
			delete(files, name)
		} else {
			files[name] = data
		}
		return files
	}
	cases := []struct {
		name  string
		files map[string][]byte
		want  string
		kind  error
	}{
		{"shard missing", with(shards(a, b), shard2, nil), `no file "` + shard2 + `", which should hold tensor "b"`, fault.ErrNotFound},
		{"tensor in no shard", shards(a, b, `"c":"`+shard2+`"`), `tensor "c": the index says it is in "` + shard2 + `", which does not have it`, fault.ErrIntegrity},
		{"tensor not in the index", with(shards(a, b), shard2, file(object(tensor("b", "U8", "[1]", 0, 1), tensor("extra", "U8", "[1]", 1, 2)), 2)), `tensor "extra"`, fault.ErrIntegrity},
		{"tensor in the other shard", shards(`"a":"`+shard2+`"`, `"b":"`+shard1+`"`), `tensor "a": the index says it is in "` + shard2 + `", but it is in "` + shard1 + `"`, fault.ErrIntegrity},
		{"tensor in both shards", with(shards(a, b), shard2, file(object(tensor("a", "U8", "[1]", 0, 1), tensor("b", "U8", "[1]", 1, 2)), 2)), `tensor "a": the tensor is in`, fault.ErrIntegrity},
		{"shard that is not named", with(shards(a, b), "model-00003-of-00003.safetensors", file("{}", 0)), "the folder mixes two versions", fault.ErrIntegrity},
		{"damaged shard", with(shards(a, b), shard2, []byte("short")), `"` + shard2 + `": 5 bytes are too few`, fault.ErrIntegrity},
		{"path in the index", shards(a, `"b":"../`+shard2+`"`), "not the name of a shard", fault.ErrIntegrity},
		{"path for Windows", shards(a, `"b":"..\\`+shard2+`"`), "not the name of a shard", fault.ErrIntegrity},
		{"other file", shards(a, `"b":"config.json"`), "not the name of a shard", fault.ErrIntegrity},
		{"number", shards(a, `"b":5`), "not the name of a shard", fault.ErrIntegrity},
		{"tensor twice", shards(a, a, b), `tensor "a": the tensor occurs twice`, fault.ErrIntegrity},
		{"empty", shards(), "weight_map is empty", fault.ErrIntegrity},
		{"no map", with(shards(), "model.safetensors.index.json", []byte(`{"metadata":{}}`)), "weight_map is missing", fault.ErrIntegrity},
		{"two maps", with(shards(), "model.safetensors.index.json", []byte(`{"weight_map":{},"weight_map":{}}`)), "occurs twice", fault.ErrIntegrity},
		{"not JSON", with(shards(), "model.safetensors.index.json", []byte(`{`)), "JSON", fault.ErrIntegrity},
		{"not UTF-8", with(shards(), "model.safetensors.index.json", []byte("{\"\xff\":1}")), "UTF-8", fault.ErrIntegrity},
		{"neither", map[string][]byte{"config.json": nil}, `no file "model.safetensors"`, fault.ErrNotFound},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := checkpoint.Open(put(t, c.files))
			if err == nil {
				got.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, c.kind) || fault.Hint(err) == "" {
				t.Errorf("%v is not %v with a hint", err, c.kind)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
}

func TestOpenFolder(t *testing.T) {
	dir := put(t, map[string][]byte{"a.txt": nil})
	if _, err := checkpoint.Open(filepath.Join(dir, "none")); !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := checkpoint.Open(filepath.Join(dir, "a.txt")); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("a file: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "model.safetensors"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Open(dir); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("a folder in place of the weights: %v", err)
	}
}

func TestFile(t *testing.T) {
	dir := put(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": file("{}", 0)})
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if data, err := c.File("config.json"); err != nil || string(data) != "{}" {
		t.Errorf("config.json: %q, %v", data, err)
	}
	if _, err := c.File("none.json"); !errors.Is(err, fault.ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, name := range []string{"", ".", "..", "../" + filepath.Base(dir) + "/config.json", "/etc/passwd", "./config.json", "a/b"} {
		if _, err := c.File(name); !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("%q: %v", name, err)
		}
	}
	big, err := os.Create(filepath.Join(dir, "big.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	if err := big.Truncate(checkpoint.MaxFileBytes + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.File("big.json"); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("a file that is too large: %v", err)
	}
}

// TestLinks follows the links of the hub's cache and no others.
func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege here")
	}
	repository := t.TempDir()
	snapshot := filepath.Join(repository, "snapshots", "0123")
	for _, dir := range []string{snapshot, filepath.Join(repository, "blobs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		t.Helper()
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(repository, "blobs", "abc"), file(object(tensor("a", "U8", "[2]", 0, 2)), 2))
	link("../../blobs/abc", filepath.Join(snapshot, "model.safetensors"))
	secret := filepath.Join(t.TempDir(), "secret")
	write(secret, []byte("secret"))
	link(secret, filepath.Join(snapshot, "config.json"))
	link("../../../"+filepath.Base(filepath.Dir(secret))+"/secret", filepath.Join(snapshot, "tokenizer.json"))
	c, err := checkpoint.Open(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a, ok := c.Tensor("a"); !ok || len(a.Data) != 2 {
		t.Errorf("a: %+v", a)
	}
	for _, name := range []string{"config.json", "tokenizer.json"} {
		if data, err := c.File(name); err == nil {
			t.Errorf("%s leads to %q", name, data)
		}
	}
	// Outside of such a cache no link may leave the folder.
	plain := t.TempDir()
	write(filepath.Join(plain, "outside"), file("{}", 0))
	inside := filepath.Join(plain, "checkpoint")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	link("../outside", filepath.Join(inside, "model.safetensors"))
	if c, err := checkpoint.Open(inside); err == nil {
		c.Close()
		t.Error("a link that leads out of the folder is followed")
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":5},"weight_map":{"a":"` + shard1 + `","b":"` + shard2 + `"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{}} {}`))
	f.Add([]byte(`{"x":[[[[{}]]]],"weight_map":{"":".safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, err := checkpoint.ParseIndexForTest(text)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) {
				t.Fatalf("%v is no integrity error", err)
			}
			return
		}
		if len(files) == 0 {
			t.Fatal("an index of nothing")
		}
		for name, file := range files {
			if file != filepath.Base(file) || !filepath.IsLocal(file) || strings.ContainsAny(file, `/\`) {
				t.Fatalf("%q lies in %q", name, file)
			}
		}
	})
}
