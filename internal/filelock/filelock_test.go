package filelock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zoo-sdk/zoo/internal/filelock"
)

// holdVariable makes the test binary take a lock and hold it until it is killed.
const holdVariable = "ZOO_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdVariable); path != "" {
		if _, err := filelock.Acquire(context.Background(), path, nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func acquire(t *testing.T, path string) *filelock.Lock {
	t.Helper()
	lock, err := filelock.Acquire(t.Context(), path, func() { t.Error("had to wait") })
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func TestAcquire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock := acquire(t, path)
	if lock.Path() != path {
		t.Errorf("Path = %q", lock.Path())
	}
	for range 2 {
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the lock file is gone: %v", err)
	}
	again := acquire(t, path)
	// A second release of the first lock must not free the new one.
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	expectTaken(t, path)
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

// expectTaken checks that a lock cannot be had, and that the wait is told of and ends
// with the context.
func expectTaken(t *testing.T, path string) {
	t.Helper()
	errCause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	waits := 0
	waiting := func() {
		waits++
		time.AfterFunc(20*time.Millisecond, func() { cancel(errCause) })
	}
	if _, err := filelock.Acquire(ctx, path, waiting); !errors.Is(err, errCause) {
		t.Errorf("error %v, want the context's cause", err)
	}
	if waits != 1 {
		t.Errorf("told of waiting %d times", waits)
	}
}

func TestCancelledBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := filelock.Acquire(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := acquire(t, path).Release(); err != nil {
		t.Fatal(err)
	}
}

func TestExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside atomic.Int32
	var group sync.WaitGroup
	waited := make(chan struct{})
	var once sync.Once
	for range 4 {
		group.Go(func() {
			lock, err := filelock.Acquire(t.Context(), path, func() { once.Do(func() { close(waited) }) })
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold the lock", n)
			}
			<-waited // the first is sure to make another one wait
			time.Sleep(10 * time.Millisecond)
			inside.Add(-1)
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestOtherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("other process: %q, %v", line, err)
	}
	expectTaken(t, path)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The lock went with its holder.
	if err := acquire(t, path).Release(); err != nil {
		t.Fatal(err)
	}
}

func TestMissingFolder(t *testing.T) {
	if _, err := filelock.Acquire(t.Context(), filepath.Join(t.TempDir(), "none", "lock"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
