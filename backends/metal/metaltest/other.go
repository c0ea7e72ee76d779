//go:build !linux

package metaltest

import (
	"fmt"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// device has no instances here.
type device struct{}

// kill does nothing, as there is nothing to end.
func (*device) kill() {}

// open finds no device: the runner needs Linux.
func open(*Driver) (metal.Device, error) {
	return nil, fmt.Errorf("%w: kernels are run on the processor on Linux only", metal.ErrNoDevice)
}

// Require skips a test: kernels are run on the processor on Linux only.
func Require(t testing.TB) {
	t.Helper()
	t.Skip("kernels are run on the processor on Linux only")
}

// Found reports whether kernels can be run: not here.
func Found() bool { return false }
