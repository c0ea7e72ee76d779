package zoo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/zoo"
)

// Environment of a test binary that is run again as a process of its own.
const (
	envTask = "ZOO_TEST_TASK"
	envHome = "ZOO_TEST_HOME"
	envStep = "ZOO_TEST_STEP"
	envDir  = "ZOO_TEST_DIR"
)

// TestMain runs one of the tasks below in place of the tests when it is told to.
func TestMain(m *testing.M) {
	task, ok := tasks[os.Getenv(envTask)]
	if !ok {
		os.Exit(m.Run())
	}
	s, err := zoo.OpenStore(os.Getenv(envHome), nil)
	if err == nil {
		s.SetFailpoint(dieAt(os.Getenv(envStep)))
		err = task(s)
	}
	if err != nil {
		fmt.Println("failed:", err, "hint:", zoo.Hint(err))
		os.Exit(1)
	}
	os.Exit(0)
}

// dieAt kills this process, without any clean-up, at the named step.
func dieAt(step string) func(string) {
	return func(at string) {
		if at != step {
			return
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		fmt.Println("kill:", err)
		time.Sleep(time.Minute)
	}
}

// tasks are what such a process can do.
var tasks = map[string]func(s *zoo.Store) error{
	"pull": func(s *zoo.Store) error {
		p, err := pull(context.Background(), s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
		if err != nil {
			return err
		}
		return p.Close()
	},
	"upgrade": func(s *zoo.Store) error {
		p, err := pull(context.Background(), s, testRelease("tiny", "1.0.0"), upgraded)
		if err != nil {
			return err
		}
		return p.Close()
	},
	"plugin": func(s *zoo.Store) error {
		_, err := installPlugin(s, os.Getenv(envDir), "fam", "1.0.0", "new program")
		return err
	},
	"remove": func(s *zoo.Store) error { return s.Remove(context.Background(), "tiny", "1.0.0") },
	// The road of an impatient crowd: whoever comes second finds the pack.
	"pull if missing": func(s *zoo.Store) error {
		rel := testRelease("tiny", "1.0.0")
		lock, err := s.Lock(context.Background(), rel.Model, rel.Version, func() { fmt.Println("waited") })
		if err != nil {
			return err
		}
		defer lock.Unlock()
		if r, err := s.Record(rel.Model, rel.Version); err == nil {
			p, err := s.Open(context.Background(), r, nil)
			if err != nil {
				return err
			}
			fmt.Println("found")
			return p.Close()
		}
		p, err := pullLocked(context.Background(), lock, rel, packSpec{seed: 1})
		if err != nil {
			return err
		}
		fmt.Println("made")
		return p.Close()
	},
	"read only": readOnlyTask,
	"adopt":     func(s *zoo.Store) error { return adopt(context.Background(), s, os.Getenv(envDir)) },
	"forget": func(s *zoo.Store) error {
		lock, err := s.Lock(context.Background(), "tiny", "1.0.0", nil)
		if err != nil {
			return err
		}
		defer lock.Unlock()
		return lock.RemoveReference()
	},
	// Holds a stage until it is killed.
	"stall": func(s *zoo.Store) error {
		lock, err := s.Lock(context.Background(), "tiny", "1.0.0", nil)
		if err != nil {
			return err
		}
		stage, err := lock.Stage()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(stage, zoo.WeightsFile), make([]byte, 1000), 0o644); err != nil {
			return err
		}
		fmt.Println("stalled")
		time.Sleep(time.Hour)
		return lock.Unlock()
	},
}

// upgraded is the pack of a newer plugin.
var upgraded = packSpec{seed: 1, plugin: zoo.PluginID{Name: testPlugin.Name, Version: "1.3.0"}}

// taskCommand prepares a process that does one task.
func taskCommand(ctx context.Context, t testing.TB, task, home, step string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), envTask+"="+task, envHome+"="+home, envStep+"="+step)
	return cmd
}

