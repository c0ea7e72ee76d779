package zoo_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

func TestSentinels(t *testing.T) {
	for name, pair := range map[string][2]error{
		"ErrUsage": {zoo.ErrUsage, fault.ErrUsage}, "ErrNotFound": {zoo.ErrNotFound, fault.ErrNotFound},
		"ErrIntegrity": {zoo.ErrIntegrity, fault.ErrIntegrity}, "ErrGateFailed": {zoo.ErrGateFailed, fault.ErrGateFailed},
		"ErrNetwork": {zoo.ErrNetwork, fault.ErrNetwork}, "ErrNoSpace": {zoo.ErrNoSpace, fault.ErrNoSpace},
		"ErrNotPermitted": {zoo.ErrNotPermitted, fault.ErrNotPermitted},
	} {
		if pair[0] != pair[1] || pair[0] == nil {
			t.Errorf("%s is another error here", name)
		}
	}
	if hint := zoo.Hint(fmt.Errorf("x: %w", fault.WithHint(errors.New("y"), "do z"))); hint != "do z" {
		t.Errorf("hint %q", hint)
	}
}

// Every typed error matches its sentinel and no other, gives its facts, and says what to do.
func TestTypedErrors(t *testing.T) {
	sentinels := []error{zoo.ErrUsage, zoo.ErrNotFound, zoo.ErrIntegrity, zoo.ErrGateFailed, zoo.ErrNetwork, zoo.ErrNoSpace, zoo.ErrNotPermitted}
	tests := []struct {
		err   error
		is    error
		facts []string
		hint  []string
	}{
		{&zoo.DamageError{Pack: "/p", File: "f", Want: "w1", Got: "g1"}, zoo.ErrIntegrity, []string{`"/p"`, `"f"`, "w1", "g1"}, []string{"zoo convert"}},
		{&zoo.DamageError{Pack: "/p", Model: "tiny", File: "f", Tensor: "t", Want: "w1", Got: "g1"}, zoo.ErrIntegrity, []string{`"/p"`, `"f"`, `"t"`, "w1", "g1"}, []string{"`zoo rm tiny`", "`zoo pull tiny`"}},
		{&zoo.ManifestError{Err: errors.New("odd")}, zoo.ErrIntegrity, []string{"pack.json", "odd"}, []string{"zoo convert"}},
		{&zoo.ManifestError{Pack: "/p", Err: fault.ErrUsage}, zoo.ErrIntegrity, []string{"pack.json", `"/p"`}, []string{"zoo convert"}},
		{&zoo.FormatError{Format: 7}, zoo.ErrIntegrity, []string{"7", "1"}, []string{"newer zoo"}},
		{&zoo.FormatError{Pack: "/p", Format: 0}, zoo.ErrIntegrity, []string{`"/p"`, "0", "1"}, []string{"zoo convert"}},
		{&zoo.PackDigestError{Model: "tiny", Version: "1.0.0", Pinned: "the catalog", Want: "w1", Got: "g1"}, zoo.ErrIntegrity, []string{"tiny@1.0.0", "the catalog", "w1", "g1"}, []string{"zoo pull tiny"}},
		{&zoo.MissingPluginError{Name: "fam", Constraint: "^2"}, zoo.ErrNotFound, []string{`"fam"`}, []string{"this build has no plugin fam"}},
		{&zoo.MissingPluginError{Name: "fam", Constraint: "^2", Have: []string{"1.1.0", "1.0.0"}}, zoo.ErrNotFound, []string{`"fam"`, `"^2"`}, []string{"1.1.0, 1.0.0", "^2"}},
		{&zoo.MissingPluginError{Name: "fam", Constraint: "*", Have: []string{"1.2.0-rc.1"}}, zoo.ErrNotFound, []string{`"fam"`, `"*"`}, []string{"fam@1.2.0-rc.1"}},
		{&zoo.PluginError{Name: "fam", Version: "1.0.0", Err: errors.New("it shrank")}, zoo.ErrIntegrity, []string{"fam 1.0.0 is damaged: it shrank"}, []string{"zoo plugin rm fam@1.0.0"}},
		{&zoo.PluginError{Name: "fam", Version: "1.0.0", Err: zoo.WithHint(zoo.ErrNotPermitted, "ask the owner")}, zoo.ErrNotPermitted, []string{"fam 1.0.0 cannot be read"}, []string{"ask the owner"}},
		{&zoo.NotInstalledError{Model: "tiny"}, zoo.ErrNotFound, []string{`"tiny"`}, []string{"`zoo pull tiny`"}},
		{&zoo.NotInstalledError{Model: "tiny", Constraint: "^2", Have: []string{"1.0.0"}}, zoo.ErrNotFound, []string{`"tiny"`, `"^2"`}, []string{"`zoo pull 'tiny@^2'`", "1.0.0"}},
		{&zoo.RecordError{Model: "tiny", Version: "1.0.0", Err: fault.ErrUsage}, zoo.ErrIntegrity, []string{"tiny@1.0.0"}, []string{"zoo rm tiny"}},
		{&zoo.SourceChangedError{Model: "tiny", Version: "1.0.0", File: "f", Want: "w1", Got: "g1"}, zoo.ErrIntegrity, []string{`"f"`, "tiny@1.0.0", "w1", "g1"}, []string{"zoo rm tiny"}},
		{&zoo.UngatedError{Name: "tiny", State: zoo.ReceiptFailed}, zoo.ErrGateFailed, []string{`"tiny"`, "failed its gate"}, []string{"`zoo gate tiny`", "--ungated"}},
	}
	for _, tt := range tests {
		err := fmt.Errorf("context: %w", tt.err)
		for _, s := range sentinels {
			if errors.Is(err, s) != (s == tt.is) {
				t.Errorf("%T: is %v: %v", tt.err, s, errors.Is(err, s))
			}
		}
		for _, fact := range tt.facts {
			if !strings.Contains(err.Error(), fact) {
				t.Errorf("%T does not give %s: %v", tt.err, fact, err)
			}
		}
		for _, hint := range tt.hint {
			if got := zoo.Hint(err); !strings.Contains(got, hint) || strings.HasSuffix(got, ".") {
				t.Errorf("%T: hint %q, want %q in it", tt.err, got, hint)
			}
		}
	}
}
