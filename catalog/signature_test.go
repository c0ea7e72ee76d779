package catalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// A catalog that minisign 0.11 has signed, with its key, and once more in the format of
// its first versions.
const (
	signedText = `schema: 1
models: []
plugins:
  - name: p
    title: A family
    licence: {spdx: MIT, url: "https://example.com/code"}
    versions:
      - version: 1.0.0
        protocol: 1
        operations: 1
        binaries:
          - os: linux
            arch: amd64
            source: {kind: hub, repository: makers/p, revision: v1, files: [{path: p, size: 34, sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}
`
	signerKey  = "RWQoXkikCWkRIYoNTf7SdAmBBOxLAK6eigVEcgC4XWI8Qmc7+ONBDl2Z"
	signerID   = "21116909A4485E28"
	otherKey   = "RWSHIGi5XxtDvhw0L/jY4MwPO7xij9Ux6TP5lMlr9YDL2CcheBPT7wvc"
	otherID    = "BE431B5FB9682087"
	signedHash = "untrusted comment: signature from minisign secret key\n" +
		"RUQoXkikCWkRIZ1Re3/KPu+YIGgPKgNlu9EoFPCR0Y1Nb3xEWQ48NmqIsrvqqruBL7Buwwikk11ERMsV7IGPeR9Oar2jZYMjHg0=\n" +
		"trusted comment: timestamp:1796018556\tfile:catalog.yaml\thashed\n" +
		"UxKqy5vAWFlN6ckBFucYa0J0BJymP2wDSpRZmU09ySonuJp/zLqo8McZ1jOx2ageBHZfu1zAzui+q8MmvZJBDQ==\n"
	signedPlain = "untrusted comment: signature from minisign secret key\n" +
		"RWQoXkikCWkRIWqrKyNzFJd4iQS5J4ZMJ8qVpkF1rJVeWEwzZnRYqE9d3oz3ef6UnPSJhN8sSuzpJpHQoCZPPi2l0RHRMBY8Eg8=\n" +
		"trusted comment: timestamp:1796018556\tfile:catalog.yaml\n" +
		"S/65kfQ2Zgwxql+jfIA2eLZ3KChE/DY74CSJQOXaVYM2MRVY6+3Y/1dW4KZ66QvjjNAvcx2fiMiy87Cx24hmCA==\n"
)

// mustKey reads a key.
func mustKey(t testing.TB, text string) catalog.Key {
	t.Helper()
	k, err := catalog.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// newSigner returns a key, and what signs with it and this comment.
func newSigner(t testing.TB) (catalog.Key, func(data, comment string) string) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return mustKey(t, public.String()), func(data, comment string) string {
		r := minisign.NewReader(strings.NewReader(data))
		if _, err := new(bytes.Buffer).ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		return string(r.SignWithComments(private, comment, "from a test"))
	}
}

// claim returns a signature with the ID of the key that has made another one.
func claim(t *testing.T, signature, other string) string {
	t.Helper()
	var s, o minisign.Signature
	if err := errors.Join(s.UnmarshalText([]byte(signature)), o.UnmarshalText([]byte(other))); err != nil {
		t.Fatal(err)
	}
	s.KeyID = o.KeyID
	return s.String()
}

func TestParseKey(t *testing.T) {
	k := mustKey(t, " "+signerKey+"\n")
	if k.ID() != signerID || k.String() != signerKey {
		t.Errorf("key %v, %v", k.ID(), k)
	}
	for name, text := range map[string]string{
		"empty":       "",
		"file":        "minisign.pub",
		"both lines":  "untrusted comment: minisign public key\n" + signerKey,
		"short":       signerKey[:55],
		"long":        signerKey + "A",
		"two words":   signerKey[:27] + "\n" + signerKey[28:],
		"not base64":  strings.Repeat("*", 56),
		"algorithm":   "RX" + signerKey[2:],
		"secret key":  "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" + strings.Repeat("A", 148),
		"signature":   "RUQoXkikCWkRIZ1Re3/KPu+YIGgPKgNlu9EoFPCR0Y1Nb3xEWQ48NmqIsrvqqruBL7Buwwikk11ERMsV7IGPeR9Oar2jZYMjHg0=",
		"whitespaces": strings.Repeat(" ", 56),
	} {
		if k, err := catalog.ParseKey(text); !errors.Is(err, fault.ErrUsage) || !strings.Contains(fault.Hint(err), "minisign.pub") || k != (catalog.Key{}) {
			t.Errorf("%s: key %v, %v, hint %q", name, k, err, fault.Hint(err))
		}
	}
}

