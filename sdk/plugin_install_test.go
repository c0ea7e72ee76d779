package sdk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// foreignProgram is the head of a program for a machine that this is not.
func foreignProgram() []byte {
	if runtime.GOOS == "linux" {
		pe := make([]byte, 128)
		copy(pe, "MZ")
		pe[0x3c] = 64
		copy(pe[64:], "PE\x00\x00\x64\x86")
		return pe
	}
	elf := make([]byte, 64)
	copy(elf, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(elf[18:], 62)
	return elf
}

// TestInstallListedFalsely checks what is said of a catalog that is signed and not true.
func TestInstallListedFalsely(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		program func(t *testing.T) []byte
		text    string
	}{
		"for another machine": {func(*testing.T) []byte { return foreignProgram() }, "and it is one for "},
		"no program":          {func(*testing.T) []byte { return []byte("\x1f\x8b\x08\x00 packed") }, "and it is no program"},
		"another version": {func(t *testing.T) []byte {
			long(t)
			program, err := os.ReadFile(buildPlugin(t, "1.1.0"))
			if err != nil {
				t.Fatal(err)
			}
			return program
		}, "and it says that it is tinyfam 1.1.0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := &programHub{}
			server := httptest.NewServer(hub)
			defer server.Close()
			program := test.program(t)
			hub.set(program, false)
			z, err := sdk.New(append(resumeCatalog(t, program), sdk.WithHome(t.TempDir()), sdk.WithEndpoint(server.URL))...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = z.InstallPlugin(t.Context(), "tinyfam")
			if !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(err.Error(), "the catalog has a program as tinyfam 1.0.0") ||
				!strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), ".zoo-tmp") || zoo.Hint(err) != "report it to who made the catalog" {
				t.Errorf("%v, hint %q", err, zoo.Hint(err))
			}
			if e := findPlugin(t, z, "1.0.0"); e.Origin != sdk.PluginFromCatalog {
				t.Errorf("it is installed: %+v", e)
			}
		})
	}
}

