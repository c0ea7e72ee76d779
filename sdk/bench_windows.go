package sdk

import "os"

// residentMemory returns 0, not known: asking Windows takes unsafe, which this package does without.
func residentMemory() (private, files int64) { return 0, 0 }

// processorName returns the name that the system gives the processor, or "".
func processorName() string { return os.Getenv("PROCESSOR_IDENTIFIER") }
