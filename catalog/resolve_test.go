package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

func TestParseRef(t *testing.T) {
	tests := []struct {
		text string
		want catalog.Ref
		ok   bool
	}{
		{"demo", catalog.Ref{Name: "demo"}, true},
		{"Gemma-4-E2B", catalog.Ref{Name: "gemma-4-e2b"}, true},
		{" demo ", catalog.Ref{Name: "demo"}, true},
		{"gemma-4-e2b@^1.2", catalog.Ref{Name: "gemma-4-e2b", Constraint: "^1.2"}, true},
		{"a@1.0.0", catalog.Ref{Name: "a", Constraint: "1.0.0"}, true},
		{"a@>=1.0, <2 || ~3.1", catalog.Ref{Name: "a", Constraint: ">=1.0, <2 || ~3.1"}, true},
		{"a_b.c-d", catalog.Ref{Name: "a_b.c-d"}, true},
		{"", catalog.Ref{}, false},
		{"@1", catalog.Ref{}, false},
		{"a@", catalog.Ref{}, false},
		{"a@newest", catalog.Ref{}, false},
		{"a@1@2", catalog.Ref{}, false},
		{"a b", catalog.Ref{}, false},
		{"../a", catalog.Ref{}, false},
		{"-a", catalog.Ref{}, false},
		{"a.", catalog.Ref{}, false},
		{"ä", catalog.Ref{}, false},
		{"a\x00", catalog.Ref{}, false},
		{strings.Repeat("a", 65), catalog.Ref{}, false},
		{"a@" + strings.Repeat("1", 1000), catalog.Ref{}, false},
	}
	for _, test := range tests {
		got, err := catalog.ParseRef(test.text)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, fault.ErrUsage) {
			t.Errorf("ParseRef(%q): error %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("ParseRef(%q) (-want +got):\n%s", test.text, diff)
		}
		if test.ok {
			if again, err := catalog.ParseRef(got.String()); err != nil || again != got {
				t.Errorf("ParseRef(%q.String()) = %v, %v", test.text, again, err)
			}
		}
	}
}

func TestParsePluginRef(t *testing.T) {
	ref, err := catalog.ParsePluginRef("Gemma3@^1.2")
	if err != nil || ref != (catalog.PluginRef{Name: "gemma3", Constraint: "^1.2"}) || ref.String() != "gemma3@^1.2" {
		t.Errorf("reference %v, %v", ref, err)
	}
	for _, text := range []string{"", "quill@", "quill@newest", "../quill", strings.Repeat("q", 1000)} {
		_, err := catalog.ParsePluginRef(text)
		if !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), "plugin reference") || strings.Contains(fault.Hint(err), "gemma-4-e2b") {
			t.Errorf("%.20q: %v, hint %q", text, err, fault.Hint(err))
		}
	}
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"demo", "a@^1.2", "a@>=1.0, <2 || ~3", "@", "a@1.x - 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := catalog.ParseRef(s)
		if err != nil {
			if !errors.Is(err, fault.ErrUsage) {
				t.Errorf("error %v is not fault.ErrUsage", err)
			}
			return
		}
		if again, err := catalog.ParseRef(ref.String()); err != nil || again != ref {
			t.Errorf("%q parses as %v, which prints as %q and parses as %v, %v", s, ref, ref, again, err)
		}
	})
}

func TestResolve(t *testing.T) {
	text := "schema: 1\nmodels:\n" + modelText("m", "1.0.0", "1.2.0", "1.10.3", "2.0.0", "2.1.0-rc.2") + modelText("pre", "0.1.0-alpha")
	c, err := catalog.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, constraint, want string }{
		{"m", "", "2.0.0"},
		{"m", "*", "2.0.0"},
		{"m", "^1", "1.10.3"},
		{"m", "^1.2", "1.10.3"},
		{"m", "~1.2", "1.2.0"},
		{"m", "1.0.0", "1.0.0"},
		{"m", "<2", "1.10.3"},
		{"m", ">=1.1, <1.5", "1.2.0"},
		{"m", "~1.0 || ~1.2", "1.2.0"},
		{"m", "2.1.0-rc.2", "2.1.0-rc.2"},
		{"m", "^2.1.0-0", "2.1.0-rc.2"},
		{"m", "^2", "2.0.0"},
		{"m", "^3", ""},
		{"m", "2.1.0", ""},
		{"pre", "", ""},
		{"pre", "^0.1.0-0", "0.1.0-alpha"},
	}
	for _, test := range tests {
		r, err := c.Resolve(catalog.Ref{Name: test.name, Constraint: test.constraint})
		if test.want != "" {
			if err != nil || r.Version != test.want || r.Model != test.name {
				t.Errorf("%s@%s: %v, %v, want %s", test.name, test.constraint, r, err, test.want)
			}
			continue
		}
		var none *catalog.NoVersionError
		if !errors.As(err, &none) || !errors.Is(err, fault.ErrNotFound) || none.Name != test.name || none.Constraint != test.constraint {
			t.Errorf("%s@%s: %v, %v, want a NoVersionError", test.name, test.constraint, r, err)
			continue
		}
		if hint := fault.Hint(err); !strings.Contains(hint, none.Have[0]) || test.name == "m" && len(none.Have) != 5 {
			t.Errorf("%s@%s: hint %q, have %q", test.name, test.constraint, hint, none.Have)
		}
	}
	if _, err := c.Resolve(catalog.Ref{Name: "m", Constraint: "newest"}); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("bad constraint: %v", err)
	}
}

