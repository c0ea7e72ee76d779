package zoo_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// testReceipt is a receipt with everything in it.
func testReceipt() zoo.Receipt {
	margin, logit := 0.125, 1e-3
	return zoo.Receipt{
		Plugin:  testPlugin,
		Backend: "cpu", Kernels: "generic <go>", Activations: "static", Cache: "int8",
		Level: zoo.LevelOracle, Passed: true,
		Runs: 3, Matched: 96, Of: 96, SmallestMargin: &margin, MaxLogitError: &logit,
		Score: &zoo.Score{Right: 926, Of: 939},
		Time:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Zoo: "0.1.0",
	}
}

func TestReceipts(t *testing.T) {
	s, log := newStore(t)
	dir, digest := buildPack(t, packSpec{})
	p := openPack(t, dir)
	if r, state, err := s.ReadReceipt(p, testPlugin); r != nil || state != zoo.ReceiptMissing || err != nil {
		t.Errorf("before any: %v, %v, %v", r, state, err)
	}
	want := testReceipt()
	if err := s.WriteReceipt(t.Context(), p, want); err != nil {
		t.Fatal(err)
	}
	want.Pack = digest
	r, state, err := s.ReadReceipt(p, zoo.PluginID{})
	if diff := cmp.Diff(&want, r); diff != "" || state != zoo.ReceiptPassed || err != nil {
		t.Error(diff, state, err)
	}
	// It survives being laid out anew, but no other change.
	text := string(readFile(t, dir, zoo.ReceiptFile))
	for _, tt := range []struct {
		name   string
		change func(string) string
		want   zoo.ReceiptState
	}{
		{"as it was", func(s string) string { return s }, zoo.ReceiptPassed},
		{"without spaces", func(s string) string {
			return strings.Join(strings.Fields(strings.ReplaceAll(s, "generic \\u003cgo\\u003e", "#")), "")
		}, zoo.ReceiptForeign},
		{"indented", func(s string) string { return strings.ReplaceAll(s, "\n", "\n\t") }, zoo.ReceiptPassed},
		{"better score", func(s string) string { return strings.Replace(s, "926", "939", 1) }, zoo.ReceiptForeign},
		{"other level", func(s string) string { return strings.Replace(s, "oracle", "self", 1) }, zoo.ReceiptForeign},
		{"other time", func(s string) string { return strings.Replace(s, "2026-01", "2027-01", 1) }, zoo.ReceiptForeign},
		{"one more member", func(s string) string { return strings.Replace(s, `"passed"`, `"x": 1, "passed"`, 1) }, zoo.ReceiptForeign},
		{"no MAC", func(s string) string { return s[:strings.Index(s, `"mac"`)] + `"mac": ""}` }, zoo.ReceiptForeign},
		{"cut", func(s string) string { return s[:len(s)/2] }, zoo.ReceiptForeign},
		{"empty", func(s string) string { return "" }, zoo.ReceiptForeign},
		{"null", func(s string) string { return "null" }, zoo.ReceiptForeign},
		{"huge", func(s string) string { return s + strings.Repeat(" ", 2<<20) }, zoo.ReceiptForeign},
	} {
		changed := tt.change(text)
		if tt.name != "as it was" && changed == text {
			t.Errorf("%s: nothing changed", tt.name)
		}
		writeFile(t, dir, zoo.ReceiptFile, []byte(changed))
		r, state, err := s.ReadReceipt(p, testPlugin)
		if state != tt.want || err != nil || (r != nil) != (state == zoo.ReceiptPassed) {
			t.Errorf("%s: %v, %v, %v, want %v", tt.name, r, state, err, tt.want)
		}
	}
	// A flipped bit anywhere in it.
	for i := 0; i < len(text); i += 3 {
		changed := []byte(text)
		changed[i] ^= 1 << (i % 8)
		writeFile(t, dir, zoo.ReceiptFile, changed)
		if r, state, err := s.ReadReceipt(p, testPlugin); err != nil || state == zoo.ReceiptPassed && cmp.Diff(&want, r) != "" {
			t.Errorf("byte %d flipped: %v, %v, %v", i, r, state, err)
		}
	}
	if log() != "" {
		t.Errorf("logged: %s", log())
	}
}

