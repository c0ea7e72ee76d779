package zoo_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/zoo"
)

// age makes the files of a pack look as if they were written an hour ago.
func age(t testing.TB, dir string) {
	t.Helper()
	hour := time.Now().Add(-time.Hour)
	for _, path := range allFiles(t, dir) {
		if err := os.Chtimes(filepath.Join(dir, path), hour, hour); err != nil {
			t.Fatal(err)
		}
	}
}

// opened opens a pack through the store and tells whether it was read through.
func opened(t testing.TB, s *zoo.Store, dir string) (read bool, err error) {
	t.Helper()
	p, err := s.OpenDir(t.Context(), dir, func(int64, int64) { read = true })
	if err == nil {
		err = p.Close()
	}
	return read, err
}

// A verified pack is trusted while its files look the same, and no longer.
func TestStamps(t *testing.T) {
	s, log := newStore(t)
	dir, _ := buildPack(t, packSpec{})
	age(t, dir)
	expect := func(when string, want bool) {
		t.Helper()
		if read, err := opened(t, s, dir); err != nil || read != want {
			t.Errorf("%s: read through: %v, want %v, %v", when, read, want, err)
		}
	}
	files := allFiles(t, dir)
	expect("at first", true)
	expect("the second time", false)
	if got := allFiles(t, dir); len(got) != len(files) {
		t.Errorf("the pack's folder has new files: %v", got)
	}

	config := filepath.Join(dir, zoo.ConfigFile)
	minutes := time.Now().Add(-time.Minute)
	if err := os.Chtimes(config, minutes, minutes); err != nil {
		t.Fatal(err)
	}
	expect("after a change of time", true)
	expect("again", false)

	// The same content, time and size in another file.
	data := readFile(t, dir, zoo.ConfigFile)
	if err := os.Rename(config, config+".old"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, zoo.ConfigFile, data)
	if err := os.Chtimes(config, minutes, minutes); err != nil {
		t.Fatal(err)
	}
	expect("after a replacement", true)
	expect("again", false)

	// The same pack elsewhere, and the folder by another name.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	dir = moved
	expect("after a move", true)
	expect("again", false)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(moved, link); err == nil {
		dir = link
		expect("through a link", false)
		dir = moved
	}

	// A stamp that cannot be read.
	for _, e := range entries(t, s, "state/stamps") {
		writeFile(t, s.Home(), filepath.Join("state/stamps", e), []byte("{"))
	}
	expect("after damage to the stamp", true)
	expect("again", false)
	if log() != "" {
		t.Errorf("logged: %s", log())
	}

	// Verify asks nobody, and damage found by it is remembered.
	p, err := s.OpenDir(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	weights := readFile(t, dir, zoo.WeightsFile)
	info, err := os.Stat(filepath.Join(dir, zoo.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	weights[p.Manifest().Tensors[0].Offset] ^= 1
	writeFile(t, dir, zoo.WeightsFile, weights)
	if err := os.Chtimes(filepath.Join(dir, zoo.WeightsFile), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	expect("after a change that leaves no trace", false)
	if err := s.Verify(t.Context(), p, nil); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("verify: %v", err)
	}
	if _, err := opened(t, s, dir); !errors.Is(err, zoo.ErrIntegrity) {
		t.Errorf("open after verify: %v", err)
	}
}

// A file that changes right after its pack was verified, within one step of the
// clock of the file system, is found all the same.
func TestStampsOfFreshFiles(t *testing.T) {
	for name, verified := range map[string]func(s *zoo.Store) (dir string){
		"direct": func(s *zoo.Store) string {
			dir, _ := buildPack(t, packSpec{})
			if _, err := opened(t, s, dir); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"installed": func(s *zoo.Store) string {
			d := mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{})
			return filepath.Join(s.Home(), "packs", d.Hex())
		},
	} {
		var s *zoo.Store
		var dir string
		// Files are not fresh when the machine stood still before they were verified.
		for fresh, tries := false, 0; !fresh; tries++ {
			if tries == 20 {
				t.Fatal("a small pack is never verified within two seconds")
			}
			s, _ = newStore(t)
			began := time.Now()
			dir = verified(s)
			fresh = time.Since(began) < 1900*time.Millisecond
		}
		path := filepath.Join(dir, zoo.WeightsFile)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		weights := readFile(t, dir, zoo.WeightsFile)
		weights[len(weights)-1] ^= 1
		writeFile(t, dir, zoo.WeightsFile, weights)
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		if _, err := opened(t, s, dir); !errors.Is(err, zoo.ErrIntegrity) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every file counts.
func TestStampsCoverEveryFile(t *testing.T) {
	s, _ := newStore(t)
	dir, _ := buildPack(t, packSpec{})
	age(t, dir)
	if _, err := opened(t, s, dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range allFiles(t, dir) {
		data := readFile(t, dir, path)
		if len(data) == 0 {
			continue
		}
		data[len(data)/2] ^= 2
		writeFile(t, dir, path, data)
		_, err := opened(t, s, dir)
		if d, ok := errors.AsType[*zoo.DamageError](err); !ok || d.File != path {
			t.Errorf("%s: %v", path, err)
		}
		data[len(data)/2] ^= 2
		writeFile(t, dir, path, data)
	}
}

// Without a place for stamps a pack is verified each time, and that is said.
func TestStampsWithoutStore(t *testing.T) {
	s, log := newStore(t)
	if err := os.WriteFile(s.Home(), nil, 0o644); err != nil { // in the store's way
		t.Fatal(err)
	}
	dir, _ := buildPack(t, packSpec{})
	age(t, dir)
	for range 2 {
		if read, err := opened(t, s, dir); !read || err != nil {
			t.Errorf("read through: %v, %v", read, err)
		}
	}
	if n := strings.Count(log(), "verified again each time"); n != 2 {
		t.Errorf("warned %d times: %s", n, log())
	}
}

func TestAdmit(t *testing.T) {
	oracle, self, odd := &zoo.Receipt{Level: zoo.LevelOracle}, &zoo.Receipt{Level: zoo.LevelSelf}, &zoo.Receipt{Level: "guess"}
	type outcome int
	const (
		silent outcome = iota
		notice
		refused
	)
	tests := []struct {
		receipt *zoo.Receipt
		state   zoo.ReceiptState
		want    [2]outcome // for GateRequired and GateOptional
	}{
		{oracle, zoo.ReceiptPassed, [2]outcome{silent, silent}},
		{self, zoo.ReceiptPassed, [2]outcome{notice, notice}},
		{odd, zoo.ReceiptPassed, [2]outcome{refused, notice}},
		{nil, zoo.ReceiptPassed, [2]outcome{refused, notice}},
		{oracle, zoo.ReceiptFailed, [2]outcome{refused, notice}},
		{self, zoo.ReceiptFailed, [2]outcome{refused, notice}},
		{oracle, zoo.ReceiptStale, [2]outcome{refused, notice}},
		{nil, zoo.ReceiptForeign, [2]outcome{refused, notice}},
		{nil, zoo.ReceiptMissing, [2]outcome{refused, notice}},
	}
	for _, tt := range tests {
		for policy, want := range tt.want {
			text, err := zoo.Admit("tiny", tt.receipt, tt.state, zoo.GatePolicy(policy))
			got := silent
			if text != "" {
				got = notice
			}
			if err != nil {
				got = refused
				if _, ok := errors.AsType[*zoo.UngatedError](err); !ok || !errors.Is(err, zoo.ErrGateFailed) || !strings.Contains(zoo.Hint(err), "zoo gate tiny") {
					t.Errorf("%v: %v", tt.state, err)
				}
			}
			if got != want {
				t.Errorf("%+v, %v, policy %d: %d (%q, %v), want %d", tt.receipt, tt.state, policy, got, text, err, want)
			}
		}
	}
	seen := map[string]bool{}
	for s := zoo.ReceiptMissing; s <= zoo.ReceiptPassed; s++ {
		if text := fmt.Sprint(s); seen[text] || !strings.HasPrefix(text, "it") {
			t.Errorf("state %d reads %q", int(s), text)
		} else {
			seen[text] = true
		}
	}
}
