//go:build !purego

package kernels_test

import (
	"bufio"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zoo-sdk/zoo/backends/cpu/kernels"
)

// TestVariants compares the sets with what the system says of the processor:
// were one not detected, the tests of its kernels would pass without running.
func TestVariants(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range kernels.Variants() {
		names = append(names, s.Name())
	}
	t.Logf("%s runs %s", runtime.GOARCH, strings.Join(names, ", "))
	if strings.Contains(os.Getenv("GODEBUG"), "cpu.") {
		t.Skip("GODEBUG hides features")
	}
	wants := map[string]map[string][]string{ // features by architecture and set
		"amd64": {
			"avx2":   {"avx2", "f16c"},
			"avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "bmi2"},
		},
		"arm64": {"neon": {"asimddp"}},
	}
	features := processorFeatures(t)
	for set, needs := range wants[runtime.GOARCH] {
		has := !slices.ContainsFunc(needs, func(f string) bool { return !features[f] })
		if offered := slices.Contains(names, set); has && !offered {
			t.Errorf("%s is not offered, and the processor has %s", set, strings.Join(needs, ", "))
		}
	}
}

// processorFeatures returns what /proc/cpuinfo lists for the first processor,
// in words of this architecture: nothing where an emulator shows its host's.
func processorFeatures(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		t.Skipf("the processor's features are not known: %v", err)
	}
	defer f.Close()
	features := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, list, _ := strings.Cut(lines.Text(), ":")
		switch strings.TrimSpace(name) {
		case "flags", "Features": // on amd64 and arm64
			for feature := range strings.FieldsSeq(list) {
				features[feature] = true
			}
			return features
		}
	}
	return features
}
