package kernels_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAVX2Registers looks for what AVX2 lacks in the kernels for it: the
// assembler would encode it for AVX-512 without a word.
func TestAVX2Registers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_amd64.s")
	if err != nil || len(files) == 0 {
		t.Fatalf("no assembly: %v", err)
	}
	lacking := regexp.MustCompile(`\b(Z\d+|K[0-7]|[XY](1[6-9]|2\d|3[01]))\b|_BCST|VPTERNLOG|VPDPBUSD`)
	functions := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Split(string(text), "\nTEXT ")[1:] {
			name, body, _ := strings.Cut(f, "(SB)")
			if !strings.HasSuffix(name, "AVX2") {
				continue
			}
			functions++
			if found := lacking.FindString(body); found != "" {
				t.Errorf("%s: %s uses %s", path, name, found)
			}
		}
	}
	if functions == 0 {
		t.Error("no kernels for AVX2")
	}
}
