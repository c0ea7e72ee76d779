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
		return nil, fault.WithHint(fmt.Errorf("%w: this build has no cgo", ErrNoDevice), "build with CGO_ENABLED=1 on a Mac")
	}
	return nil, fmt.Errorf("%w: %s: %w", ErrNoDevice, runtime.GOOS, errors.ErrUnsupported)
}
