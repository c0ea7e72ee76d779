package zoo_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// pluginRecord is the record of a program of this text.
func pluginRecord(name, version, text string) zoo.PluginRecord {
	return zoo.PluginRecord{
		Name: name, Version: version, Title: "A family", Operations: 1, Protocol: 1, OS: runtime.GOOS, Arch: runtime.GOARCH,
		SHA256: catalog.DigestOf([]byte(text)).Hex(), SizeBytes: int64(len(text)), Origin: "a test",
	}
}

// installPlugin installs a program of this text, by way of a file in dir.
func installPlugin(s *zoo.Store, dir, name, version, text string) (*zoo.StoredPlugin, error) {
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	lock, err := s.LockPlugin(context.Background(), name, nil)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	return lock.Install(context.Background(), file, pluginRecord(name, version, text), func(string, *zoo.PluginRecord) error { return nil })
}

// stored lists "name version" of all plugins, with a mark at damaged ones.
func stored(t *testing.T, s *zoo.Store) []string {
	t.Helper()
	all, err := s.Plugins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, p := range all {
		text := p.Name + " " + p.Version
		if p.Problem != nil {
			text += " damaged"
		}
		list = append(list, text)
	}
	return list
}

func TestPlugins(t *testing.T) {
	s, _ := newStore(t)
	if got := stored(t, s); len(got) != 0 {
		t.Errorf("an empty store has %v", got)
	}
	for _, p := range [][2]string{{"fam", "1.2.0"}, {"fam", "1.10.0"}, {"fam", "2.0.0-rc.1+build"}, {"abc", "0.1.0"}} {
		if _, err := installPlugin(s, t.TempDir(), p[0], p[1], "program "+p[1]); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"abc 0.1.0", "fam 2.0.0-rc.1+build", "fam 1.10.0", "fam 1.2.0"}
	if diff := cmp.Diff(want, stored(t, s)); diff != "" {
		t.Error(diff)
	}
	all, err := s.Plugins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := all[2]
	if diff := cmp.Diff(pluginRecord("fam", "1.10.0", "program 1.10.0"), p.PluginRecord, cmpopts.IgnoreFields(zoo.PluginRecord{}, "Installed")); diff != "" {
		t.Error(diff)
	}
	if time.Since(p.Installed) > time.Minute || p.ID() != (zoo.PluginID{Name: "fam", Version: "1.10.0"}) {
		t.Errorf("installed %v, id %v", p.Installed, p.ID())
	}
	if data, err := os.ReadFile(p.Path); err != nil || string(data) != "program 1.10.0" {
		t.Errorf("the program is %q, %v", data, err)
	}
	if runtime.GOOS != "windows" {
		if info, err := os.Stat(p.Path); err != nil || info.Mode().Perm() != 0o555 {
			t.Errorf("the program's mode is %v, %v", info.Mode(), err)
		}
	}
	if err := s.VerifyPlugin(t.Context(), p); err != nil {
		t.Error(err)
	}
	if err := removePlugin(t, s, "fam", "1.10.0"); err != nil {
		t.Error(err)
	}
	if err := removePlugin(t, s, "fam", "1.10.0"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if err := removePlugin(t, s, "abc", "0.1.0"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"fam 2.0.0-rc.1+build", "fam 1.2.0"}, stored(t, s)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(s.Home(), "plugins", "abc")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder is left: %v", err)
	}
}

// removePlugin removes a version.
func removePlugin(t *testing.T, s *zoo.Store, name, version string) error {
	t.Helper()
	lock, err := s.LockPlugin(t.Context(), name, nil)
	if err != nil {
		return err
	}
	return errors.Join(lock.Remove(version), lock.Unlock())
}

