//go:build !darwin || !cgo

package metal

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// SystemDriver returns a driver that finds no device: Metal is not part of this build.
func SystemDriver() Driver { return noDriver{} }

// noDriver implements Driver.
type noDriver struct{}

// Open implements Driver. Where Metal does not exist the error matches errors.ErrUnsupported.
func (noDriver) Open() (Device, error) {
	if runtime.GOOS == "darwin" {
		return nil, fault.WithHint(fmt.Errorf("%w: this build has no cgo", ErrNoDevice), "build with CGO_ENABLED=1")
	}
	return nil, elsewhere{}
}

// elsewhere is the error of a system that is none of Apple's.
type elsewhere struct{}

// Error implements error.
func (elsewhere) Error() string { return "Metal exists on Apple systems only" }

// Unwrap returns the kinds of the error.
func (elsewhere) Unwrap() []error { return []error{ErrNoDevice, errors.ErrUnsupported} }
