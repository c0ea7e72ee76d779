//go:build !unix

package plugintest_test

import "os"

// pause would stop a process without ending it.
var pause os.Signal
