package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/zoo"
)

// leave makes a process leave its group.
func leave(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// limits spells the limits of this process out.
func limits() string {
	var out []string
	for _, resource := range []int{unix.RLIMIT_CORE, unix.RLIMIT_NOFILE, unix.RLIMIT_DATA} {
		var l unix.Rlimit
		if err := unix.Getrlimit(resource, &l); err != nil {
			return err.Error()
		}
		out = append(out, fmt.Sprint(l.Max))
	}
	return strings.Join(out, " ")
}

// processID returns the process of a client.
func processID(t *testing.T, c *rpc.Client) int {
	t.Helper()
	dir, err := do(t.Context(), t, c, "")
	if err != nil {
		t.Fatal(err)
	}
	return number(t, word(t, dir, "pid"))
}

// number parses a process's number.
func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// gone waits until there is no such process any more, not even a zombie.
func gone(t *testing.T, pid int, wait time.Duration) {
	t.Helper()
	const pause = 5 * time.Millisecond
	for ; !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); wait -= pause {
		if wait <= 0 {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			t.Fatalf("process %d is still there:\n%s", pid, status)
		}
		time.Sleep(pause)
	}
}

// TestKilled kills the process during a call, and between calls.
func TestKilled(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	dir, ended := t.TempDir(), make(chan error)
	go func() {
		_, err := c.Convert(t.Context(), zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": "wait"}})
		ended <- err
	}()
	pid := number(t, word(t, dir, "pid"))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var crash *rpc.CrashError
	if err := <-ended; !errors.As(err, &crash) || crash.Reason != "signal: killed" {
		t.Errorf("error %v", err)
	}
	gone(t, pid, 0)
	for range 5 {
		pid = processID(t, c)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		works(t, c) // at once, though the host may not have noticed
		gone(t, pid, 0)
	}
}

// halt stops a process and waits until all its threads have stopped.
func halt(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	running := func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of %d: %v, %v", pid, threads, err)
		}
		for _, name := range threads {
			if status, err := os.ReadFile(name); err == nil && !strings.Contains(string(status), "T (stopped)") {
				return true
			}
		}
		return false
	}
	for running() {
		time.Sleep(time.Millisecond)
	}
}

// TestStopped lets the process hang during a call that is given up.
func TestStopped(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain", func(o *rpc.Options) {
		o.StopTimeout, o.StartTimeout, o.HangTimeout = 200*time.Millisecond, time.Hour, time.Hour // of which only the first ends the call
	})
	pid := processID(t, c)
	halt(t, pid)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for c.Calls() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(context.DeadlineExceeded)
	}()
	if _, err := c.Describe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	gone(t, pid, 0)
	works(t, c)
}