// TestInstallAgain checks that what is installed stays as it is, with what it has running,
// and what a change of it means.
func TestInstallAgain(t *testing.T) {
	long(t)
	t.Parallel()
	log := &journal{}
	z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithOffline(), sdk.WithCatalog(tinyCatalog(t, "")), sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	program := buildPlugin(t, "1.0.0")
	first, err := z.InstallPluginFile(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	installed := sdk.PluginUse{Version: "1.0.0", Origin: sdk.PluginInstalled}
	want := []sdk.PluginMove{{Model: "tiny", After: installed}}
	if diff := cmp.Diff(want, first.Moves); diff != "" || !first.Fresh || first.Plugin.State != sdk.PluginTaken || first.Stale != nil {
		t.Errorf("first %+v\n%s", first, diff)
	}
	if _, err := z.Pull(t.Context(), "tiny"); err != nil {
		t.Fatal(err)
	}

	// The same again: the process that the first call has started answers the next.
	again, err := z.InstallPluginFile(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	if again.Fresh || again.Moves != nil || again.Stale != nil || !cmp.Equal(again.Plugin.Time, first.Plugin.Time) {
		t.Errorf("again %+v", again)
	}
	pids := log.pids(t)
	if _, err := z.Pull(t.Context(), "tiny"); err != nil {
		t.Fatal(err)
	}
	if now := log.pids(t); len(now) != len(pids) {
		t.Errorf("processes %v, then %v", pids, now)
	}

	// Other bytes as the same version: the pack stays, and the new program is the one that runs.
	other, err := z.InstallPluginFile(t.Context(), buildPlugin(t, "1.0.0 -X main.title=Another"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"tiny"}, other.Stale); diff != "" || !other.Fresh || other.Moves != nil || other.Plugin.Title != "Another" {
		t.Errorf("other %+v\n%s", other, diff)
	}
	pids = log.pids(t)
	if done, err := z.Pull(t.Context(), "tiny"); err != nil || done.Fresh {
		t.Errorf("pulled %+v, %v", done, err)
	}
	if now := log.pids(t); len(now) != len(pids)+1 {
		t.Errorf("processes %v, then %v", pids, now)
	}

	// A newer one has to gate what the older one has made, which is said.
	newer, err := z.InstallPluginFile(t.Context(), buildPlugin(t, "1.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	if len(newer.Moves) != 1 || newer.Moves[0].Before != installed || newer.Moves[0].After.Version != "1.1.0" || !strings.Contains(newer.Moves[0].Hint, "zoo gate tiny") {
		t.Errorf("newer %+v", newer)
	}
	removed, err := z.RemovePlugin(t.Context(), "tinyfam")
	if err != nil {
		t.Fatal(err)
	}
	// Back where the pack has passed its gate.
	want = []sdk.PluginMove{{Model: "tiny", Before: newer.Moves[0].After, After: installed}}
	if diff := cmp.Diff(want, removed.Moves); diff != "" || removed.Plugin.Version != "1.1.0" {
		t.Errorf("removed %+v\n%s", removed, diff)
	}
	last, err := z.RemovePlugin(t.Context(), "tinyfam")
	if err != nil {
		t.Fatal(err)
	}
	if len(last.Moves) != 1 || last.Moves[0].After != (sdk.PluginUse{}) || !strings.Contains(last.Moves[0].Problem, "no plugin is named") || last.Moves[0].Hint == "" {
		t.Errorf("last %+v", last)
	}
}

// TestInstallWithoutCatalog checks that a program is installed and removed where the
// catalog cannot be read.
func TestInstallWithoutCatalog(t *testing.T) {
	long(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(file, []byte("schema: 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &journal{}
	z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithCatalog(file), sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	c, err := z.InstallPluginFile(t.Context(), buildPlugin(t, "1.0.0"))
	if err != nil || c.Plugin.State != sdk.PluginTaken || len(c.Plugin.Models) > 0 || !log.has("cannot tell what changes") {
		t.Errorf("installed %+v, %v", c, err)
	}
	if c, err := z.RemovePlugin(t.Context(), "tinyfam"); err != nil || c.Plugin.Version != "1.0.0" {
		t.Errorf("removed %+v, %v", c, err)
	}
}

// TestInstallWaits checks what a call that waits for another tells.
func TestInstallWaits(t *testing.T) {
	long(t)
	t.Parallel()
	home := t.TempDir()
	s, err := zoo.OpenStore(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.LockPlugin(t.Context(), "tinyfam", nil)
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	z, err := sdk.New(sdk.WithHome(home), sdk.WithProgress(sdk.Events{Notice: func(text string) {
		notices = append(notices, text)
		if err := held.Unlock(); err != nil {
			t.Error(err)
		}
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.InstallPluginFile(t.Context(), buildPlugin(t, "1.0.0")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"waiting for another process that changes plugin tinyfam"}, notices); diff != "" {
		t.Error(diff)
	}
}

// TestRemoveExactly checks that a version that is spelled out is the one that goes.
func TestRemoveExactly(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.0.0+a", "1.0.0+b"} {
		for _, sign := range []string{"", "="} {
			home := t.TempDir()
			for _, v := range []string{"1.0.0+a", "1.0.0+b", "0.9.0"} {
				pretend(t, home, v, func(*zoo.PluginRecord) {})
			}
			z, err := sdk.New(sdk.WithHome(home))
			if err != nil {
				t.Fatal(err)
			}
			if c, err := z.RemovePlugin(t.Context(), "tinyfam@"+sign+version); err != nil || c.Plugin.Version != version {
				t.Errorf("%s%s: removed %+v, %v", sign, version, c, err)
			}
		}
	}
}

// TestStarts checks what is said of plugins that do not start: once, and nothing of those
// that were stopped.
func TestStarts(t *testing.T) {
	t.Parallel()
	home, log := t.TempDir(), &journal{}
	pretend(t, home, "1.0.0", func(*zoo.PluginRecord) {})
	pretend(t, home, "1.1.0", func(*zoo.PluginRecord) {})
	z, err := sdk.New(sdk.WithHome(home), sdk.WithOffline(), sdk.WithCatalog(tinyCatalog(t, "")), sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Pull(t.Context(), "tiny"); err == nil || !strings.Contains(err.Error(), "1.1.0") {
		t.Errorf("pulled with what is no program: %v", err)
	}
	if !log.has(`plugin="tinyfam 1.0.0"`) || log.has(`plugin="tinyfam 1.1.0"`) {
		t.Errorf("logged\n%s", &log.b)
	}
}

// TestInstallLocked checks that a lock file says which version is installed, and of which bytes.
func TestInstallLocked(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("1", 64)
	for name, test := range map[string]struct {
		version, ref string
		want         error
		text         string
	}{
		"of other bytes":   {"3.0.0", "tinyfam", zoo.ErrIntegrity, "its program for"},
		"not there":        {"2.0.0", "tinyfam", zoo.ErrNotFound, `"=2.0.0"`},
		"another, by name": {"2.0.0", "tinyfam@3.0.0", zoo.ErrNotFound, "not found"}, // the program, while offline
	} {
		file := tinyCatalog(t, catalogPlugins(runtime.GOOS, runtime.GOARCH))
		plugin := catalog.LockedVersion{Name: "tinyfam", Version: test.version}
		lock := catalog.Lock{
			Models: []catalog.LockedModel{{
				Name: "tiny", Version: "1.0.0", Plugin: plugin, Pack: catalog.Digest("sha256:" + sum),
				Source: catalog.LockedSource{Kind: catalog.KindEmbedded, Repository: "demo", Files: []catalog.File{{Path: "config.json", SizeBytes: 1, SHA256: sum}}},
			}},
			Plugins: []catalog.LockedPlugin{{LockedVersion: plugin, Programs: []catalog.LockedProgram{{OS: runtime.GOOS, Arch: runtime.GOARCH, SizeBytes: 7, SHA256: sum}}}},
		}
		if err := sdk.WriteLock(t.Context(), file+".lock", &lock); err != nil {
			t.Fatal(err)
		}
		z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithOffline(), sdk.WithCatalog(file), signed(t, file), sdk.WithLock(file+".lock"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.InstallPlugin(t.Context(), test.ref); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHintFlags checks that commands in hints are those that would do.
func TestHintFlags(t *testing.T) {
	t.Parallel()
	file := tinyCatalog(t, catalogPlugins(runtime.GOOS, runtime.GOARCH))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(data, []byte("constraint: ^1"), []byte("constraint: ~3.0")), 0o600); err != nil {
		t.Fatal(err)
	}
	z, err := sdk.New(sdk.WithHome(t.TempDir()), sdk.WithOffline(), sdk.WithCatalog(file), signed(t, file), sdk.WithHintFlags("--catalog", "it's mine.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := "run `zoo plugin install tinyfam --catalog 'it'\\''s mine.yaml'`"
	plan, err := z.Plan(t.Context(), "tiny")
	if err != nil || plan.Problem == "" || plan.Hint != want {
		t.Errorf("plan: problem %q, hint %q, %v", plan.Problem, plan.Hint, err)
	}
	shown, err := z.Show(t.Context(), "tiny")
	if err != nil || shown.Problem == "" || shown.Hint != want {
		t.Errorf("show: problem %q, hint %q, %v", shown.Problem, shown.Hint, err)
	}
	if _, err := z.Convert(t.Context(), sdk.ConvertOptions{Plugin: "abacus", Output: filepath.Join(t.TempDir(), "pack")}); strings.Contains(zoo.Hint(err), "plugin install abacus") {
		t.Errorf("a plugin that nobody has: hint %q", zoo.Hint(err))
	}
	if e := findPlugin(t, z, "3.0.0"); e.Why != fmt.Sprintf("`zoo plugin install tinyfam@3.0.0 --catalog %s` installs it", `'it'\''s mine.yaml'`) {
		t.Errorf("listed as %+v", e)
	}
}
