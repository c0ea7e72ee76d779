package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEncodings assembles what stands beside every encoded instruction.
func TestEncodings(t *testing.T) {
	assembler, err := exec.LookPath("llvm-mc")
	if err != nil {
		t.Skip("llvm-mc is not installed: encoded instructions of arm64 are not compared with what stands beside them")
	}
	files, err := filepath.Glob("../kernels/*_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\tWORD\t\$(0x[0-9a-f]{8}) // (.*)$`)
	encodings := map[string]string{} // by text
	var texts []string
	var source bytes.Buffer
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllSubmatch(text, -1) {
			text := string(m[2])
			if _, ok := encodings[text]; ok {
				continue
			}
			encodings[text] = string(m[1])
			texts = append(texts, text)
			source.WriteString(text + "\n")
		}
	}
	if len(texts) == 0 {
		t.Fatal("no encoded instructions")
	}
	cmd := exec.Command(assembler, "--arch=aarch64", "--mattr=+dotprod,+fullfp16", "--show-encoding")
	cmd.Stdin = &source
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	bytesOf := regexp.MustCompile(`// encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllSubmatch(out, -1)
	if len(bytesOf) != len(texts) {
		t.Fatalf("%d encodings of %d instructions", len(bytesOf), len(texts))
	}
	for i, text := range texts {
		b := bytesOf[i]
		if want := "0x" + string(b[4]) + string(b[3]) + string(b[2]) + string(b[1]); encodings[text] != want {
			t.Errorf("%s is %s, want %s", text, encodings[text], want)
		}
	}
}
