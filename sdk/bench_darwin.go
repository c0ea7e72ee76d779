package sdk

import "golang.org/x/sys/unix"

// privateMemory returns 0, not known: asking takes cgo, which this package does without.
func privateMemory() int64 { return 0 }

// processorName returns the name that the processor gives itself, or "".
func processorName() string {
	name, err := unix.Sysctl("machdep.cpu.brand_string")
	if err != nil {
		return ""
	}
	return name
}