func TestPluginReplaced(t *testing.T) {
	s, _ := newStore(t)
	first, err := installPlugin(s, t.TempDir(), "fam", "1.0.0", "one")
	if err != nil {
		t.Fatal(err)
	}
	// The same again stays; a damaged one, or one of other bytes, makes way.
	info, err := os.Stat(first.Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := installPlugin(s, t.TempDir(), "fam", "1.0.0", "one"); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(first.Path); err != nil || !os.SameFile(info, again) {
		t.Errorf("a sound program was replaced: %v", err)
	}
	lock, err := s.LockPlugin(t.Context(), "fam", nil)
	if err != nil {
		t.Fatal(err)
	}
	never := func(string, *zoo.PluginRecord) error { return errors.New("it was tried") }
	if _, err := lock.Install(t.Context(), filepath.Join(t.TempDir(), "none"), pluginRecord("fam", "1.0.0", "one"), never); err != nil {
		t.Errorf("what is installed was read again: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	overwrite(t, first.Path, "eno")
	if err := s.VerifyPlugin(t.Context(), *first); !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(zoo.Hint(err), "zoo plugin rm fam@1.0.0") {
		t.Errorf("damage: %v, hint %q", err, zoo.Hint(err))
	}
	for _, text := range []string{"one", "two"} {
		p, err := installPlugin(s, t.TempDir(), "fam", "1.0.0", text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.VerifyPlugin(t.Context(), *p); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// overwrite changes a file that is read-only.
func overwrite(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.Chmod(file, 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func TestPluginRefused(t *testing.T) {
	s, _ := newStore(t)
	for _, p := range [][2]string{
		{"", "1.0.0"}, {"..", "1.0.0"}, {"../fam", "1.0.0"}, {"a/b", "1.0.0"}, {"Fam", "1.0.0"}, {"con", "1.0.0"}, {"fam\x00", "1.0.0"}, {strings.Repeat("x", 65), "1.0.0"},
		{"fam", ""}, {"fam", ".."}, {"fam", "../1.0.0"}, {"fam", "1.0"}, {"fam", "v1.0.0"}, {"fam", "1.0.0/../../x"}, {"fam", "1.0.0-" + strings.Repeat("x", 64)},
	} {
		if _, err := installPlugin(s, t.TempDir(), p[0], p[1], "x"); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("install of %q %q: %v", p[0], p[1], err)
		}
		if err := removePlugin(t, s, p[0], p[1]); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("removal of %q %q: %v", p[0], p[1], err)
		}
	}
	lock, err := s.LockPlugin(t.Context(), "fam", nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := func(string, *zoo.PluginRecord) error { return nil }
	broken := errors.New("it does not start")
	tests := []struct {
		name string
		edit func(r *zoo.PluginRecord)
		try  func(path string, r *zoo.PluginRecord) error
		want error
		text string
	}{
		{"digest", func(r *zoo.PluginRecord) { r.SHA256 = strings.Repeat("0", 64) }, none, zoo.ErrIntegrity, "has sha256 "},
		{"longer", func(r *zoo.PluginRecord) { r.SizeBytes = 6 }, none, zoo.ErrIntegrity, "has more than 6 bytes"},
		{"shorter", func(r *zoo.PluginRecord) { r.SizeBytes = 8 }, none, zoo.ErrIntegrity, "has 7 bytes, not 8"},
		{"other name", func(r *zoo.PluginRecord) { r.Name = "other" }, none, zoo.ErrUsage, ""},
		{"name changed", func(*zoo.PluginRecord) {}, func(_ string, r *zoo.PluginRecord) error { r.Version = "2.0.0"; return nil }, zoo.ErrUsage, ""},
		{"not tried", func(*zoo.PluginRecord) {}, func(string, *zoo.PluginRecord) error { return broken }, broken, ""},
		{"no protocol", func(r *zoo.PluginRecord) { r.Protocol = 0 }, none, zoo.ErrUsage, ""},
		{"system", func(r *zoo.PluginRecord) { r.OS = "../x" }, none, zoo.ErrUsage, ""},
		{"title of lines", func(r *zoo.PluginRecord) { r.Title = "a\nb" }, none, zoo.ErrUsage, ""},
	}
	for _, test := range tests {
		r := pluginRecord("fam", "1.0.0", "program")
		test.edit(&r)
		if _, err := lock.Install(t.Context(), file, r, test.try); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := lock.Install(t.Context(), filepath.Join(t.TempDir(), "none"), pluginRecord("fam", "1.0.0", "x"), none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(s.Home(), "plugins", "fam"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := errors.Join(lock.Unlock(), lock.Unlock()); err != nil {
		t.Error(err)
	}
	if _, err := lock.FetchDir("1.0.0", strings.Repeat("0", 64)); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a lock that was given up: %v", err)
	}
	if _, err := lock.Installed(t.Context(), "1.0.0", strings.Repeat("0", 64)); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a lock that was given up: %v", err)
	}
	if _, err := lock.InstallFetched(t.Context(), "../program", pluginRecord("fam", "1.0.0", "x"), none); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a path out of the folder: %v", err)
	}
}

// TestPluginFetched checks where a program lies while it is fetched, and when it goes.
func TestPluginFetched(t *testing.T) {
	s, _ := newStore(t)
	lock, err := s.LockPlugin(t.Context(), "fam", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	one, two := strings.Repeat("1", 64), catalog.DigestOf([]byte("program")).Hex()
	fetch := func(version, sum string) string {
		t.Helper()
		dir, err := lock.FetchDir(version, sum)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "part"), []byte("pro"), 0o400)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	fetched := func(want ...string) {
		t.Helper()
		got, err := s.FetchedPlugins("fam")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
	fetched()
	if _, err := lock.FetchDir("1.8.0", one); err != nil {
		t.Fatal(err)
	}
	fetched() // nothing yet
	old := fetch("1.0.0", one)
	fetch("1.10.0-rc.1", one)
	fetch("1.9.0", one)
	if again, err := lock.FetchDir("1.0.0", one); err != nil || again != old {
		t.Errorf("the folder is %q, then %q: %v", old, again, err)
	}
	if data, err := os.ReadFile(filepath.Join(old, "part")); err != nil || string(data) != "pro" {
		t.Errorf("the part is %q: %v", data, err)
	}
	// Another program of the version: what was there is of no use.
	if dir := fetch("1.0.0", two); dir == old {
		t.Errorf("two programs share %q", dir)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the part of another program: %v", err)
	}
	fetched("1.10.0-rc.1", "1.9.0", "1.0.0")
	if got := stored(t, s); len(got) != 0 {
		t.Errorf("what was fetched is listed as installed: %v", got)
	}

	if err := lock.Remove("1.9.0"); err != nil {
		t.Error(err)
	}
	if err := lock.Remove("1.9.0"); !errors.Is(err, zoo.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("it does not start")
	for _, fail := range []error{broken, nil} {
		if _, err := lock.Install(t.Context(), file, pluginRecord("fam", "1.0.0", "program"), func(string, *zoo.PluginRecord) error { return fail }); !errors.Is(err, fail) {
			t.Fatal(err)
		}
		if fail != nil {
			fetched("1.10.0-rc.1", "1.0.0")
		}
	}
	fetched("1.10.0-rc.1")
	fetch("1.0.0", two)
	if err := lock.Remove("1.0.0"); err != nil {
		t.Error(err)
	}
	fetched("1.10.0-rc.1")
	if err := errors.Join(lock.RemoveFetched("1.10.0-rc.1"), lock.RemoveFetched("1.10.0-rc.1")); err != nil {
		t.Error(err)
	}
	fetched()
	if err := lock.RemoveFetched("1.8.0"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.Home(), "plugins", "fam")); err == nil && len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	for _, p := range [][2]string{{"1.0", one}, {"../x", one}, {"1.0.0", ""}, {"1.0.0", "../" + one[3:]}, {"1.0.0", strings.Repeat("A", 64)}} {
		if _, err := lock.FetchDir(p[0], p[1]); !errors.Is(err, zoo.ErrUsage) {
			t.Errorf("version %q, sha256 %q: %v", p[0], p[1], err)
		}
	}
	if _, err := s.FetchedPlugins("../fam"); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a name that is none: %v", err)
	}
	if err := lock.RemoveFetched("../fam"); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a version that is none: %v", err)
	}
}

// TestPluginMoved checks that what was fetched is moved to its place, comes back where it
// cannot be installed, and is copied where somebody else has it, too.
func TestPluginMoved(t *testing.T) {
	broken := errors.New("it does not start")
	tests := map[string]struct {
		shared bool
		text   string
		try    error
		want   error
		moved  bool
	}{
		"moved":   {false, "program", nil, nil, true},
		"broken":  {false, "program", broken, broken, false},
		"damaged": {false, "progrbm", nil, zoo.ErrIntegrity, false},
		"cut":     {false, "prog", nil, zoo.ErrIntegrity, false},
		"shared":  {true, "program", nil, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			lock, err := s.LockPlugin(t.Context(), "fam", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Unlock()
			r := pluginRecord("fam", "1.0.0", "program")
			dir, err := lock.FetchDir(r.Version, r.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			file, other := filepath.Join(dir, "bin", "program"), filepath.Join(t.TempDir(), "other")
			if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(test.text), 0o644)); err != nil {
				t.Fatal(err)
			}
			if test.shared {
				if err := os.Link(file, other); err != nil {
					t.Skip(err)
				}
			}
			before, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := lock.InstallFetched(t.Context(), "bin/program", r, func(program string, _ *zoo.PluginRecord) error {
				if info, err := os.Stat(program); err != nil || os.SameFile(info, before) == test.shared || runtime.GOOS != "windows" && info.Mode().Perm()&0o100 == 0 {
					t.Errorf("tried as %v: %v", info.Mode(), err)
				}
				return test.try
			})
			if !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if err != nil {
				if data, err := os.ReadFile(file); err != nil || string(data) != test.text {
					t.Errorf("what was fetched is %q now: %v", data, err)
				}
				return
			}
			if err := s.VerifyPlugin(t.Context(), *p); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(p.Path); err != nil || os.SameFile(info, before) != test.moved || runtime.GOOS != "windows" && info.Mode().Perm() != 0o555 {
				t.Errorf("installed as %v: %v", info.Mode(), err)
			}
			if test.shared {
				if info, err := os.Stat(other); err != nil || info.Mode() != before.Mode() {
					t.Errorf("the file of somebody else: %v, was %v, %v", info.Mode(), before.Mode(), err)
				}
			}
			if left, err := os.ReadDir(filepath.Join(s.Home(), "plugins", "fam")); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestPluginsUnlisted checks that what lies among the plugins and is none, or cannot be
// looked into, keeps nothing else from being listed.
func TestPluginsUnlisted(t *testing.T) {
	s, _ := newStore(t)
	if _, err := installPlugin(s, t.TempDir(), "fam", "1.0.0", "program"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Home(), "plugins")
	for _, name := range []string{"bar", "fam/1.0.1", "fam/.DS_Store"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"fam 1.0.0"}, stored(t, s)); diff != "" {
		t.Error(diff)
	}
	if got, err := s.FetchedPlugins("bar"); err != nil || len(got) > 0 {
		t.Errorf("fetched where a file lies: %v, %v", got, err)
	}
	if _, err := installPlugin(s, t.TempDir(), "bar", "1.0.0", "program"); !errors.Is(err, zoo.ErrUsage) || !strings.Contains(zoo.Hint(err), "out of the way") {
		t.Errorf("install where a file lies: %v, hint %q", err, zoo.Hint(err))
	}
	problem := func(want error, name, text, hint string) {
		t.Helper()
		all, err := s.Plugins(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.Version == "" && p.Name == name {
				if !errors.Is(p.Problem, want) || !strings.Contains(p.Problem.Error(), text) || !strings.Contains(zoo.Hint(p.Problem), hint) {
					t.Errorf("problem %v, hint %q", p.Problem, zoo.Hint(p.Problem))
				}
				if err := s.VerifyPlugin(t.Context(), p); !errors.Is(err, want) {
					t.Errorf("verified: %v", err)
				}
				return
			}
		}
		t.Errorf("%q is not among %v", name, all)
	}
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(filepath.Join(dir, "closed")); errors.Is(err, fs.ErrPermission) {
		problem(zoo.ErrNotPermitted, "closed", "versions of plugin closed cannot be listed", filepath.Join(dir, "closed"))
		if got := stored(t, s); len(got) != 2 {
			t.Errorf("listed %v", got)
		}
	}
	if err := errors.Join(os.Rename(dir, dir+"-aside"), os.WriteFile(dir, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	problem(zoo.ErrIntegrity, "", "plugins cannot be listed", "see what lies in the folder plugins")
}

func TestPluginDamaged(t *testing.T) {
	s, _ := newStore(t)
	if _, err := installPlugin(s, t.TempDir(), "whole", "1.0.0", "program"); err != nil {
		t.Fatal(err)
	}
	damage := map[string]func(dir, program string){
		"1.0.0": func(_, program string) { overwrite(t, program, "longer than it was") },
		"1.0.1": func(_, program string) { _ = os.Remove(program) },
		"1.0.2": func(dir, _ string) { overwrite(t, filepath.Join(dir, "plugin.json"), "{") },
		"1.0.3": func(dir, _ string) { _ = os.Remove(filepath.Join(dir, "plugin.json")) },
		"1.0.4": func(dir, program string) {
			if os.Remove(program) == nil && os.Symlink(filepath.Join(s.Home(), "plugins", "whole", "1.0.0", filepath.Base(program)), program) != nil {
				t.Log("no links here")
			}
		},
		"1.0.5": func(_, program string) { _ = errors.Join(os.Remove(program), os.Mkdir(program, 0o700)) },
		"1.0.6": func(_, program string) {
			if runtime.GOOS == "windows" {
				_ = os.Remove(program) // there is no right to be executed
			}
			_ = os.Chmod(program, 0o444)
		},
	}
	for version, f := range damage {
		p, err := installPlugin(s, t.TempDir(), "fam", version, "program")
		if err != nil {
			t.Fatal(err)
		}
		f(filepath.Dir(p.Path), p.Path)
	}
	// Other files and folders are none of the store's.
	for _, dir := range []string{"Other/1.0.0", "fam/latest", ".hidden/1.0.0"} {
		if err := os.MkdirAll(filepath.Join(s.Home(), "plugins", dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"fam 1.0.6 damaged", "fam 1.0.5 damaged", "fam 1.0.4 damaged", "fam 1.0.3 damaged", "fam 1.0.2 damaged", "fam 1.0.1 damaged", "fam 1.0.0 damaged", "whole 1.0.0"}
	if diff := cmp.Diff(want, stored(t, s)); diff != "" {
		t.Error(diff)
	}
	all, err := s.Plugins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all[:len(damage)] {
		if err := s.VerifyPlugin(t.Context(), p); !errors.Is(err, zoo.ErrIntegrity) || zoo.Hint(err) == "" {
			t.Errorf("%s: %v", p.Version, err)
		}
		if err := removePlugin(t, s, p.Name, p.Version); err != nil {
			t.Errorf("%s: %v", p.Version, err)
		}
	}
	if diff := cmp.Diff([]string{"whole 1.0.0"}, stored(t, s)); diff != "" {
		t.Error(diff)
	}
}

// TestPluginKilled kills an installation before each of its steps.
func TestPluginKilled(t *testing.T) {
	for step, want := range map[string]string{"replace plugin": "old program", "delete plugin": "", "plugin": ""} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s, _ := newStore(t)
			dir := t.TempDir()
			if _, err := installPlugin(s, dir, "fam", "1.0.0", "old program"); err != nil {
				t.Fatal(err)
			}
			cmd := taskCommand(t.Context(), t, "plugin", s.Home(), step)
			cmd.Env = append(cmd.Env, envDir+"="+dir)
			if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
				t.Fatalf("the process was not killed: %v: %s", err, out)
			}
			all, err := s.Plugins(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(all) > 0 {
				data, err := os.ReadFile(all[0].Path)
				if err != nil {
					t.Fatal(err)
				}
				got = string(data)
			}
			if got != want {
				t.Errorf("the program is %q, want %q", got, want)
			}
			if _, err := installPlugin(s, dir, "fam", "1.0.0", "new program"); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(filepath.Join(s.Home(), "plugins", "fam")); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// FuzzPluginRecord checks that no plugin.json makes the list of plugins panic, or has
// a plugin listed as sound under another name than its folder's.
func FuzzPluginRecord(f *testing.F) {
	f.Add([]byte(`{"name":"fam","version":"1.0.0","title":"t","operations":1,"protocol":1,"os":"linux","arch":"amd64","sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":7,"origin":"o"}`))
	f.Add([]byte(`{"size":-1}`))
	s, err := zoo.OpenStore(f.TempDir(), nil)
	if err != nil {
		f.Fatal(err)
	}
	p, err := installPlugin(s, f.TempDir(), "fam", "1.0.0", "program")
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(p.Path), "plugin.json")
	if err := os.Chmod(file, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := s.Plugins(t.Context())
		if err != nil || len(all) != 1 || all[0].Name != "fam" || all[0].Version != "1.0.0" {
			t.Fatalf("plugins %v, %v", all, err)
		}
		if r := all[0]; r.Problem == nil && (r.SizeBytes != 7 || len(r.SHA256) != 64 || r.Protocol < 1) {
			t.Errorf("accepted %+v", r)
		}
	})
}
