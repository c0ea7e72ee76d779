//go:build !darwin || !cgo

package metal

import (
	"runtime"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// SystemDriver returns a driver that finds no device: Metal is not part of this build.
func SystemDriver() Driver { return noDriver{} }

// noDriver implements Driver.
type noDriver struct{}

// Open implements Driver.
func (noDriver) Open() (Device, error) {
	hint := "Metal exists on Apple systems only"
	if runtime.GOOS == "darwin" {
		hint = "build with CGO_ENABLED=1 on a Mac"
	}
	return nil, fault.WithHint(ErrNoDevice, hint)
}
