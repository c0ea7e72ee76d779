package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"aead.dev/minisign"

	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	// SignatureSuffix ends the name of a catalog's signature, which is otherwise that
	// of the catalog's file, as minisign names it.
	SignatureSuffix = ".minisig"
	// MaxSignatureBytes bounds a signature. Those of minisign have at most 10 KiB.
	MaxSignatureBytes = 16 << 10
	// keyDigits is the length of a public key in base64.
	keyDigits = 56
)

// Key is the public key of somebody whose catalogs are trusted. The zero Key is
// nobody's.
type Key struct{ public *minisign.PublicKey }

// ParseKey reads a public key of minisign: the line of base64 in minisign.pub, without
// the comment above it. Its error matches fault.ErrUsage and has a hint.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	refuse := func(format string, args ...any) (Key, error) {
		return Key{}, fault.WithHint(invalid("catalog key", text, format, args...),
			fmt.Sprintf("give the last line of the file minisign.pub: %d letters, digits, '+' and '/'", keyDigits))
	}
	if len(text) != keyDigits {
		return refuse("it has %d characters, not %d", len(text), keyDigits)
	}
	if strings.ContainsFunc(text, unicode.IsSpace) {
		return refuse("it is not one word")
	}
	public := new(minisign.PublicKey)
	if err := public.UnmarshalText([]byte(text)); err != nil {
		return refuse("it is no public key of minisign")
	}
	return Key{public}, nil
}

// ID returns the key's ID as minisign shows it, such as "21116909A4485E28". It tells
// keys apart and proves nothing.
func (k Key) ID() string {
	if k.public == nil {
		return "none"
	}
	return keyID(k.public.ID())
}

// keyID writes the ID of a key.
func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// String returns the key as [ParseKey] reads it.
func (k Key) String() string {
	if k.public == nil {
		return "none"
	}
	return k.public.String()
}

// Signature tells by whom a catalog is signed.
type Signature struct {
	// Key is the key that the signature was checked with.
	Key Key
	// Comment is the comment that was signed with the catalog, one line without control
	// characters, such as "timestamp:1796018556 file:catalog.yaml hashed".
	Comment string
}

// SignatureError reports a catalog that is not signed as it has to be. It matches
// fault.ErrIntegrity.
type SignatureError struct {
	// Signer is the ID of the key that the signature says it is by, or "" if there is
	// no signature, or none that can be read.
	Signer string
	// Keys are the IDs of the keys that are trusted.
	Keys []string
	// Err says what is wrong.
	Err error
}

// Error says what is wrong, and with which keys.
func (e *SignatureError) Error() string { return fmt.Sprintf("signature of the catalog: %v", e.Err) }

// Is reports whether target is fault.ErrIntegrity.
func (e *SignatureError) Is(target error) bool { return target == fault.ErrIntegrity }

// Hint says what to do about it.
func (e *SignatureError) Hint() string {
	switch {
	case errors.Is(e.Err, errNoSignature):
		return fmt.Sprintf("get the signature from where the catalog is from: a file of the same name with %s after it, to lie beside the catalog", SignatureSuffix)
	case e.Signer != "" && !slices.Contains(e.Keys, e.Signer):
		return fmt.Sprintf("ask who made the catalog for their key; if it is %s, name it with --catalog-key", e.Signer)
	}
	return "get the catalog and its signature again from where they are from; whoever changes a catalog has to sign it anew"
}

// errNoSignature reports a catalog without a signature.
var errNoSignature = errors.New("there is none")

// ParseSigned reads a catalog as [Parse] does, after it has found that signature is a
// signature of data, to the byte, by one of the keys. It takes signatures of minisign,
// prehashed or not. An empty signature stands for none. Errors are a [*SignatureError]
// and those of Parse.
func ParseSigned(data, signature []byte, keys []Key) (*Catalog, error) {
	if len(data) > maxCatalogBytes {
		return nil, &SchemaError{Err: fmt.Errorf("%d bytes are more than %d", len(data), maxCatalogBytes)}
	}
	signed, err := verify(data, signature, keys)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, err
	}
	c.sign(signed)
	return c, nil
}

// sign marks a catalog as one that can be trusted, and by whose signature; that of the
// catalog in the binary is nil.
func (c *Catalog) sign(signature *Signature) {
	c.Signature = signature
	for i := range c.Plugins {
		c.Plugins[i].Signed = true
	}
}

// verify checks a signature. Its error is a [*SignatureError].
func verify(data, signature []byte, keys []Key) (*Signature, error) {
	e := &SignatureError{}
	for _, k := range keys {
		e.Keys = append(e.Keys, k.ID())
	}
	refuse := func(format string, args ...any) (*Signature, error) {
		e.Err = fmt.Errorf(format, args...)
		return nil, e
	}
	switch {
	case len(signature) == 0:
		return refuse("%w", errNoSignature)
	case len(signature) > MaxSignatureBytes:
		return refuse("it has more than %d bytes", MaxSignatureBytes)
	}
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return refuse("it is incomplete, or no signature of minisign")
	}
	e.Signer = keyID(s.KeyID)
	for _, k := range keys {
		if k.public != nil && minisign.Verify(*k.public, data, signature) {
			return &Signature{Key: k, Comment: oneLine(s.TrustedComment)}, nil
		}
	}
	if slices.Contains(e.Keys, e.Signer) {
		return refuse("key %s has not signed this catalog: one of them was changed", e.Signer)
	}
	return refuse("it is by key %s, not by %s", e.Signer, trusted(e.Keys))
}

// trusted lists the IDs of trusted keys in words.
func trusted(keys []string) string {
	if len(keys) == 0 {
		return "a key that is trusted"
	}
	return strings.Join(keys, " or ")
}

// oneLine returns text with everything that is not printed as a space.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, " ")))
}