// TestHang lets the process hang during a call that may take for ever.
func TestHang(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain", func(o *rpc.Options) { o.HangTimeout = time.Second })
	dir, ended := t.TempDir(), make(chan error)
	go func() {
		_, err := c.Convert(t.Context(), zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": "wait"}})
		ended <- err
	}()
	pid := number(t, word(t, dir, "pid"))
	halt(t, pid)
	var crash *rpc.CrashError
	if err := <-ended; !errors.As(err, &crash) || crash.Reason != "it did not answer for 1s" {
		t.Errorf("error %v", err)
	}
	gone(t, pid, 0)
	// A request that the process has never had goes to the next one.
	pid = processID(t, c)
	halt(t, pid)
	works(t, c)
	gone(t, pid, 0)
}

// TestGroup checks that nothing outlives a plugin that it has started in its group.
func TestGroup(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, c *rpc.Client, pid int){
		"closed": func(t *testing.T, c *rpc.Client, _ int) { _ = c.Close() },
		"killed": func(t *testing.T, c *rpc.Client, pid int) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
		"stopped and closed": func(t *testing.T, c *rpc.Client, pid int) {
			halt(t, pid)
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temp, err := os.MkdirTemp("", "zoo")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(temp)
			c, _ := start(t, "plain", func(o *rpc.Options) { o.TempDir, o.StopTimeout = temp, 300*time.Millisecond })
			dir, err := do(t.Context(), t, c, "family")
			if err != nil {
				t.Fatal(err)
			}
			pid := number(t, word(t, dir, "pid"))
			end(t, c, pid)
			gone(t, pid, time.Minute)
			// The child is no child of this process: whoever inherits it may reap it late.
			child := word(t, dir, "child")
			for range 12_000 {
				if status, err := os.ReadFile("/proc/" + child + "/status"); err != nil || strings.Contains(string(status), "Z (zombie)") {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if status, err := os.ReadFile("/proc/" + child + "/status"); err == nil && !strings.Contains(string(status), "Z (zombie)") {
				t.Errorf("the plugin's child lives on:\n%s", status)
			}
			_ = c.Close()
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestDaemon checks that a process that has left the plugin's group, and so outlives it,
// does not keep the client from being closed, though it holds what the plugin writes to.
func TestDaemon(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	dir, err := do(t.Context(), t, c, "daemon")
	if err != nil {
		t.Fatal(err)
	}
	child := number(t, word(t, dir, "child"))
	_ = c.Close()
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child)); err != nil || strings.Contains(string(status), "Z (zombie)") {
		t.Errorf("the daemon has ended, perhaps before Close did: %v", err)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// TestBusy starts a program that is open for writing, as one that was just written may be
// in a process that is about to become another.
func TestBusy(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nexec '%s'\n", program), 0o700); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(script, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = writer.Close() })
	c, _ := start(t, "plain", func(o *rpc.Options) { o.Path = script })
	works(t, c)
}

// TestRefused checks that the process is killed that breaks the rules of the protocol.
func TestRefused(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "liar", func(o *rpc.Options) {
		o.Env = append(o.Env, lieVariable+"=margins")
		o.StopTimeout = 10 * time.Millisecond
	})
	var bad *rpc.AnswerError
	if _, err := c.Gate(t.Context(), zoo.GateRequest{}); !errors.As(err, &bad) {
		t.Fatalf("error %v", err)
	}
	for range 12_000 {
		if errors.Is(c.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the process goes on")
}

// TestInterrupt sends a plugin what a terminal sends.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	if _, err := do(t.Context(), t, c, "interrupt"); err != nil {
		t.Error(err)
	}
}

// TestLimits looks at the limits of the process.
func TestLimits(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain", func(o *rpc.Options) { o.Limits.OpenFiles, o.Limits.MemoryBytes = 200, 1<<30 })
	dir, err := do(t.Context(), t, c, "limits")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := word(t, dir, "limits"), fmt.Sprint(0, 200, 1<<30); got != want {
		t.Errorf("limits %s, want %s", got, want)
	}
	var crash *rpc.CrashError
	if _, err := do(t.Context(), t, c, "allocate"); !errors.As(err, &crash) || len(crash.Log) == 0 {
		t.Errorf("4 GiB of 1 GiB: %v", err)
	}
	works(t, c)
}

// hostRole makes the test binary a host that waits to be killed.
const hostRole = "host"

// beHost starts a plugin, tells its process and waits.
func beHost() {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c := rpc.New(rpc.Options{Path: path, Env: []string{roleVariable + "=clinging"}})
	dir := os.Getenv("ZOO_RPC_TEST_DIR")
	go func() {
		_, err := c.Convert(context.Background(), zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": "wait"}})
		fmt.Println(err)
	}()
	for !exists(filepath.Join(dir, "pid")) {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("ready")
	select {}
}

// TestHostKilled kills a host, which takes its plugin with it, even one that does not notice
// the end of its standard input. The next host removes what they have left.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, temp := t.TempDir(), shortDir(t)
	host := exec.Command(path)
	host.Env = append(os.Environ(), roleVariable+"="+hostRole, "ZOO_RPC_TEST_DIR="+dir, "TMPDIR="+temp)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid := number(t, word(t, dir, "pid"))
	if err := host.Process.Kill(); err != nil || line != "ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = host.Wait()
	ended := func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return err != nil || strings.Contains(string(status), "Z (zombie)")
	}
	for i := 0; !ended(); i++ {
		if i == 12_000 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("plugin %d outlives its host", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 1 {
		t.Errorf("the host has left %v, %v", left, err)
	}
	c, _ := start(t, "plain", func(o *rpc.Options) { o.TempDir = temp })
	works(t, c)
	_ = c.Close()
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
