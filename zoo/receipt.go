package zoo

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// Level says what a pack was held against.
type Level string

const (
	// LevelOracle means reference values of another implementation.
	LevelOracle Level = "oracle"
	// LevelSelf means the checks that any pack can be put to.
	LevelSelf Level = "self"
)

// Receipt records how a pack did at its gate (gate.json). It is plain data; only
// one that this machine's store has signed counts, see [Store.ReadReceipt].
type Receipt struct {
	// Pack is the digest of the pack.
	Pack catalog.Digest `json:"pack"`
	// Plugin made the program that was run; it need not be the one that made the pack.
	Plugin PluginID `json:"plugin"`
	// Backend is the backend's name, and Kernels says which of its kernels ran.
	Backend string `json:"backend"`
	Kernels string `json:"kernels"`
	// Activations and Cache are those of backends.Options.
	Activations string `json:"activations"`
	Cache       string `json:"cache"`
	// Level is what the pack was held against.
	Level Level `json:"level"`
	// Passed is the verdict, and Reason one line on why it did not pass, or "".
	Passed bool   `json:"passed"`
	Reason string `json:"reason,omitempty"`
	// Runs is the number of token sequences, Matched the tokens in them that agreed, and Of all of them.
	Runs    int `json:"runs"`
	Matched int `json:"matched"`
	Of      int `json:"of"`
	// SmallestMargin is the smallest difference of the two largest reference logits
	// at any step, and ForkMargin the largest such difference at a step where a
	// token differed; nil when there was none.
	SmallestMargin *float64 `json:"smallest_margin"`
	ForkMargin     *float64 `json:"fork_margin"`
	// MaxLogitError is the largest absolute difference of a logit; nil when none was compared.
	MaxLogitError *float64 `json:"max_abs_logit_error"`
	// Score is the task score; nil when no questions were asked.
	Score *Score `json:"score"`
	// Time is when the gate ended, and Zoo the version of zoo that ran it.
	Time time.Time `json:"time"`
	Zoo  string    `json:"zoo"`
}

// Score counts exact answers.
type Score struct {
	Right int `json:"right"`
	Of    int `json:"of"`
}

// ReceiptState is what became of looking for a pack's receipt.
type ReceiptState int

const (
	// ReceiptMissing: there is none.
	ReceiptMissing ReceiptState = iota
	// ReceiptForeign: there is one, but it was not made on this machine, or was altered.
	ReceiptForeign
	// ReceiptStale: it is for another pack or another version of the plugin.
	ReceiptStale
	// ReceiptFailed: the pack did not pass.
	ReceiptFailed
	// ReceiptPassed: the pack passed.
	ReceiptPassed
)

// String returns a clause such as "it has not been gated".
func (s ReceiptState) String() string {
	switch s {
	case ReceiptMissing:
		return "it has not been gated"
	case ReceiptForeign:
		return "its receipt was not made on this machine"
	case ReceiptStale:
		return "its receipt is for another pack or another plugin version"
	case ReceiptFailed:
		return "it failed its gate"
	case ReceiptPassed:
		return "it passed its gate"
	}
	return fmt.Sprintf("its receipt has the unknown state %d", int(s))
}

// receiptFile is what lies in gate.json.
type receiptFile struct {
	Receipt json.RawMessage `json:"receipt"`
	// MAC authenticates the compact form of Receipt under the store's key: 64 hex digits.
	MAC string `json:"mac"`
}

// receiptContext keeps the store's key from signing anything but receipts.
const receiptContext = "zoo receipt 1\x00"

const (
	// maxReceiptBytes bounds gate.json.
	maxReceiptBytes = 1 << 20
	// keyBytes is the size of the store's key.
	keyBytes = 32
)

// receiptName returns the name of the receipt of a pack that lies in a folder which
// cannot be written.
func receiptName(dir string, d catalog.Digest) string {
	return receiptsDir + "/" + packKey(dir, d) + ".json"
}

// WriteReceipt signs a receipt and stores it beside the pack's manifest, or, when
// that folder cannot be written, in the store. An empty r.Pack or r.Plugin is
// filled in from the pack; a digest of another pack, a level that is not known and
// numbers that are not finite are [ErrUsage].
func (s *Store) WriteReceipt(ctx context.Context, p *Pack, r Receipt) error {
	if r.Pack == "" {
		r.Pack = p.digest
	}
	if r.Plugin == (PluginID{}) {
		r.Plugin = p.manifest.Plugin
	}
	if r.Pack != p.digest || r.Level != LevelOracle && r.Level != LevelSelf {
		return fmt.Errorf("receipt of pack %q and level %q for pack %q: %w", r.Pack, r.Level, p.digest, fault.ErrUsage)
	}
	payload, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("receipt: %w: %w", err, fault.ErrUsage)
	}
	key, err := s.makeKey(ctx)
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	data, err := json.MarshalIndent(receiptFile{payload, hex.EncodeToString(receiptMAC(key, payload))}, "", "  ")
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	data = append(data, '\n')
	dir, err := realDir(p.dir)
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	err = atomicfile.WriteFile(ctx, filepath.Join(dir, ReceiptFile), data, atomicfile.Options{})
	if errors.Is(err, fault.ErrNotPermitted) {
		s.logger.Info("the pack's folder cannot be written, keeping its receipt in the store", "file", dir)
		err = s.writeFile(receiptName(dir, p.digest), data, atomicfile.Options{})
	}
	if err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	return nil
}

