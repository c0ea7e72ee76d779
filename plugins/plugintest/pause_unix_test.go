//go:build unix

package plugintest_test

import (
	"os"
	"syscall"
)

// pause stops a process without ending it.
var pause os.Signal = syscall.SIGSTOP