func TestParseSigned(t *testing.T) {
	want, err := catalog.Parse([]byte(signedText))
	if err != nil {
		t.Fatal(err)
	}
	if want.Signature != nil || want.Plugins[0].Signed {
		t.Error("a catalog without a signature is signed")
	}
	key := mustKey(t, signerKey)
	want.Plugins[0].Signed = true
	own, sign := newSigner(t)
	for name, test := range map[string]struct {
		signature string
		key       catalog.Key
		comment   string
	}{
		"prehashed":  {signedHash, key, "timestamp:1796018556 file:catalog.yaml hashed"},
		"legacy":     {signedPlain, key, "timestamp:1796018556 file:catalog.yaml"},
		"windows":    {strings.ReplaceAll(signedHash, "\n", "\r\n"), key, "timestamp:1796018556 file:catalog.yaml hashed"},
		"no newline": {strings.TrimSpace(signedHash), key, "timestamp:1796018556 file:catalog.yaml hashed"},
		"note":       {strings.Replace(signedHash, "signature from minisign secret key", "x", 1), key, "timestamp:1796018556 file:catalog.yaml hashed"},
		"own":        {sign(signedText, "\x1b[31mred\x07 \u202e\xff"), own, "[31mred"},
	} {
		got, err := catalog.ParseSigned([]byte(signedText), []byte(test.signature), []catalog.Key{{}, mustKey(t, otherKey), test.key})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s := got.Signature; s == nil || s.Key != test.key && s.Key.String() != test.key.String() || s.Comment != test.comment {
			t.Errorf("%s: %+v", name, s)
		}
		got.Signature = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, p := range builtin(t).Plugins {
		if !p.Signed {
			t.Errorf("the plugin %q of the catalog in the binary is not signed", p.Name)
		}
	}
}

func TestSignatureRefused(t *testing.T) {
	lines := strings.SplitAfter(signedHash, "\n")
	plain := strings.SplitAfter(signedPlain, "\n")
	own, sign := newSigner(t)
	broken := sign("schema: 2\n", "c")
	tests := map[string]struct {
		text, signature string
		keys            []string
		want            string
		hint            string
	}{
		"missing":          {signedText, "", []string{signerKey}, "there is none", ".minisig"},
		"another key":      {signedText, signedHash, []string{otherKey}, "it is by key " + signerID + ", not by " + otherID, "if it is " + signerID},
		"two other keys":   {signedText, signedHash, []string{otherKey, own.String()}, "not by " + otherID + " or " + own.ID(), "--catalog-key"},
		"no key":           {signedText, signedHash, nil, "not by a key that is trusted", "--catalog-key"},
		"catalog changed":  {strings.Replace(signedText, "size: 34", "size: 35", 1), signedHash, []string{signerKey}, "key " + signerID + " has not signed this catalog", "sign it anew"},
		"legacy, changed":  {signedText + "\n", signedPlain, []string{signerKey}, "has not signed this catalog", "sign it anew"},
		"ends of lines":    {strings.ReplaceAll(signedText, "\n", "\r\n"), signedHash, []string{signerKey}, "has not signed this catalog", ""},
		"comment changed":  {signedText, strings.Replace(signedHash, "1796018556", "1896018556", 1), []string{signerKey}, "has not signed this catalog", ""},
		"comment of other": {signedText, lines[0] + lines[1] + plain[2] + plain[3], []string{signerKey}, "has not signed this catalog", ""},
		"as legacy":        {signedText, strings.Replace(signedHash, "RUQo", "RWQo", 1), []string{signerKey}, "has not signed this catalog", ""},
		"as prehashed":     {signedText, strings.Replace(signedPlain, "RWQo", "RUQo", 1), []string{signerKey}, "has not signed this catalog", ""},
		"claims the key":   {signedText, claim(t, sign(signedText, "c"), signedHash), []string{signerKey}, "has not signed this catalog", ""},
		"first line":       {signedText, lines[0], []string{signerKey}, "it is incomplete", "again"},
		"two lines":        {signedText, lines[0] + lines[1], []string{signerKey}, "it is incomplete", "again"},
		"three lines":      {signedText, lines[0] + lines[1] + lines[2], []string{signerKey}, "it is incomplete", "again"},
		"cut":              {signedText, signedHash[:len(signedHash)-5], []string{signerKey}, "it is incomplete", "again"},
		"a line more":      {signedText, signedHash + "x\n", []string{signerKey}, "it is incomplete", "again"},
		"other text":       {signedText, "hello\n", []string{signerKey}, "it is incomplete", "again"},
		"a catalog":        {signedText, signedText, []string{signerKey}, "it is incomplete", "again"},
		"oversized":        {signedText, signedHash + strings.Repeat("\n", catalog.MaxSignatureBytes), []string{signerKey}, "it has more than 16384 bytes", "again"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var keys []catalog.Key
			for _, k := range test.keys {
				keys = append(keys, mustKey(t, k))
			}
			c, err := catalog.ParseSigned([]byte(test.text), []byte(test.signature), keys)
			var signature *catalog.SignatureError
			if c != nil || !errors.As(err, &signature) || !errors.Is(err, fault.ErrIntegrity) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %v, want %q", c, err, test.want)
			}
			if hint := fault.Hint(err); hint == "" || !strings.Contains(hint, test.hint) {
				t.Errorf("hint %q, want %q", hint, test.hint)
			}
		})
	}
	// A key that is nobody's signs nothing.
	if _, err := catalog.ParseSigned([]byte(signedText), []byte(signedHash), []catalog.Key{{}}); !errors.Is(err, fault.ErrIntegrity) {
		t.Errorf("no key at all: %v", err)
	}
	// A good signature does not make a good catalog, and a large one is not even hashed.
	var schema *catalog.SchemaError
	if _, err := catalog.ParseSigned([]byte("schema: 2\n"), []byte(broken), []catalog.Key{own}); !errors.As(err, &schema) {
		t.Errorf("a signed catalog of another schema: %v", err)
	}
	large := strings.Repeat("#", 1<<20+1)
	if _, err := catalog.ParseSigned([]byte(large), []byte(sign(large, "c")), []catalog.Key{own}); !errors.As(err, &schema) {
		t.Errorf("a large catalog: %v", err)
	}
}

