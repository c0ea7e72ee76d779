package sdk

import "golang.org/x/sys/unix"

// residentMemory returns 0, not known: asking takes cgo, which this package does without.
func residentMemory() (private, files int64) { return 0, 0 }

// processorName returns the name that the processor gives itself, or "".
func processorName() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return ""
	}
	return name
}
