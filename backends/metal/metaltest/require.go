//go:build linux

package metaltest

import (
	"os"
	"testing"
)

// Require skips a test where no compiler is found that can compile kernels. With
// ZOO_REQUIRE_CLANG=1 in the environment it fails there.
func Require(t testing.TB) {
	t.Helper()
	if _, err := findCompiler(); err != nil {
		if os.Getenv("ZOO_REQUIRE_CLANG") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// Found reports whether there is a compiler that can compile kernels.
func Found() bool {
	_, err := findCompiler()
	return err == nil
}
