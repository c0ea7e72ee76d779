package fault_test

import (
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// TestShorten cuts texts of all lengths.
func TestShorten(t *testing.T) {
	long := strings.Repeat("a", 200)
	for s, want := range map[string]string{
		"": "", "é": "é", long: long, long + "b": long + "…", long[1:] + "é": long[1:] + "…", "é" + long: "é" + long[2:] + "…",
	} {
		if got := fault.Shorten(s); got != want {
			t.Errorf("Shorten(%q) = %q, want %q", s, got, want)
		}
	}
}
