package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// buildPlugin builds the plugin of tests as another version.
func buildPlugin(t *testing.T, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tinyfam")
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w -X main.version="+version, "-o", file, "./testdata/plugin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return file
}

// tinyCatalog writes a catalog with the demo as a model "tiny" of the plugin of tests.
func tinyCatalog(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	text := strings.ReplaceAll(plainModels("tiny"), "gemma4e2b", "tinyfam")
	if err := os.WriteFile(file, []byte(text+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// journal is a logger's text.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// pids returns the processes of plugins so far.
func (j *journal) pids(t *testing.T) []int {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []int
	for _, m := range regexp.MustCompile(`has started pid=(\d+)`).FindAllStringSubmatch(j.b.String(), -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

// has reports whether the log has a text.
func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.b.String(), text)
}

// TestInstalledPlugin takes a model along the whole road with a plugin in another process.
func TestInstalledPlugin(t *testing.T) {
	long(t)
	t.Parallel()
	home, log := t.TempDir(), &journal{}
	z, err := sdk.New(sdk.WithHome(home), sdk.WithOffline(), sdk.WithCatalog(tinyCatalog(t, "")), sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if _, err := z.Pull(t.Context(), "tiny"); !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(zoo.Hint(err), "zoo plugin install") {
		t.Errorf("without the plugin: %v, hint %q", err, zoo.Hint(err))
	}
	old, err := z.InstallPluginFile(t.Context(), buildPlugin(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	done, err := z.Pull(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	if done.Record.Plugin != (zoo.PluginID{Name: "tinyfam", Version: "1.0.0"}) || !done.Receipt.Passed {
		t.Errorf("pulled %+v", done)
	}

	// A process that was killed is started anew.
	pids := log.pids(t)
	p, err := os.FindProcess(pids[len(pids)-1])
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := z.Open(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if now := log.pids(t); len(now) != len(pids)+1 {
		t.Errorf("processes %v, then %v", pids, now)
	}

	// A newer version is taken, and where it is damaged passed over.
	newer, err := z.InstallPluginFile(t.Context(), buildPlugin(t, "1.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	if e := findPlugin(t, z, "1.0.0"); e.State != sdk.PluginPassedOver {
		t.Errorf("the older plugin is %+v", e)
	}
	invert(t, newer.Plugin.Path)
	if e := findPlugin(t, z, "1.1.0"); e.State != sdk.PluginUnusable || !strings.Contains(e.Why, "sha256") {
		t.Errorf("the damaged plugin is %+v", e)
	}
	if done, err := z.Pull(t.Context(), "tiny"); err != nil || done.Record.Plugin.Version != "1.0.0" || done.Fresh {
		t.Errorf("with a damaged newer plugin: %+v, %v", done, err)
	}
	if !log.has("passing over a plugin") {
		t.Error("nothing was logged")
	}
	if c, err := z.RemovePlugin(t.Context(), "tinyfam@"+old.Plugin.Version); err != nil || c.Plugin.Version != "1.0.0" {
		t.Errorf("removed %+v, %v", c, err)
	}
	if _, err := z.Pull(t.Context(), "tiny"); !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(zoo.Hint(err), "zoo plugin install") {
		t.Errorf("with a damaged plugin alone: %v, hint %q", err, zoo.Hint(err))
	}

	// The model that is open needs no plugin.
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if reply, err := m.Respond(t.Context(), "What is the capital of France?"); err != nil || !strings.Contains(reply, "Paris") {
		t.Errorf("%q, %v", reply, err)
	}
	if _, err := z.Pull(t.Context(), "tiny"); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("after Close: %v", err)
	}
}

// findPlugin returns the entry of a version of the plugin of tests.
func findPlugin(t *testing.T, z *sdk.Zoo, version string) sdk.PluginEntry {
	t.Helper()
	all, err := z.Plugins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Name == "tinyfam" && e.Version == version {
			return e
		}
	}
	t.Fatalf("no version %s among %+v", version, all)
	return sdk.PluginEntry{}
}

// invert flips a bit in the middle of a file that is read-only.
func invert(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := errors.Join(os.Remove(file), os.WriteFile(file, data, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// pretend installs a plugin whose program is never started.
func pretend(t *testing.T, home, version string, edit func(*zoo.PluginRecord)) *zoo.StoredPlugin {
	t.Helper()
	s, err := zoo.OpenStore(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.LockPlugin(t.Context(), "tinyfam", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	text := []byte("no program " + version)
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := zoo.PluginRecord{
		Name: "tinyfam", Version: version, Title: "t", Operations: 1, Protocol: 1, OS: runtime.GOOS, Arch: runtime.GOARCH,
		SHA256: catalog.DigestOf(text).Hex(), SizeBytes: int64(len(text)), Origin: "a test",
	}
	p, err := lock.Install(t.Context(), file, r, func(_ string, r *zoo.PluginRecord) error { edit(r); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPluginChoice checks which plugin is taken, and what is said of the others.
func TestPluginChoice(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	same := func(*zoo.PluginRecord) {}
	pretend(t, home, "1.0.0", same)
	pretend(t, home, "1.1.0", same)
	pretend(t, home, "1.2.0-rc.1", same)
	pretend(t, home, "1.3.0", func(r *zoo.PluginRecord) { r.Protocol = 99 })
	pretend(t, home, "1.4.0", func(r *zoo.PluginRecord) { r.Arch = "mips" })
	pretend(t, home, "1.5.0", func(r *zoo.PluginRecord) { r.Operations = 99 })
	invert(t, pretend(t, home, "1.6.0", same).Path)
	pretend(t, home, "2.0.0", same)
	file := tinyCatalog(t, catalogPlugins(runtime.GOOS, runtime.GOARCH))
	z, err := sdk.New(sdk.WithHome(home), sdk.WithOffline(), sdk.WithCatalog(file), signed(t, file))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	all, err := z.Plugins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range all {
		if e.Name == "tinyfam" || e.Name == "gemma4e2b" {
			got[e.Name+" "+e.Version] = fmt.Sprintf("%s, %s: %s %v", e.Origin, e.State, e.Why, e.Models)
		}
	}
	for name, want := range map[string]string{
		"gemma4e2b 1.0.0":    `^built in, taken: the newest that can be used \[demo gemma-4-e2b gemma-4-e2b-q4_0\]$`,
		"tinyfam 1.0.0":      `^installed, passed over: 2.0.0 is newer, and installed \[\]$`,
		"tinyfam 1.1.0":      `^installed, taken: the newest that these models allow \[tiny\]$`,
		"tinyfam 1.2.0-rc.1": `^installed, passed over: `,
		"tinyfam 1.3.0":      `^installed, unusable: .*speaks version 99 of the protocol`,
		"tinyfam 1.4.0":      `^installed, unusable: .*/mips, this is `,
		"tinyfam 1.5.0":      `^installed, unusable: .*version 99 of the operations`,
		"tinyfam 1.6.0":      `^installed, unusable: .*sha256`,
		"tinyfam 2.0.0":      `^installed, taken: the newest that can be used \[\]$`,
		"tinyfam 3.0.0":      `^catalog, available: .zoo plugin install tinyfam@3.0.0. installs it`,
		"tinyfam 3.1.0":      `^catalog, unusable: .*not there for`,
		"tinyfam 3.2.0":      `^catalog, unusable: .*version 99 of the protocol`,
		"tinyfam 3.3.0":      `^catalog, unusable: .*version 99 of the operations`,
	} {
		if !regexp.MustCompile(want).MatchString(got[name]) {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) != 0 {
		t.Errorf("further plugins %v", got)
	}

	// Whatever is installed can be removed, what does not work included.
	for _, version := range []string{"2.0.0", "1.6.0", "1.5.0", "1.4.0", "1.3.0", "1.2.0-rc.1"} {
		if c, err := z.RemovePlugin(t.Context(), "tinyfam"); err != nil || c.Plugin.Version != version || c.Plugin.Origin != sdk.PluginInstalled {
			t.Errorf("removed %+v, want %s: %v", c, version, err)
		}
	}
	if _, err := z.RemovePlugin(t.Context(), "tinyfam@^7"); !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(zoo.Hint(err), "1.1.0, 1.0.0") {
		t.Errorf("removal of none: %v, hint %q", err, zoo.Hint(err))
	}
	if _, err := z.RemovePlugin(t.Context(), "gemma4e2b"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("removal of one that is built in: %v", err)
	}
	entries, err := z.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name == "tiny" && e.Problem != "" {
			t.Errorf("tiny has the problem %q", e.Problem)
		}
	}
	// What is no program is passed over when it is started, and is the error if there is nothing else.
	if _, err := z.Pull(t.Context(), "tiny"); err == nil || errors.Is(err, zoo.ErrNotFound) && runtime.GOOS == "linux" || !strings.Contains(err.Error(), "1.1.0") {
		t.Errorf("programs that are none: %v", err)
	}
}

// catalogPlugins is a list of plugins for a catalog: one for this machine, one for
// another, one of another protocol, one of other operations.
func catalogPlugins(system, arch string) string {
	version := func(v, system, arch string, protocol, operations int) string {
		return fmt.Sprintf(`      - version: %s
        protocol: %d
        operations: %d
        binaries:
          - os: %s
            arch: %s
            source: {kind: hub, repository: makers/tinyfam, revision: main, files: [{path: bin/tinyfam, size: 7, sha256: "%s"}]}
`, v, protocol, operations, system, arch, strings.Repeat("0", 64))
	}
	return `plugins:
  - name: tinyfam
    title: A family of tests
    licence: {spdx: MIT, url: "https://example.org/licence"}
    versions:
` + version("3.0.0", system, arch, 1, 1) + version("3.1.0", "plan9", "mips", 1, 1) + version("3.2.0", system, arch, 99, 1) + version("3.3.0", system, arch, 1, 99)
}

// TestPluginAdvice checks what is said to a user whose plugin is missing.
func TestPluginAdvice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, version, system, want string
		signed                      bool
	}{
		{"newest", "3.0.0", runtime.GOOS, "run `zoo plugin install tinyfam`", true},
		{"not signed", "3.0.0", runtime.GOOS, "whose signature has not been checked: get the public key", false},
		{"elsewhere", "3.0.0", "plan9", "not there for " + runtime.GOOS, true},
		{"elsewhere, not signed", "3.0.0", "plan9", "not there for " + runtime.GOOS, false},
		{"too old", "0.9.0", runtime.GOOS, "this build has no plugin tinyfam", true},
	} {
		text := strings.ReplaceAll(catalogPlugins(test.system, runtime.GOARCH), "version: 3.0.0", "version: "+test.version)
		file := tinyCatalog(t, text)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, bytes.ReplaceAll(data, []byte("constraint: ^1"), []byte("constraint: ~3.0")), 0o600); err != nil {
			t.Fatal(err)
		}
		opts := []sdk.Option{sdk.WithHome(t.TempDir()), sdk.WithOffline(), sdk.WithCatalog(file)}
		if test.signed {
			opts = append(opts, signed(t, file))
		}
		z, err := sdk.New(opts...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Pull(t.Context(), "tiny"); !errors.Is(err, zoo.ErrNotFound) || !strings.Contains(zoo.Hint(err), test.want) {
			t.Errorf("%s: %v, hint %q", test.name, err, zoo.Hint(err))
		}
	}
}

// TestInstallRefused checks what is no plugin for this machine.
func TestInstallRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	z, err := sdk.New(sdk.WithHome(filepath.Join(dir, "home")), sdk.WithOffline(), sdk.WithCatalog(tinyCatalog(t, catalogPlugins("plan9", "mips"))))
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// A head of ELF for a machine that nobody has.
	elf := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
	elf[18] = 22
	for name, test := range map[string]struct {
		file string
		want error
		hint string
	}{
		"none":     {filepath.Join(dir, "none"), zoo.ErrNotFound, ""},
		"folder":   {dir, zoo.ErrUsage, "program"},
		"machine":  {file("elf", string(elf), 0o755), zoo.ErrNotFound, "GOARCH=" + runtime.GOARCH},
		"no right": {file("plain", "#!/bin/sh\n", 0o644), zoo.ErrNotPermitted, "chmod +x"},
		"ends":     {file("script", "#!/bin/sh\nexit 3\n", 0o755), nil, "rpc.Serve"},
	} {
		if runtime.GOOS == "windows" && (name == "no right" || name == "ends") {
			continue
		}
		_, err := z.InstallPluginFile(t.Context(), test.file)
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(zoo.Hint(err), test.hint) {
			t.Errorf("%s: %v, hint %q", name, err, zoo.Hint(err))
		}
	}
	for ref, want := range map[string]error{"tinyfam": zoo.ErrNotFound, "other": zoo.ErrNotFound, "tinyfam@^9": zoo.ErrNotFound, "tinyfam@^^": zoo.ErrUsage, "../x": zoo.ErrUsage} {
		if _, err := z.InstallPlugin(t.Context(), ref); !errors.Is(err, want) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v, hint %q", ref, err, zoo.Hint(err))
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "home")); err == nil && len(left) > 0 {
		t.Errorf("left in the store: %v", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if _, err := z.InstallPluginFile(ctx, file("late", "#!/bin/sh\n", 0o755)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
}
