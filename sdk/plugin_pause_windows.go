package sdk

import "os"

// pauseSignal is nil: Windows stops no process without ending it.
var pauseSignal os.Signal
