package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// digestPrefix is the only algorithm that digests are written in.
const digestPrefix = "sha256:"

// Digest is "sha256:" and 64 lower-case hex digits, or "" for none.
type Digest string

// ParseDigest checks the form of a digest. Its error is an [*InvalidError].
func ParseDigest(s string) (Digest, error) {
	hexes, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(hexes) != 2*sha256.Size || !isLowerHex(hexes) {
		return "", invalid("digest", s, "it is not %q and 64 lower-case hex digits", digestPrefix)
	}
	return Digest(s), nil
}

// DigestOf returns the digest of data.
func DigestOf(data []byte) Digest {
	return DigestFromSum(sha256.Sum256(data))
}

// DigestFromSum writes a sha256 sum as a digest.
func DigestFromSum(sum [sha256.Size]byte) Digest {
	return Digest(digestPrefix + hex.EncodeToString(sum[:]))
}

// Hex returns the 64 hex digits, or "" for the empty digest.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// String returns the digest as written.
func (d Digest) String() string { return string(d) }