// A process that is killed at any step leaves the old state or the new one; the next
// one cleans up and gets on.
func TestKilledAnywhere(t *testing.T) {
	const none, old, upgrade = "none", "old", "upgraded"
	damaged := func(t *testing.T, s *zoo.Store) {
		mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
		r, err := s.Record("tiny", "1.0.0")
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(s.Home(), "packs", r.Pack.Hex()), zoo.ConfigFile, nil)
	}
	installed := func(t *testing.T, s *zoo.Store) {
		mustPull(t, s, testRelease("tiny", "1.0.0"), packSpec{seed: 1})
	}
	empty := func(*testing.T, *zoo.Store) {}
	tests := []struct {
		task, step string
		before     func(t *testing.T, s *zoo.Store)
		want       string
	}{
		{"pull", "pack", empty, none},
		{"pull", "record", empty, none},
		{"pull", "stamp", empty, old},
		{"pull", "pack", installed, old},
		{"pull", "record", installed, old},
		{"pull", "stamp", installed, old},
		{"upgrade", "pack", installed, old},
		{"upgrade", "record", installed, old},
		{"upgrade", "stamp", installed, upgrade},
		{"pull", "replace", damaged, "damaged"},
		{"pull", "replacement", damaged, "damaged"},
		{"pull", "record", damaged, old},
		{"remove", "remove record", installed, old},
		{"remove", "remove pack", installed, none},
		{"remove", "delete pack", installed, none},
		{"remove", "remove checkpoint", installed, none},
	}
	for _, tt := range tests {
		t.Run(tt.task+" at "+tt.step+" to "+tt.want, func(t *testing.T) {
			s, _ := newStore(t)
			tt.before(t, s)
			out, err := taskCommand(t.Context(), t, tt.task, s.Home(), tt.step).CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Success() || len(out) > 0 {
				t.Fatalf("the process was not killed: %v: %s", err, out)
			}
			r, err := s.Record("tiny", "1.0.0")
			got := none
			if err == nil {
				got = old
				if r.Plugin == upgraded.plugin {
					got = upgrade
				}
				p, err := s.Open(t.Context(), r, nil)
				if errors.Is(err, zoo.ErrIntegrity) {
					got = "damaged"
				} else if err != nil {
					t.Fatal(err)
				} else if err := p.Close(); err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, zoo.ErrNotFound) {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("afterwards: %s, want %s", got, tt.want)
			}
			// Whoever comes next gets what it wants, and nothing is left over.
			mustPull(t, s, testRelease("tiny", "1.0.0"), upgraded)
			lock, err := s.Lock(t.Context(), "tiny", "1.0.0", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
			if left := entries(t, s, "tmp"); len(left) != 0 {
				t.Errorf("left in tmp: %v", left)
			}
			if packs := entries(t, s, "packs"); len(packs) != 1 {
				t.Errorf("packs: %v", packs)
			}
			if err := s.Remove(t.Context(), "tiny", "1.0.0"); err != nil {
				t.Error(err)
			}
			if u, err := s.Usage(t.Context()); err != nil || u.PackBytes != 0 || u.CheckpointBytes != 0 {
				t.Errorf("usage after removal: %+v, %v", u, err)
			}
		})
	}
}

// A process that is killed while it converts loses its lock, and its stage is swept.
func TestKilledWhileStaging(t *testing.T) {
	s, _ := newStore(t)
	cmd := taskCommand(t.Context(), t, "stall", s.Home(), "")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("stalled"))
	if _, err := out.Read(line); err != nil || string(line) != "stalled" {
		t.Fatalf("%q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, "tiny", "1.0.0", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the lock of a running process: %v", err)
	}
	other, err := s.Lock(t.Context(), "other", "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Unlock(); err != nil {
		t.Error(err)
	}
	if left := entries(t, s, "tmp"); len(left) != 1 {
		t.Errorf("the stage of a running process: %v", left)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if other, err = s.Lock(t.Context(), "other", "1.0.0", nil); err != nil {
		t.Fatal(err)
	}
	if err := other.Unlock(); err != nil {
		t.Error(err)
	}
	if left := entries(t, s, "tmp"); len(left) != 0 {
		t.Errorf("the stage of a killed process: %v", left)
	}
}

// Of several processes that pull at once one does the work.
func TestPullingAtOnce(t *testing.T) {
	s, _ := newStore(t)
	const crowd = 3
	results := make(chan string)
	for range crowd {
		cmd := taskCommand(t.Context(), t, "pull if missing", s.Home(), "")
		go func() {
			out, err := cmd.CombinedOutput()
			results <- fmt.Sprintf("%s %v", out, err)
		}()
	}
	var all strings.Builder
	for range crowd {
		all.WriteString(<-results)
	}
	if got := all.String(); strings.Count(got, "made") != 1 || strings.Count(got, "found") != crowd-1 || strings.Count(got, "<nil>") != crowd {
		t.Error(got)
	}
}
