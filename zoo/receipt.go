package zoo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
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

// WriteReceipt signs a receipt and stores it beside the pack's manifest, or, when
// that folder cannot be written, in the store. An empty r.Pack or r.Plugin is
// filled in from the pack; a digest of another pack is [ErrUsage].
func (s *Store) WriteReceipt(ctx context.Context, p *Pack, r Receipt) error {
	return errors.ErrUnsupported
}

// ReadReceipt looks for the receipt of a pack that is to be run by a plugin: beside
// the manifest and in the store. Only what was signed with this store's key, for
// this pack's digest and this plugin version counts; of two such receipts the newer
// one. The receipt is nil when the state is ReceiptMissing or ReceiptForeign. A zero
// plugin stands for the one that made the pack. The error is one of the file system;
// a malformed receipt is ReceiptForeign.
func (s *Store) ReadReceipt(p *Pack, plugin PluginID) (*Receipt, ReceiptState, error) {
	return nil, ReceiptMissing, errors.ErrUnsupported
}