// receiptMAC authenticates the compact form of a receipt.
func receiptMAC(key, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(receiptContext))
	mac.Write(payload)
	return mac.Sum(nil)
}

// ReadReceipt looks for the receipt of a pack that is to be run by a plugin: beside
// the manifest and in the store. Only what was signed with this store's key, for
// this pack's digest and this plugin version counts; of two such receipts the newer
// one. The receipt is nil when the state is ReceiptMissing or ReceiptForeign. A zero
// plugin stands for the one that made the pack. The error is one of the file system;
// a malformed receipt is ReceiptForeign.
func (s *Store) ReadReceipt(p *Pack, plugin PluginID) (*Receipt, ReceiptState, error) {
	if plugin == (PluginID{}) {
		plugin = p.manifest.Plugin
	}
	dir, err := realDir(p.dir)
	if err != nil {
		return nil, ReceiptMissing, fmt.Errorf("receipt: %w", err)
	}
	beside, err := readCapped(p.root, ReceiptFile, maxReceiptBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fault.ErrIntegrity) {
		return nil, ReceiptMissing, atomicfile.MapError(filepath.Join(dir, ReceiptFile), fmt.Errorf("receipt: %w", err))
	}
	found := err == nil || errors.Is(err, fault.ErrIntegrity)
	inStore, err := s.readFile(receiptName(dir, p.digest), maxReceiptBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fault.ErrIntegrity) {
		return nil, ReceiptMissing, fmt.Errorf("receipt: %w", err)
	}
	found = found || err == nil || errors.Is(err, fault.ErrIntegrity)
	if !found {
		return nil, ReceiptMissing, nil
	}
	key, err := s.readKey()
	if err != nil {
		s.logger.Warn("the key for receipts cannot be read, so no receipt counts", "file", s.path(keyFile), "err", err)
	}
	best, state := (*Receipt)(nil), ReceiptForeign
	for _, data := range [][]byte{beside, inStore} {
		r := openReceipt(key, data)
		if r == nil {
			continue
		}
		is := ReceiptStale
		if r.Pack == p.digest && r.Plugin == plugin {
			is = ReceiptFailed
			if r.Passed {
				is = ReceiptPassed
			}
		}
		// A receipt that applies beats one that does not, and a newer one an older one.
		applies, bestApplies := is != ReceiptStale, best != nil && state != ReceiptStale
		if best == nil || applies && !bestApplies || applies == bestApplies && r.Time.After(best.Time) {
			best, state = r, is
		}
	}
	return best, state, nil
}

// openReceipt returns the receipt in data if it was signed with key, and nil otherwise.
func openReceipt(key, data []byte) *Receipt {
	var file receiptFile
	var payload bytes.Buffer
	if len(key) != keyBytes || json.Unmarshal(data, &file) != nil || json.Compact(&payload, file.Receipt) != nil {
		return nil
	}
	mac, err := hex.DecodeString(file.MAC)
	if err != nil || !hmac.Equal(mac, receiptMAC(key, payload.Bytes())) {
		return nil
	}
	var r Receipt
	if json.Unmarshal(payload.Bytes(), &r) != nil {
		return nil
	}
	return &r
}

// readKey returns the store's key, or nil when there is none of the right size.
func (s *Store) readKey() ([]byte, error) {
	key, err := s.readFile(keyFile, keyBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fault.ErrIntegrity) || err == nil && len(key) != keyBytes {
		return nil, nil
	}
	return key, err
}

// makeKey returns the store's key and creates it if there is none, or none that has
// the right size: then no earlier receipt counts any more.
func (s *Store) makeKey(ctx context.Context) ([]byte, error) {
	if key, err := s.readKey(); key != nil || err != nil {
		return key, err
	}
	lock, err := s.acquire(ctx, keyLock, nil)
	if err != nil {
		return nil, err
	}
	key, err := s.readKey() // somebody else may have been faster
	if key == nil && err == nil {
		key = make([]byte, keyBytes)
		_, _ = rand.Read(key) // never fails
		err = s.writeFile(keyFile, key, atomicfile.Options{Perm: 0o600})
	}
	return key, errors.Join(err, lock.Release())
}
