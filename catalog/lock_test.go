package catalog_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	sumA    = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	sumB    = "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	commitA = "0123456789abcdef0123456789abcdef01234567"
	commitB = "1123456789abcdef0123456789abcdef01234567"
)

// lockText is a lock file of one model, for the release of minimal; tests replace parts of it.
const lockText = `{
  "schema": 1,
  "models": [
    {
      "name": "tiny",
      "version": "1.0.0",
      "source": {
        "kind": "hub",
        "repository": "owner/name",
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "files": [
          {
            "path": "config.json",
            "size": 12,
            "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
          }
        ]
      },
      "recipe": {
        "grid": "q4_0"
      },
      "plugin": {
        "name": "p",
        "version": "1.1.0"
      },
      "pack": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    }
  ],
  "plugins": [
    {
      "name": "p",
      "version": "1.1.0",
      "programs": [
        {
          "os": "linux",
          "arch": "amd64",
          "size": 34,
          "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        }
      ]
    }
  ]
}
`

func parseLock(t testing.TB, text string) *catalog.Lock {
	t.Helper()
	l, err := catalog.ParseLock([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLockText checks that what is read is written again, byte for byte, and sorted.
func TestLockText(t *testing.T) {
	l := parseLock(t, lockText)
	text, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lockText, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	more := *l.Model("tiny")
	more.Name = "other"
	more.Source.Files = append([]catalog.File{{Path: "z", SHA256: sumB}}, more.Source.Files...)
	l.Set(more, *l.Plugin("p", "1.1.0"))
	text, err = l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if at := bytes.Index(text, []byte(`"other"`)); at < 0 || at > bytes.Index(text, []byte(`"tiny"`)) || bytes.Index(text, []byte(`"z"`)) < bytes.Index(text, []byte(`"config.json"`)) {
		t.Errorf("not sorted:\n%s", text)
	}
	if diff := cmp.Diff(l, parseLock(t, string(text))); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if empty, err := (&catalog.Lock{}).Encode(); err != nil || !strings.Contains(string(empty), `"models": []`) {
		t.Errorf("an empty lock is %s, %v", empty, err)
	}
}

func TestParseLockRefused(t *testing.T) {
	tests := map[string]struct{ old, new, want string }{
		"no JSON":              {lockText, "tiny = 1", "invalid character"},
		"cut":                  {"\n  ]\n}\n", "", "unexpected EOF"},
		"more":                 {"\n  ]\n}\n", "\n  ]\n}\n{}", "follows"},
		"another schema":       {`"schema": 1`, `"schema": 2`, "schema version 2"},
		"no schema":            {`  "schema": 1,`, "", "schema version 0"},
		"unknown field":        {`"recipe"`, `"receipt"`, "unknown field"},
		"a name":               {`"name": "tiny"`, `"name": "../tiny"`, "name"},
		"a version":            {`"version": "1.0.0"`, `"version": "1.0"`, "full semantic version"},
		"a plugin's version":   {`"version": "1.1.0",` + "\n      \"programs\"", `"version": "^1",` + "\n      \"programs\"", "full semantic version"},
		"a path":               {`"path": "config.json"`, `"path": "../config.json"`, "path"},
		"no digest":            {`"size": 12,` + "\n" + `            "sha256": "` + sumA + `"`, `"size": 12`, "no digest"},
		"an optional file":     {`"size": 12`, `"optional": true, "size": 12`, "optional"},
		"a digest":             {`"sha256": "0123`, `"sha256": "0X23`, "sha256"},
		"a negative size":      {`"size": 12`, `"size": -12`, "size"},
		"no file":              {`{` + "\n" + `            "path": "config.json",` + "\n" + `            "size": 12,` + "\n" + `            "sha256": "` + sumA + `"` + "\n          }", "", "number of files"},
		"a repository":         {`"repository": "owner/name"`, `"repository": "name"`, "repository"},
		"a revision":           {`"revision": "0123`, `"revision": "../0123`, "revision"},
		"a kind":               {`"kind": "hub"`, `"kind": "ftp"`, "kind"},
		"a recipe":             {`"grid": "q4_0"`, `"grid": "q4 0"`, "setting"},
		"a pack":               {`"pack": "sha256:`, `"pack": "md5:`, "digest"},
		"a plugin of a model":  {`"name": "p",` + "\n        \"version\"", `"name": "q",` + "\n        \"version\"", "not listed"},
		"a system":             {`"os": "linux"`, `"os": ""`, "name"},
		"an empty program":     {`"size": 34`, `"size": 0`, "size"},
		"a huge program":       {`"size": 34`, `"size": 99999999999999`, "size"},
		"a model twice":        {`  "models": [`, `  "models": [` + lockText[strings.Index(lockText, "\n    {"):strings.Index(lockText, "\n  ],")] + ",", "twice"},
		"a plugin twice":       {`  "plugins": [`, `  "plugins": [{"name": "p", "version": "1.1.0"},`, "twice"},
		"a program twice":      {`"programs": [`, `"programs": [{"os": "linux", "arch": "amd64", "size": 1, "sha256": "` + sumB + `"},`, "twice"},
		"a file twice":         {`"files": [`, `"files": [{"path": "Config.json", "size": 1, "sha256": "` + sumB + `"},`, "twice"},
		"too large":            {lockText, lockText + strings.Repeat(" ", catalog.MaxLockBytes), "more than"},
		"a size that is text":  {`"size": 12`, `"size": "12"`, "cannot unmarshal"},
		"a field twice":        {`"name": "tiny",`, `"name": "other", "name": "tiny",`, "stands twice"},
		"a list twice":         {`  "plugins"`, `  "Plugins": [], "plugins"`, "stands twice"},
		"folded letters":       {`"pack":`, `"PACK":`, "spelled otherwise"},
		"another place":        {`"schema": 1,`, `"plugins": [], "schema": 1,`, "another place"},
		"a plugin of no model": {`  "plugins": [`, `  "plugins": [{"name": "q", "version": "1.1.0"},`, "no model has"},
		"nested without end":   {lockText, strings.Repeat("[", 100_000), "exceeded max depth"},
		"an overlong revision": {`"revision": "0123`, `"revision": "` + strings.Repeat("a", 1000), "revision"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(lockText, test.old, test.new, 1)
			if text == lockText {
				t.Fatal("nothing is replaced")
			}
			_, err := catalog.ParseLock([]byte(text))
			var schema *catalog.LockSchemaError
			if !errors.As(err, &schema) || !errors.Is(err, fault.ErrIntegrity) || fault.Hint(err) == "" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v (hint %q), want a LockSchemaError with %q", err, fault.Hint(err), test.want)
			}
		})
	}
}

func TestLockNarrow(t *testing.T) {
	l := parseLock(t, lockText)
	tests := []struct {
		ref, want string
		kind      error
	}{
		{"tiny", "tiny@=1.0.0", nil},
		{"tiny@^1", "tiny@=1.0.0", nil},
		{"tiny@=1.0.0", "tiny@=1.0.0", nil},
		{"tiny@^2", "", fault.ErrNotFound},
		{"tiny@>1", "", fault.ErrNotFound},
		{"other", "other", nil},
		{"other@^2", "other@^2", nil},
	}
	for _, test := range tests {
		ref, err := catalog.ParseRef(test.ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Narrow(ref)
		if !errors.Is(err, test.kind) || err == nil && got.String() != test.want {
			t.Errorf("%s: %v, %v, want %s, %v", test.ref, got, err, test.want, test.kind)
		}
		if err != nil && !strings.Contains(fault.Hint(err), "zoo lock '"+test.ref+"'") {
			t.Errorf("%s: hint %q", test.ref, fault.Hint(err))
		}
		if none, err := (*catalog.Lock)(nil).Narrow(ref); err != nil || none != ref {
			t.Errorf("%s without a lock: %v, %v", test.ref, none, err)
		}
	}
}

func TestLockPin(t *testing.T) {
	release := func() *catalog.Release {
		c, err := catalog.Parse([]byte(minimal))
		if err != nil {
			t.Fatal(err)
		}
		return resolve(t, c, "tiny")
	}
	got := release()
	if err := parseLock(t, lockText).Pin(got); err != nil {
		t.Fatal(err)
	}
	want := release()
	want.Source.Revision = commitA
	want.Source.Files = want.Source.Files[:1] // the optional one was not there
	want.Plugin.Constraint = "=1.1.0"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pinned (-want +got):\n%s", diff)
	}
	free := release()
	free.Model = "free"
	if err := parseLock(t, lockText).Pin(free); err != nil || free.Source.Revision != "main" {
		t.Errorf("a model that is not locked: %v, %+v", err, free)
	}

	// Nothing but what the catalog allows.
	tests := map[string]struct {
		change func(m *catalog.LockedModel, r *catalog.Release)
		want   string
	}{
		"another version":    {func(m *catalog.LockedModel, _ *catalog.Release) { m.Version = "1.0.1" }, "version"},
		"another kind":       {func(m *catalog.LockedModel, _ *catalog.Release) { m.Source.Kind = catalog.KindEmbedded }, "kind of source"},
		"another repository": {func(m *catalog.LockedModel, _ *catalog.Release) { m.Source.Repository = "evil/name" }, "repository"},
		"another commit":     {func(_ *catalog.LockedModel, r *catalog.Release) { r.Source.Revision = commitB }, "revision"},
		"a branch":           {func(m *catalog.LockedModel, _ *catalog.Release) { m.Source.Revision = "refs/pr/1" }, "revision"},
		"another recipe":     {func(m *catalog.LockedModel, _ *catalog.Release) { m.Recipe = map[string]string{"grid": "absmax7"} }, "recipe"},
		"no recipe":          {func(m *catalog.LockedModel, _ *catalog.Release) { m.Recipe = nil }, "recipe"},
		"another plugin":     {func(m *catalog.LockedModel, _ *catalog.Release) { m.Plugin.Name = "q" }, "plugin"},
		"an older plugin":    {func(m *catalog.LockedModel, _ *catalog.Release) { m.Plugin.Version = "0.9.0" }, "plugin"},
		"another pack":       {func(m *catalog.LockedModel, _ *catalog.Release) { m.Pack = "sha256:" + sumB }, "pack"},
		"another digest":     {func(m *catalog.LockedModel, _ *catalog.Release) { m.Source.Files[0].SHA256 = sumB }, "file config.json"},
		"another size":       {func(m *catalog.LockedModel, _ *catalog.Release) { m.Source.Files[0].SizeBytes = 13 }, "file config.json"},
		"a missing file":     {func(m *catalog.LockedModel, _ *catalog.Release) { m.Source.Files[0].Path = "other.json" }, `file "config.json"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l, r := parseLock(t, lockText), release()
			test.change(&l.Models[0], r)
			before := release()
			test.change(&parseLock(t, lockText).Models[0], before)
			err := l.Pin(r)
			var locked *catalog.LockError
			if !errors.As(err, &locked) || !errors.Is(err, fault.ErrIntegrity) || locked.Name != "tiny" || !strings.Contains(locked.Reason, test.want) || fault.Hint(err) == "" {
				t.Errorf("got %v, want a LockError about the %s", err, test.want)
			}
			if diff := cmp.Diff(before, r); diff != "" {
				t.Errorf("the release has changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLockAdmits(t *testing.T) {
	l := parseLock(t, lockText)
	l.Plugins = append(l.Plugins, catalog.LockedPlugin{LockedVersion: catalog.LockedVersion{Name: "inner", Version: "1.0.0"}})
	tests := []struct {
		name, version, system, arch, sum string
		ok                               bool
	}{
		{"p", "1.1.0", "linux", "amd64", sumA, true},
		{"p", "1.1.0", "linux", "amd64", sumB, false},
		{"p", "1.1.0", "darwin", "amd64", sumA, false},
		{"p", "1.1.0", "linux", "arm64", sumA, false},
		{"p", "1.1.0", "linux", "amd64", "", false},
		{"p", "1.2.0", "linux", "amd64", sumB, true},
		{"q", "1.1.0", "linux", "amd64", sumB, true},
		{"inner", "1.0.0", "linux", "amd64", "", true},
		{"inner", "1.0.0", "linux", "amd64", sumA, false},
	}
	for _, test := range tests {
		err := l.Admits(test.name, test.version, test.system, test.arch, test.sum)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, fault.ErrIntegrity) {
			t.Errorf("%+v: %v", test, err)
		}
		if err := (*catalog.Lock)(nil).Admits(test.name, test.version, test.system, test.arch, test.sum); err != nil {
			t.Errorf("%+v without a lock: %v", test, err)
		}
	}
}

// TestLockSet checks what becomes of programs for other machines, and of plugins that
// nobody has any more.
func TestLockSet(t *testing.T) {
	linux := catalog.LockedProgram{OS: "linux", Arch: "amd64", SizeBytes: 34, SHA256: sumA}
	darwin := catalog.LockedProgram{OS: "darwin", Arch: "arm64", SizeBytes: 35, SHA256: sumA}
	linuxB := catalog.LockedProgram{OS: "linux", Arch: "amd64", SizeBytes: 34, SHA256: sumB}
	tests := map[string]struct{ have, set, want []catalog.LockedProgram }{
		"another machine":       {[]catalog.LockedProgram{linux}, []catalog.LockedProgram{darwin}, []catalog.LockedProgram{darwin, linux}},
		"the same":              {[]catalog.LockedProgram{linux, darwin}, []catalog.LockedProgram{linux}, []catalog.LockedProgram{darwin, linux}},
		"another program":       {[]catalog.LockedProgram{linux, darwin}, []catalog.LockedProgram{linuxB}, []catalog.LockedProgram{linuxB}},
		"built in from now on":  {[]catalog.LockedProgram{linux}, nil, nil},
		"no longer built in":    {nil, []catalog.LockedProgram{linux}, []catalog.LockedProgram{linux}},
		"another and a new one": {[]catalog.LockedProgram{linux}, []catalog.LockedProgram{linuxB, darwin}, []catalog.LockedProgram{darwin, linuxB}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := parseLock(t, lockText)
			l.Plugins[0].Programs = test.have
			l.Set(*l.Model("tiny"), catalog.LockedPlugin{LockedVersion: l.Plugins[0].LockedVersion, Programs: test.set})
			if diff := cmp.Diff(test.want, l.Plugin("p", "1.1.0").Programs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(l.Models) != 1 || len(l.Plugins) != 1 {
				t.Errorf("%d models, %d plugins", len(l.Models), len(l.Plugins))
			}
		})
	}
	l := parseLock(t, lockText)
	m := *l.Model("tiny")
	m.Plugin.Version = "1.2.0"
	l.Set(m, catalog.LockedPlugin{LockedVersion: m.Plugin, Programs: []catalog.LockedProgram{linuxB}})
	if l.Plugin("p", "1.1.0") != nil || l.Plugin("p", "1.2.0") == nil {
		t.Errorf("plugins are %+v", l.Plugins)
	}
	if l.Remove("none") || !l.Remove("tiny") || len(l.Models)+len(l.Plugins) != 0 {
		t.Errorf("after the removal: %+v", l)
	}
}

func FuzzParseLock(f *testing.F) {
	f.Add([]byte(lockText))
	f.Add([]byte(`{"schema": 1, "models": [], "plugins": null}`))
	f.Add([]byte(`{"schema": 1, "models": [], "plugins": [{"name": "p", "version": "1.0.0-rc.1"}]}`))
	c, err := catalog.Parse([]byte(minimal))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := catalog.ParseLock(data)
		if err != nil {
			if !errors.Is(err, fault.ErrIntegrity) {
				t.Errorf("error %v is not fault.ErrIntegrity", err)
			}
			return
		}
		text, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := catalog.ParseLock(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(text, twice) {
			t.Errorf("%v\n%s\nis read as\n%s", err, text, twice)
		}
		r := resolve(t, c, "tiny")
		listed := resolve(t, c, "tiny")
		if l.Pin(r) == nil && (r.Source.Repository != listed.Source.Repository || !maps.Equal(r.Recipe, listed.Recipe) || r.Pack != listed.Pack || r.Source.Validate() != nil) {
			t.Errorf("pinned to %+v", r)
		}
	})
}
