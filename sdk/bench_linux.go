package sdk

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// residentMemory returns the bytes of this process's memory that are resident: what no
// file backs and what files do, or 0 where that is not known.
func residentMemory() (private, files int64) {
	of := func(key string) int64 {
		kib, _ := strconv.ParseInt(strings.TrimSuffix(lineOf("/proc/self/status", key), " kB"), 10, 64)
		return kib << 10
	}
	return of("RssAnon"), of("RssFile")
}

// processorName returns the name that the processor gives itself, or "".
func processorName() string { return lineOf("/proc/cpuinfo", "model name") }

// lineOf returns the value of the first line "key: value" in a file, or "".
func lineOf(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
