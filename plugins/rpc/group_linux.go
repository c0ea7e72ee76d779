package rpc

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is the process group of a plugin. A descendant that leaves the group, as a daemon
// does, is not killed with it.
type group struct{}

// start starts the process as the leader of a group, which the kernel kills with the
// host, and sets its limits.
func (*group) start(cmd *exec.Cmd, l Limits) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	err := errors.Join(
		limit(cmd, "core size", unix.RLIMIT_CORE, 0),
		limit(cmd, "open files", unix.RLIMIT_NOFILE, uint64(l.openFiles())),
	)
	if l.MemoryBytes > 0 {
		err = errors.Join(err, limit(cmd, "memory", unix.RLIMIT_DATA, uint64(l.MemoryBytes)))
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

// limit lowers one limit of a process.
func limit(cmd *exec.Cmd, name string, resource int, n uint64) error {
	pid := cmd.Process.Pid
	var old unix.Rlimit
	err := unix.Prlimit(pid, resource, nil, &old)
	if n = min(n, old.Max); err == nil {
		err = unix.Prlimit(pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("limit of %s: %w", name, err)
	}
	return nil
}

// wait waits until the process has ended and leaves it to be reaped. It reports false
// where it could not wait.
func (*group) wait(cmd *exec.Cmd) bool {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// kill kills all processes of the group, even stopped ones.
func (*group) kill(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

// close releases what the group holds.
func (*group) close() {}