// Which receipt counts.
func TestReceiptStates(t *testing.T) {
	s, _ := newStore(t)
	stranger, _ := newStore(t)
	dir, _ := buildPack(t, packSpec{})
	other, _ := buildPack(t, packSpec{seed: 1})
	p, q := openPack(t, dir), openPack(t, other)
	newer := zoo.PluginID{Name: testPlugin.Name, Version: "1.2.4"}

	if err := stranger.WriteReceipt(t.Context(), p, testReceipt()); err != nil {
		t.Fatal(err)
	}
	for _, has := range []string{"no key", "a key"} {
		if r, state, err := s.ReadReceipt(p, testPlugin); r != nil || state != zoo.ReceiptForeign || err != nil {
			t.Errorf("made elsewhere, with %s here: %v, %v, %v", has, r, state, err)
		}
		if err := s.WriteReceipt(t.Context(), q, testReceipt()); err != nil {
			t.Fatal(err)
		}
	}

	failed := testReceipt()
	failed.Passed, failed.Reason = false, "token 3 differs"
	if err := s.WriteReceipt(t.Context(), p, failed); err != nil {
		t.Fatal(err)
	}
	if r, state, err := s.ReadReceipt(p, testPlugin); state != zoo.ReceiptFailed || err != nil || r.Reason != failed.Reason {
		t.Errorf("failed: %v, %v, %v", r, state, err)
	}
	if _, state, _ := s.ReadReceipt(p, newer); state != zoo.ReceiptStale {
		t.Errorf("other plugin version: %v", state)
	}
	passed := testReceipt()
	passed.Plugin = newer
	if err := s.WriteReceipt(t.Context(), p, passed); err != nil {
		t.Fatal(err)
	}
	if _, state, _ := s.ReadReceipt(p, newer); state != zoo.ReceiptPassed {
		t.Errorf("run by a newer plugin: %v", state)
	}
	if _, state, _ := s.ReadReceipt(p, zoo.PluginID{}); state != zoo.ReceiptStale {
		t.Errorf("run by the plugin that made it: %v", state)
	}
	// A receipt taken to another pack.
	writeFile(t, other, zoo.ReceiptFile, readFile(t, dir, zoo.ReceiptFile))
	if _, state, _ := s.ReadReceipt(q, newer); state != zoo.ReceiptStale {
		t.Errorf("of another pack: %v", state)
	}
	// Something else in its place.
	if err := os.Remove(filepath.Join(other, zoo.ReceiptFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(other, zoo.ReceiptFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, state, err := s.ReadReceipt(q, newer); state != zoo.ReceiptForeign || err != nil {
		t.Errorf("a folder: %v, %v", state, err)
	}
}

// Of the receipts beside the pack and in the store one that applies counts, and the
// newer of two that do.
func TestReceiptsInTwoPlaces(t *testing.T) {
	newer := zoo.PluginID{Name: testPlugin.Name, Version: "1.2.4"}
	type receipt struct {
		plugin zoo.PluginID
		passed bool
		hour   int
	}
	tests := []struct {
		name           string
		beside, stored receipt
		want           zoo.ReceiptState
	}{
		{"newer beside", receipt{testPlugin, true, 2}, receipt{testPlugin, false, 1}, zoo.ReceiptPassed},
		{"newer in store", receipt{testPlugin, true, 1}, receipt{testPlugin, false, 2}, zoo.ReceiptFailed},
		{"older in store applies", receipt{newer, true, 2}, receipt{testPlugin, true, 1}, zoo.ReceiptPassed},
		{"older beside applies", receipt{testPlugin, false, 1}, receipt{newer, true, 2}, zoo.ReceiptFailed},
		{"none applies", receipt{newer, true, 1}, receipt{newer, true, 2}, zoo.ReceiptStale},
	}
	for _, tt := range tests {
		s, _ := newStore(t)
		dir, _ := buildPack(t, packSpec{})
		p := openPack(t, dir)
		write := func(r receipt) {
			full := testReceipt()
			full.Plugin, full.Passed = r.plugin, r.passed
			full.Time = full.Time.Add(time.Duration(r.hour) * time.Hour)
			if err := s.WriteReceipt(t.Context(), p, full); err != nil {
				t.Fatal(err)
			}
		}
		write(tt.stored)
		if err := os.MkdirAll(filepath.Dir(s.ReceiptPath(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, zoo.ReceiptFile), s.ReceiptPath(p)); err != nil {
			t.Fatal(err)
		}
		write(tt.beside)
		if _, state, err := s.ReadReceipt(p, testPlugin); state != tt.want || err != nil {
			t.Errorf("%s: %v, %v, want %v", tt.name, state, err, tt.want)
		}
	}
}

func TestWriteReceiptRefuses(t *testing.T) {
	s, _ := newStore(t)
	dir, _ := buildPack(t, packSpec{})
	p := openPack(t, dir)
	nan := math.NaN()
	for name, change := range map[string]func(r *zoo.Receipt){
		"another pack": func(r *zoo.Receipt) { r.Pack = catalog.DigestOf(nil) },
		"no level":     func(r *zoo.Receipt) { r.Level = "" },
		"not a number": func(r *zoo.Receipt) { r.MaxLogitError = &nan },
	} {
		r := testReceipt()
		change(&r)
		if err := s.WriteReceipt(t.Context(), p, r); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("stop")
	if err := s.WriteReceipt(cancelled(t, stop), p, testReceipt()); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v", err)
	}
}

// The key is made once, whoever comes first, is readable by its owner alone, and is
// replaced when it is damaged.
func TestReceiptKey(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	var packs []*zoo.Pack
	for i := range 8 {
		dir, _ := buildPack(t, packSpec{seed: uint64(i)})
		packs = append(packs, openPack(t, dir))
	}
	var wg sync.WaitGroup
	for _, p := range packs {
		wg.Go(func() {
			s, _ := storeAt(t, home)
			if err := s.WriteReceipt(t.Context(), p, testReceipt()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, _ := storeAt(t, home)
	for i, p := range packs {
		if _, state, err := s.ReadReceipt(p, testPlugin); state != zoo.ReceiptPassed || err != nil {
			t.Errorf("pack %d: %v, %v", i, state, err)
		}
	}
	key := filepath.Join(home, "state", "receipt.key")
	info, err := os.Stat(key)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != 32 || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the key has %d bytes and mode %v", info.Size(), info.Mode())
	}
	for _, bad := range []string{"", "short", strings.Repeat("long", 100)} {
		writeFile(t, home, "state/receipt.key", []byte(bad))
		if _, state, err := s.ReadReceipt(packs[0], testPlugin); state != zoo.ReceiptForeign || err != nil {
			t.Errorf("with the key %q: %v, %v", bad, state, err)
		}
		if err := s.WriteReceipt(t.Context(), packs[0], testReceipt()); err != nil {
			t.Error(err)
		}
		if _, state, err := s.ReadReceipt(packs[0], testPlugin); state != zoo.ReceiptPassed || err != nil {
			t.Errorf("with a new key after %q: %v, %v", bad, state, err)
		}
	}
}