func TestSuggestions(t *testing.T) {
	c := builtin(t)
	tests := []struct {
		name string
		want []string
	}{
		{"gema-4-e2b", []string{"gemma-4-e2b", "gemma-4-e4b"}},
		{"gemma4-e4", []string{"gemma-4-e4b", "gemma-4-e2b", "gemma-3-1b"}},
		{"gemma", []string{"gemma-3-1b", "gemma-3-1b-q4_k_m", "gemma-3-270m"}},
		{"e2", []string{"gemma-4-e2b", "gemma-4-e4b"}},
		{"dmo", []string{"demo"}},
		{"llama-3-70b", nil},
		{strings.Repeat("x", 64), nil},
	}
	for _, test := range tests {
		_, err := c.Resolve(catalog.Ref{Name: test.name})
		var unknown *catalog.UnknownModelError
		if !errors.As(err, &unknown) || !errors.Is(err, fault.ErrNotFound) || unknown.Name != test.name {
			t.Errorf("%q: error %v, want an UnknownModelError", test.name, err)
			continue
		}
		if test.name == "dmo" {
			// Three letters are also near "e2b": only the first is certain.
			unknown.Suggestions = unknown.Suggestions[:1]
		}
		if diff := cmp.Diff(test.want, unknown.Suggestions); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.name, diff)
		}
		hint := fault.Hint(err)
		for _, s := range test.want {
			if !strings.Contains(hint, s) {
				t.Errorf("%q: hint %q lacks %q", test.name, hint, s)
			}
		}
		if hint == "" {
			t.Errorf("%q: no hint", test.name)
		}
	}
}

func TestValidatePath(t *testing.T) {
	good := []string{"a", "config.json", "a/b/c.txt", "model-00001-of-00002.safetensors", ".hidden", "a+b=c@d", "CON1", "console", strings.Repeat("x", 100)}
	bad := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "./a", `a\b`, `\\host\share`, "C:", "c:/a", "a:b", "a\x00b", "a\nb",
		"a b", "a?b", "a*b", "a%2fb", "ä", "a.", "a./b", "con", "CON", "aux.txt", "dir/NUL", "com1", "LPT9.x", "a.part", "a.PART", "a.part.json",
		strings.Repeat("x", 101), strings.Repeat("x/", 101) + "x",
	}
	for _, p := range good {
		if err := catalog.ValidatePath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range bad {
		err := catalog.ValidatePath(p)
		var invalid *catalog.InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, fault.ErrUsage) || invalid.What != "path" {
			t.Errorf("%q: %v, want an InvalidError", p, err)
		}
	}
}

func TestDigest(t *testing.T) {
	const empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := catalog.DigestOf(nil); got != empty {
		t.Errorf("DigestOf(nil) = %s", got)
	}
	d, err := catalog.ParseDigest(empty)
	if err != nil || d.String() != empty || d.Hex() != empty[7:] {
		t.Errorf("ParseDigest: %q, %v", d, err)
	}
	if catalog.Digest("").Hex() != "" {
		t.Error("the empty digest has hex digits")
	}
	for _, s := range []string{"", "sha256:", empty[7:], empty[:70], empty + "0", "sha1:" + empty[7:], strings.ToUpper(empty), "sha256:" + strings.Repeat("g", 64), strings.Repeat("x", 1<<20)} {
		if _, err := catalog.ParseDigest(s); !errors.Is(err, fault.ErrUsage) || len(err.Error()) > 500 {
			t.Errorf("ParseDigest(%.80q): %.200v", s, err)
		}
	}
}

func ExampleCatalog_Resolve() {
	c, err := catalog.Builtin()
	if err != nil {
		fmt.Println(err)
		return
	}
	ref, err := catalog.ParseRef("e2b@^1")
	if err != nil {
		fmt.Println(err)
		return
	}
	release, err := c.Resolve(ref)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(release.Model, release.Version, release.Source.Repository)
	_, err = c.Resolve(catalog.Ref{Name: "gema-4-e4b"})
	fmt.Println(err)
	fmt.Println(fault.Hint(err))
	// Output:
	// gemma-4-e2b 1.0.0 google/gemma-4-E2B-it-qat-mobile-transformers
	// no model is named "gema-4-e4b"
	// did you mean gemma-4-e4b or gemma-4-e2b?
}
