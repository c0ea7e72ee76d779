package sdk_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// signer is somebody who makes catalogs.
type signer struct {
	// key is the public key.
	key    string
	secret minisign.PrivateKey
}

// newSigner makes a pair of keys.
func newSigner(t *testing.T) signer {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{public.String(), private}
}

// sign writes the signature of a file beside it.
func (s signer) sign(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := minisign.NewReader(bytes.NewReader(data))
	if _, err := new(bytes.Buffer).ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+catalog.SignatureSuffix, r.SignWithComments(s.secret, "as of a test", ""), 0o600); err != nil {
		t.Fatal(err)
	}
}

// signed writes the signature of a catalog beside it, and returns the option that asks for it.
func signed(t *testing.T, file string) sdk.Option {
	t.Helper()
	s := newSigner(t)
	s.sign(t, file)
	return sdk.WithCatalogKeys(s.key)
}

// TestCatalogKeys checks that a catalog is taken only with the signature that the keys ask for.
func TestCatalogKeys(t *testing.T) {
	t.Parallel()
	maker, other := newSigner(t), newSigner(t)
	whole := func(t *testing.T, file string) { maker.sign(t, file) }
	write := func(t *testing.T, file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		keys    []string
		prepare func(t *testing.T, file string)
		want    error
		text    string
		hint    string
	}{
		"no key, no signature": {nil, func(*testing.T, string) {}, nil, "", ""},
		"no key, signature":    {nil, whole, nil, "", ""},
		"signed":               {[]string{maker.key}, whole, nil, "", ""},
		"one of two keys":      {[]string{other.key, maker.key}, whole, nil, "", ""},
		"missing":              {[]string{maker.key}, func(*testing.T, string) {}, zoo.ErrIntegrity, "there is none", ".minisig"},
		"another key":          {[]string{other.key}, whole, zoo.ErrIntegrity, "it is by key " + id(t, maker.key) + ", not by " + id(t, other.key), "--catalog-key"},
		"catalog changed": {[]string{maker.key}, func(t *testing.T, file string) {
			maker.sign(t, file)
			write(t, file, plainModels("other"))
		}, zoo.ErrIntegrity, "has not signed this catalog", "sign it anew"},
		"cut": {[]string{maker.key}, func(t *testing.T, file string) {
			maker.sign(t, file)
			if err := os.Truncate(file+catalog.SignatureSuffix, 150); err != nil {
				t.Fatal(err)
			}
		}, zoo.ErrIntegrity, "incomplete", "again"},
		"empty": {[]string{maker.key}, func(t *testing.T, file string) { write(t, file+catalog.SignatureSuffix, "") }, zoo.ErrIntegrity, "there is none", ".minisig"},
		"huge": {[]string{maker.key}, func(t *testing.T, file string) {
			write(t, file+catalog.SignatureSuffix, strings.Repeat("x", 1<<20))
		}, zoo.ErrIntegrity, "1048576 bytes, more than 16384", "again"},
		"folder": {[]string{maker.key}, func(t *testing.T, file string) {
			if err := os.Mkdir(file+catalog.SignatureSuffix, 0o700); err != nil {
				t.Fatal(err)
			}
		}, zoo.ErrUsage, "is not a file", "again"},
		"signed, and no catalog": {[]string{maker.key}, func(t *testing.T, file string) {
			write(t, file, "schema: 2\n")
			maker.sign(t, file)
		}, zoo.ErrIntegrity, "schema", "correct the catalog"},
		"no catalog": {[]string{maker.key}, func(t *testing.T, file string) { _ = os.Remove(file) }, zoo.ErrNotFound, "no file", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := tinyCatalog(t, catalogPlugins(runtime.GOOS, runtime.GOARCH))
			test.prepare(t, file)
			z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithOffline(), sdk.WithCatalog(file), sdk.WithCatalogKeys(test.keys...))
			if err != nil {
				t.Fatal(err)
			}
			_, err = z.Models(t.Context())
			if !errors.Is(err, test.want) || err != nil && (!strings.Contains(err.Error(), test.text) || !strings.Contains(zoo.Hint(err), test.hint)) {
				t.Errorf("models: %v, hint %q", err, zoo.Hint(err))
			}
			if _, err := z.InstallPlugin(t.Context(), "tinyfam"); test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("installation: %v", err)
			}
			d, err := z.Doctor(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			key := ""
			if test.want == nil && test.keys != nil {
				key = id(t, maker.key)
			}
			if d.CatalogFile != file || d.CatalogKey != key || (key != "") != (d.CatalogComment == "as of a test") || (test.want != nil) != (len(d.Problems) > 0) {
				t.Errorf("diagnosis: %q, key %q, comment %q, problems %q", d.CatalogFile, d.CatalogKey, d.CatalogComment, d.Problems)
			}
		})
	}

	if _, err := sdk.New(sdk.WithCatalogKeys(maker.key, "minisign.pub")); !errors.Is(err, zoo.ErrUsage) || !strings.Contains(zoo.Hint(err), "last line") {
		t.Errorf("no key: %v, hint %q", err, zoo.Hint(err))
	}
	z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithCatalogKeys(maker.key))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Models(t.Context()); err != nil {
		t.Errorf("the catalog in the binary: %v", err)
	}
	if _, err := z.Open(t.Context(), "demo", sdk.WithCatalogKeys(other.key)); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a key of one call: %v", err)
	}
}

// id returns the ID of a key.
func id(t *testing.T, key string) string {
	t.Helper()
	k, err := catalog.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return k.ID()
}

// TestUnsignedPlugin checks that the programs of a catalog that nobody vouches for are not installed.
func TestUnsignedPlugin(t *testing.T) {
	t.Parallel()
	file := tinyCatalog(t, catalogPlugins(runtime.GOOS, runtime.GOARCH))
	home := filepath.Join(t.TempDir(), "home")
	z, err := sdk.New(sdk.WithHome(home), sdk.WithOffline(), sdk.WithCatalog(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"tinyfam", "tinyfam@3.0.0", "tinyfam@^3"} {
		_, err := z.InstallPlugin(t.Context(), ref)
		var unsigned *sdk.UnsignedPluginError
		if !errors.As(err, &unsigned) || !errors.Is(err, zoo.ErrNotPermitted) || unsigned.Plugin != (zoo.PluginID{Name: "tinyfam", Version: "3.0.0"}) {
			t.Errorf("%s: %v", ref, err)
		}
		if hint := zoo.Hint(err); !strings.Contains(hint, "--catalog-key") || !strings.Contains(hint, "zoo plugin install --from FILE") {
			t.Errorf("%s: hint %q", ref, hint)
		}
	}
	// What could not be installed in any case is said first.
	for _, ref := range []string{"tinyfam@3.1.0", "tinyfam@3.2.0", "tinyfam@3.3.0", "tinyfam@9", "other"} {
		if _, err := z.InstallPlugin(t.Context(), ref); !errors.Is(err, zoo.ErrNotFound) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if e := findPlugin(t, z, "3.0.0"); e.State != sdk.PluginUnusable || !strings.Contains(e.Why, "signature") {
		t.Errorf("listed as %+v", e)
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the store was made: %v", err)
	}
}