// FuzzParseSigned checks that no text passes for a signature but those that the signer
// has made, and only with the catalog that was signed.
func FuzzParseSigned(f *testing.F) {
	f.Add([]byte(signedText), []byte(signedHash))
	f.Add([]byte(signedText), []byte(signedPlain))
	f.Add([]byte(signedText), []byte(signedHash[:200]))
	f.Add([]byte(signedText+"\n"), []byte(signedHash))
	f.Add([]byte("schema: 1\n"), []byte("untrusted comment: \n\ntrusted comment: \n"))
	keys := []catalog.Key{mustKey(f, otherKey), mustKey(f, signerKey)}
	f.Fuzz(func(t *testing.T, data, signature []byte) {
		c, err := catalog.ParseSigned(data, signature, keys)
		if err != nil {
			var wrong *catalog.SignatureError
			var schema *catalog.SchemaError
			if c != nil || !errors.As(err, &wrong) && !errors.As(err, &schema) || fault.Hint(err) == "" || !errors.Is(err, fault.ErrIntegrity) {
				t.Errorf("%v, error %v", c, err)
			}
			return
		}
		if string(data) != signedText || c.Signature.Key.ID() != signerID || !strings.HasPrefix(c.Signature.Comment, "timestamp:1796018556 file:catalog.yaml") {
			t.Errorf("accepted %q with %q", data, signature)
		}
	})
}

// FuzzParseKey checks that what is accepted as a key is written as it was read.
func FuzzParseKey(f *testing.F) {
	f.Add(signerKey)
	f.Add(signerKey[:55])
	f.Add(strings.Repeat("\n", 56))
	f.Fuzz(func(t *testing.T, text string) {
		k, err := catalog.ParseKey(text)
		if err != nil {
			if !errors.Is(err, fault.ErrUsage) || fault.Hint(err) == "" {
				t.Errorf("error %v", err)
			}
			return
		}
		if k.String() != strings.TrimSpace(text) || len(k.ID()) != 16 {
			t.Errorf("%q is %v", text, k)
		}
	})
}

// ExampleParseSigned takes a catalog with its signature and the key of who made it.
func ExampleParseSigned() {
	key, err := catalog.ParseKey(signerKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := catalog.ParseSigned([]byte(signedText), []byte(signedHash), []catalog.Key{key})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Signature.Key.ID(), c.Signature.Comment)
	// Output: 21116909A4485E28 timestamp:1796018556 file:catalog.yaml hashed
}
