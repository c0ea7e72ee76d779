package gemma4_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/gemma4"
	"github.com/zoo-sdk/zoo/plugins/gemma4/gemma4test"
	"github.com/zoo-sdk/zoo/zoo"
)

// plugin is the identity that the packs of these tests carry.
var plugin = zoo.PluginID{Name: "gemma4e2b", Version: "1.0.0"}

// sources lists the files of a checkpoint's folder with their digests.
func sources(t testing.TB, dir string) []catalog.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []catalog.File
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, catalog.File{Path: e.Name(), SizeBytes: int64(len(data)), SHA256: catalog.DigestOf(data).Hex()})
	}
	return files
}

// request asks for the conversion of a checkpoint into a new folder.
func request(t testing.TB, dir string) zoo.ConvertRequest {
	t.Helper()
	return zoo.ConvertRequest{Checkpoint: dir, Sources: sources(t, dir), Dir: t.TempDir()}
}

// convert converts a checkpoint and opens the pack.
func convert(t testing.TB, dir string) *zoo.Pack { return convertTo(t, dir, nil) }

// recipe returns the recipe that a name asks for behind a slash, as in "e4b-tiny/q4_0".
func recipe(name string) map[string]string {
	if _, grid, ok := strings.Cut(name, "/"); ok {
		return map[string]string{"grid": grid}
	}
	return nil
}

// convertTo is convert with a recipe.
func convertTo(t testing.TB, dir string, recipe map[string]string) *zoo.Pack {
	t.Helper()
	req := request(t, dir)
	req.Recipe = recipe
	if _, err := gemma4.Convert(t.Context(), plugin, req); err != nil {
		t.Fatal(err)
	}
	pack, err := zoo.OpenPack(req.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pack.Close(); err != nil {
			t.Error(err)
		}
	})
	return pack
}

// made writes a random checkpoint and returns its folder.
func made(t testing.TB, s gemma4test.Sizes, opts gemma4test.Options) string {
	t.Helper()
	dir := t.TempDir()
	if err := gemma4test.Write(t.Context(), dir, s, opts); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reference returns the folder of a reference checkpoint; "demo" is the embedded one.
func reference(t testing.TB, name string) string {
	t.Helper()
	if name != "demo" {
		return filepath.Join("testdata", name)
	}
	files, err := catalog.Embedded("demo")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := fs.ReadFile(files, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tinyConfig returns the config.json of e2b-tiny with changes: dotted paths to
// values, where nil removes a field. The order of the rules stays.
func tinyConfig(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "e2b-tiny", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return edit(t, data, changes)
}

// edit changes fields of a JSON object by their dotted paths.
func edit(t testing.TB, data []byte, changes map[string]any) []byte {
	t.Helper()
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	for path, value := range changes {
		key, rest, nested := bytes.Cut([]byte(path), []byte("."))
		k := string(key)
		switch {
		case nested:
			inner := top[k]
			if inner == nil {
				inner = json.RawMessage("{}")
			}
			top[k] = edit(t, inner, map[string]any{string(rest): value})
		case value == nil:
			delete(top, k)
		default:
			raw, ok := value.(json.RawMessage)
			if !ok {
				var err error
				if raw, err = json.Marshal(value); err != nil {
					t.Fatal(err)
				}
			}
			top[k] = raw
		}
	}
	out, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
