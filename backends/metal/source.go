package metal

import (
	"embed"
	"path"
	"slices"
	"strings"
)

//go:embed kernels/*.metal
var kernelFiles embed.FS

// source returns the kernels as one text, which is what a device compiles:
// first what all share, then the other files by name.
func source() string {
	const dir, shared = "kernels", "common.metal"
	entries, err := kernelFiles.ReadDir(dir)
	if err != nil {
		panic(err) // it is in the binary
	}
	names := []string{shared}
	for _, e := range entries {
		if e.Name() != shared {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names[1:])
	var text strings.Builder
	for _, name := range names {
		data, err := kernelFiles.ReadFile(path.Join(dir, name))
		if err != nil {
			panic(err)
		}
		text.Write(data)
		text.WriteByte('\n')
	}
	return text.String()
}
