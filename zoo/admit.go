package zoo

import (
	"fmt"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// GatePolicy says whether a pack may be opened that has not passed its gate. The
// zero value says no.
type GatePolicy int

const (
	// GateRequired refuses a pack without a valid receipt of a passed gate.
	GateRequired GatePolicy = iota
	// GateOptional opens it with a notice (`--ungated`).
	GateOptional
)

// UngatedError reports a pack that may not be opened, since its gate was not
// passed. It matches [ErrGateFailed].
type UngatedError struct {
	// Name is the model's name or the pack's folder, as the user knows it.
	Name string
	// State is not ReceiptPassed.
	State ReceiptState
}

// Error gives the pack and the reason.
func (e *UngatedError) Error() string {
	return fmt.Sprintf("%q may not be opened: %s", e.Name, e.State)
}

// Is reports whether target is ErrGateFailed.
func (e *UngatedError) Is(target error) bool { return target == fault.ErrGateFailed }

// Hint says how to gate the pack, or to go without.
func (e *UngatedError) Hint() string {
	return fmt.Sprintf("run `zoo gate %s`, or pass --ungated (sdk.AllowUngated) to open it all the same", e.Name)
}

// Admit is the rule whether a pack may be opened, given what [Store.ReadReceipt]
// found. A passed gate of level oracle opens silently; one of level self opens with
// a notice for the user; anything else is an [*UngatedError], or only a notice when
// the policy is GateOptional. The name is the model's name or the pack's folder;
// receipt may be nil unless state is ReceiptPassed.
func Admit(name string, receipt *Receipt, state ReceiptState, policy GatePolicy) (notice string, err error) {
	switch {
	case state == ReceiptPassed && receipt != nil && receipt.Level == LevelOracle:
		return "", nil
	case state == ReceiptPassed && receipt != nil && receipt.Level == LevelSelf:
		return fmt.Sprintf("%q passed its own consistency checks, but was not held against reference values", name), nil
	case state == ReceiptPassed:
		// A passed receipt of a level that this build does not know proves nothing to it.
		state = ReceiptForeign
	}
	if policy == GateOptional {
		return fmt.Sprintf("%q is opened although %s", name, state), nil
	}
	return "", &UngatedError{Name: name, State: state}
}
