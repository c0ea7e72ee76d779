//go:build unix

package sdk

import (
	"os"
	"syscall"
)

// pauseSignal stops a process without ending it.
var pauseSignal os.Signal = syscall.SIGSTOP
