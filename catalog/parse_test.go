package catalog_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// minimal is the smallest useful catalog; tests replace parts of it.
const minimal = `schema: 1
models:
  - name: tiny
    title: A tiny one
    aliases: [small, wee]
    releases:
      - version: 1.0.0
        plugin: {name: p, constraint: ^1}
        licence: {spdx: MIT, url: "https://example.com/licence"}
        recipe: {grid: q4_0}
        gated: true
        pack: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
        source:
          kind: hub
          repository: owner/name
          revision: main
          files:
            - path: config.json
              size: 12
              sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
            - path: sub/model.safetensors
              optional: true
plugins:
  - name: p
    title: A family
    licence: {spdx: MIT, url: "https://example.com/code"}
    versions:
      - version: 1.1.0
        protocol: 7
        operations: 3
        binaries:
          - os: linux
            arch: amd64
            source: {kind: hub, repository: makers/p, revision: v1, files: [{path: bin/p, size: 34, sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}
          - os: windows
            arch: amd64
            source: {kind: hub, repository: makers/p, revision: v1, files: [{path: bin/p.exe, size: 56, sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}
`

func TestParse(t *testing.T) {
	got, err := catalog.Parse([]byte("# a comment\n---\n" + minimal))
	if err != nil {
		t.Fatal(err)
	}
	const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	want := &catalog.Catalog{Models: []catalog.Model{{
		Name: "tiny", Title: "A tiny one", Aliases: []string{"small", "wee"},
		Releases: []catalog.Release{{
			Model: "tiny", Version: "1.0.0", Plugin: catalog.PluginRef{Name: "p", Constraint: "^1"},
			Source: catalog.Source{Kind: catalog.KindHub, Repository: "owner/name", Revision: "main", Files: []catalog.File{
				{Path: "config.json", SizeBytes: 12, SHA256: sum},
				{Path: "sub/model.safetensors", Optional: true},
			}},
			Recipe:  map[string]string{"grid": "q4_0"},
			Licence: catalog.Licence{SPDX: "MIT", URL: "https://example.com/licence"},
			Gated:   true, Pack: "sha256:" + sum,
		}},
	}}, Plugins: []catalog.Plugin{{
		Name: "p", Title: "A family", Licence: catalog.Licence{SPDX: "MIT", URL: "https://example.com/code"},
		Versions: []catalog.PluginVersion{{Version: "1.1.0", Protocol: 7, Operations: 3, Binaries: []catalog.Binary{
			{OS: "linux", Arch: "amd64", Source: catalog.Source{Kind: catalog.KindHub, Repository: "makers/p", Revision: "v1", Files: []catalog.File{{Path: "bin/p", SizeBytes: 34, SHA256: sum}}}},
			{OS: "windows", Arch: "amd64", Source: catalog.Source{Kind: catalog.KindHub, Repository: "makers/p", Revision: "v1", Files: []catalog.File{{Path: "bin/p.exe", SizeBytes: 56, SHA256: sum}}}},
		}}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}
}

func TestParseSorts(t *testing.T) {
	text := "schema: 1\nmodels:\n" + modelText("b", "1.0.0", "1.10.0", "1.2.0", "1.10.0-rc.1") + modelText("a", "0.1.0")
	c, err := catalog.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	var names []string
	for _, m := range c.Models {
		names = append(names, m.Name)
		for _, r := range m.Releases {
			got[m.Name] = append(got[m.Name], r.Version)
		}
	}
	want := map[string][]string{"a": {"0.1.0"}, "b": {"1.10.0", "1.10.0-rc.1", "1.2.0", "1.0.0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// modelText is the YAML of a model with the given versions.
func modelText(name string, versions ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    title: t\n    releases:\n", name)
	for _, v := range versions {
		fmt.Fprintf(&b, "      - version: %s\n        plugin: {name: p, constraint: ^1}\n        licence: {spdx: MIT, url: \"https://example.com\"}\n"+
			"        source: {kind: embedded, repository: demo, files: [{path: config.json}]}\n", v)
	}
	return b.String()
}

func TestParseRefuses(t *testing.T) {
	// Each replaces one piece of the minimal catalog; the error must hold the words.
	edits := []struct{ name, old, new, words string }{
		{"unknown field", "title:", "titel:", "titel"},
		{"unknown field, nested", "optional:", "optinal:", "optinal"},
		{"repeated field", "    title: A tiny one\n", "    title: A tiny one\n    title: B\n", "title"},
		{"schema missing", "schema: 1\n", "", "version 0"},
		{"schema from the future", "schema: 1", "schema: 2", "version 2"},
		{"name missing", "name: tiny", "title2: x", "title2"},
		{"name empty", "name: tiny", `name: ""`, "empty"},
		{"name with capitals", "name: tiny", "name: Tiny", "Tiny"},
		{"name with an at sign", "name: tiny", "name: ti@ny", "ti@ny"},
		{"name with a slash", "name: tiny", "name: ti/ny", "ti/ny"},
		{"name too long", "name: tiny", "name: " + strings.Repeat("x", 65), "64"},
		{"alias of its own name", "[small, wee]", "[small, tiny]", "already"},
		{"alias twice", "[small, wee]", "[small, small]", "already"},
		{"title missing", "    title: A tiny one\n", "", "title"},
		{"title of another type", "title: A tiny one", "title: [a]", ""},
		{"description too long", "title: A tiny one", "title: x\n    description: " + strings.Repeat("x", 5000), "longer"},
		{"version missing", "version: 1.0.0", "version: \"\"", "version"},
		{"version not full", "version: 1.0.0", "version: \"1.0\"", "version"},
		{"version with a v", "version: 1.0.0", "version: v1.0.0", "version"},
		{"plugin missing", "plugin: {name: p, constraint: ^1}", "plugin: {}", "plugin"},
		{"constraint missing", ", constraint: ^1", "", "constraint"},
		{"constraint not understood", "constraint: ^1", "constraint: newest", "newest"},
		{"licence missing", `licence: {spdx: MIT, url: "https://example.com/licence"}`, "licence: {}", "SPDX"},
		{"licence odd", "spdx: MIT", `spdx: "MIT;"`, "SPDX"},
		{"licence address", "https://example.com/licence", "http://example.com/licence", "https"},
		{"licence address without a host", "https://example.com/licence", "https:///licence", "https"},
		{"recipe value", "grid: q4_0", `grid: "a b"`, "recipe"},
		{"recipe nested", "grid: q4_0", "grid: {a: b}", ""},
		{"pack digest", "pack: sha256:0", "pack: sha512:0", "sha512"},
		{"pack digest short", "pack: sha256:0123", "pack: sha256:123", "digest"},
		{"kind", "kind: hub", "kind: ftp", "ftp"},
		{"kind missing", "          kind: hub\n", "", "kind"},
		{"repository", "owner/name", "name", "owner/name"},
		{"repository leaves", "owner/name", "owner/..", "owner/name"},
		{"repository of three", "owner/name", "owner/name/more", "owner/name"},
		{"repository with a query", "owner/name", `"owner/name?x"`, "owner/name"},
		{"revision missing", "          revision: main\n", "", "revision"},
		{"revision leaves", "revision: main", "revision: ../main", "revision"},
		{"revision of an embedded source", "kind: hub\n          repository: owner/name", "kind: embedded\n          repository: demo", "revision"},
		{"no files", "files:", "files: []\n          extra:", "extra"},
		{"path missing", "path: config.json", "path: \"\"", "path"},
		{"path leaves", "path: config.json", "path: ../config.json", "path"},
		{"path twice", "path: sub/model.safetensors", "path: Config.json", "twice"},
		{"path under a file", "path: sub/model.safetensors", "path: config.json/x", "folder"},
		{"size negative", "size: 12", "size: -1", "size"},
		{"size absurd", "size: 12", "size: 9000000000000000000", "size"},
		{"size beyond 64 bits", "size: 12", "size: 99999999999999999999", ""},
		{"size a fraction", "size: 12", "size: 1.5", "whole"},
		{"size a text", "size: 12", "size: \"12\"", "whole"},
		{"schema a fraction", "schema: 1", "schema: 1.5", "whole"},
		{"sha256 short", "sha256: 0123456789", "sha256: 123456789", "sha256"},
		{"sha256 in capitals", "sha256: 0123456789abcdef", "sha256: 0123456789ABCDEF", "sha256"},
		{"anchor", "title: A tiny one", "title: &a A tiny one", "not part"},
		{"alias", "[small, wee]", "*a", "not part"},
		{"merge key", "    title: A tiny one\n", "    title: A\n    <<: {}\n", "not part"},
		{"tag", "title: A tiny one", "title: !!str A tiny one", "not part"},
		{"document before", "schema: 1", "schema: 1\n---\nschema: 1", "not part"},
		{"document after", "optional: true\n", "optional: true\n---\nschema: 1\n", "not part"},
		{"directive", "schema: 1", "%YAML 1.2\nschema: 1", "not part"},
		{"plugin of an unknown field", "protocol: 7", "protocoll: 7", "protocoll"},
		{"plugin name leaves", "- name: p\n", "- name: ../p\n", "name"},
		{"plugin without a title", "    title: A family\n", "", "title"},
		{"plugin licence", "https://example.com/code", "http://example.com/code", "https"},
		{"plugin version not full", "version: 1.1.0", "version: \"1.1\"", "version"},
		{"plugin version leaves", "version: 1.1.0", "version: ../1.1.0", "version"},
		{"plugin protocol missing", "        protocol: 7\n", "", "protocol"},
		{"plugin operations missing", "        operations: 3\n", "", "operations"},
		{"plugin operations negative", "operations: 3", "operations: -3", "operations"},
		{"plugin operations of no host", "operations: 3", "operations: 1001", "operations"},
		{"plugin protocol a fraction", "protocol: 7", "protocol: 7.5", "whole"},
		{"plugin system", "os: linux", "os: li/nux", "name"},
		{"plugin architecture missing", "            arch: amd64\n            source: {kind: hub, repository: makers/p, revision: v1, files: [{path: bin/p,", "            source: {kind: hub, repository: makers/p, revision: v1, files: [{path: bin/p,", "empty"},
		{"plugin binary twice", "os: windows", "os: linux", "twice"},
		{"plugin binary embedded", "{kind: hub, repository: makers/p, revision: v1, files: [{path: bin/p,", "{kind: embedded, repository: demo, files: [{path: bin/p,", "kind"},
		{"plugin binary without a size", "bin/p, size: 34,", "bin/p,", "size"},
		{"plugin binary too large", "bin/p, size: 34,", "bin/p, size: 999999999999,", "size"},
		{"plugin binary without a digest", ", size: 56, sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ", size: 56", "sha256"},
		{"plugin binary path leaves", "path: bin/p,", "path: ../p,", "path"},
		{"plugin binary of two files", "files: [{path: bin/p,", "files: [{path: bin/q}, {path: bin/p,", "one file"},
		{"plugin binary optional", "{path: bin/p,", "{optional: true, path: bin/p,", "one file"},
	}
	for _, test := range edits {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(minimal, test.old) {
				t.Fatalf("the minimal catalog has no %q", test.old)
			}
			expectSchemaError(t, strings.Replace(minimal, test.old, test.new, 1), test.words)
		})
	}
	twice := "schema: 1\nmodels:\n" + modelText("a", "1.0.0")
	texts := []struct{ name, text, words string }{
		{"empty", "", "version 0"},
		{"a number", "17", ""},
		{"a list", "- schema", ""},
		{"not UTF-8", "schema: 1\nmodels: \xff\xfe", ""},
		{"unbalanced", "schema: [1", ""},
		{"no releases", "schema: 1\nmodels:\n  - name: a\n    title: t\n", "releases"},
		{"plugin twice", minimal + minimal[strings.Index(minimal, "  - name: p\n"):], "twice"},
		{"plugin version twice", minimal + minimal[strings.Index(minimal, "      - version: 1.1.0"):], "twice"},
		{"no plugin versions", "schema: 1\nplugins:\n  - name: a\n    title: t\n", "versions"},
		{"no binaries", "schema: 1\nplugins:\n  - name: a\n    title: t\n    licence: {spdx: MIT, url: \"https://example.com\"}\n    versions: [{version: 1.0.0, protocol: 1, operations: 1}]\n", "binaries"},
		{"model twice", twice + modelText("a", "2.0.0"), "already"},
		{"version twice", "schema: 1\nmodels:\n" + modelText("a", "1.0.0", "1.0.0"), "twice"},
		{"version twice but for the build", "schema: 1\nmodels:\n" + modelText("a", "1.0.0+a", "1.0.0+b"), "twice"},
		{"too large", "schema: 1\n#" + strings.Repeat("x", 5<<20), "more than"},
		{"flow lists nested", "schema: 1\nmodels: " + strings.Repeat("[", 100_000), "nested"},
		{"flow maps nested", "schema: 1\nmodels: " + strings.Repeat("{a: ", 100_000), "nested"},
		{"block lists nested", "schema: 1\nmodels: \n" + strings.Repeat("- ", 100_000) + "x", "nested"},
		{"maps nested in one line", "schema: 1\nmodels: \n" + strings.Repeat("? ", 100_000) + "x", ""},
		{"blocks nested", nestedBlocks(200), "nested"},
		{"many keys", manyKeys(50_000), "more than"},
		{"many keys in a flow map", "schema: 1\nmodels: [{" + strings.Repeat("a: 1, ", 50_000) + "}]", "more than"},
		{"many items", "schema: 1\nmodels:\n" + strings.Repeat("-\n", 50_000), "more than"},
		{"many items in a flow list", "schema: 1\nmodels: [" + strings.Repeat("a,", 50_000) + "]", "more than"},
	}
	for _, test := range texts {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			expectSchemaError(t, test.text, test.words)
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
}

// manyKeys is a map of n different keys.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	return b.String()
}

// nestedBlocks is a map in a map, and so on, each on its own line.
func nestedBlocks(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// expectSchemaError checks that a text is refused with a SchemaError that holds words.
func expectSchemaError(t *testing.T, text, words string) {
	t.Helper()
	c, err := catalog.Parse([]byte(text))
	var schema *catalog.SchemaError
	switch {
	case err == nil:
		t.Fatalf("accepted: %+v", c)
	case !errors.As(err, &schema) || !errors.Is(err, fault.ErrIntegrity) || errors.Is(err, fault.ErrUsage):
		t.Errorf("error %v is no SchemaError of fault.ErrIntegrity alone", err)
	case !strings.Contains(err.Error(), words):
		t.Errorf("error %q lacks %q", err, words)
	case fault.Hint(err) == "":
		t.Error("no hint")
	case len(err.Error()) > 1000:
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestSchemaErrorPlace(t *testing.T) {
	_, err := catalog.Parse([]byte(strings.Replace(minimal, "path: config.json", "path: /config.json", 1)))
	const want = `catalog: model "tiny" release "1.0.0" source: path "/config.json": it has an empty element`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// FuzzParse checks that no text makes Parse panic or hang, and that what it accepts
// follows the rules.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("schema: 1\nmodels:\n" + modelText("a", "1.0.0", "2.0.0-rc.1") + modelText("b", "0.0.1")))
	f.Add([]byte("schema: 1\nmodels: []\n"))
	f.Add([]byte(minimal[:strings.Index(minimal, "models:")] + minimal[strings.Index(minimal, "plugins:"):]))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? - ? {[: }\n"))
	f.Add([]byte("- |\n  x\n- >-\n  y\n- \"\\x00\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := catalog.Parse(data)
		if err != nil {
			var schema *catalog.SchemaError
			if !errors.As(err, &schema) {
				t.Errorf("error %v is no SchemaError", err)
			}
			return
		}
		for _, p := range c.Plugins {
			checkPlugin(t, c, p)
		}
		for _, m := range c.Models {
			r, err := c.Resolve(catalog.Ref{Name: m.Name, Constraint: "=" + m.Releases[0].Version})
			if err != nil {
				t.Errorf("accepted model %q does not resolve: %v", m.Name, err)
				continue
			}
			if err := r.Source.Validate(); err != nil {
				t.Errorf("accepted source: %v", err)
			}
			for _, name := range append([]string{m.Name}, m.Aliases...) {
				if ref, err := catalog.ParseRef(name); err != nil || ref.Name != name {
					t.Errorf("accepted name %q parses as %v, %v", name, ref, err)
				}
			}
		}
	})
}

// checkPlugin holds an accepted plugin against the rules.
func checkPlugin(t *testing.T, c *catalog.Catalog, p catalog.Plugin) {
	if found := c.FindPlugin(p.Name); found == nil || found.Name != p.Name || catalog.ValidateName(p.Name) != nil {
		t.Errorf("accepted plugin %q is not found", p.Name)
	}
	for _, v := range p.Versions {
		for _, b := range v.Binaries {
			if err := b.Source.Validate(); err != nil || v.Protocol < 1 || v.Operations < 1 {
				t.Errorf("accepted plugin %q %q of protocol %d, operations %d: %v", p.Name, v.Version, v.Protocol, v.Operations, err)
			}
			if f := b.File(); f.SizeBytes <= 0 || len(f.SHA256) != 64 {
				t.Errorf("accepted binary %+v is not pinned", f)
			}
		}
	}
}

func TestBinary(t *testing.T) {
	here := catalog.Binary{OS: runtime.GOOS, Arch: runtime.GOARCH}
	other := catalog.Binary{OS: "plan9", Arch: "mips"}
	got, err := catalog.PluginVersion{Version: "1.0.0", Binaries: []catalog.Binary{other, here}}.Binary("p")
	if err != nil || got.OS != here.OS || got.Arch != here.Arch {
		t.Errorf("binary %v, %v", got, err)
	}
	_, err = catalog.PluginVersion{Version: "1.0.0", Binaries: []catalog.Binary{other}}.Binary("p")
	if !errors.Is(err, fault.ErrNotFound) || !strings.Contains(fault.Hint(err), "plan9/mips") {
		t.Errorf("error %v with hint %q", err, fault.Hint(err))
	}
}
