//go:build unix && !linux

package rpc

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is the process group of a plugin. These systems set no limits for another
// process; a plugin notices the end of its host by the end of its standard input. A
// descendant that leaves the group, as a daemon does, is not killed with it.
type group struct{}

// start starts the process as the leader of a group.
func (*group) start(cmd *exec.Cmd, _ Limits) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// wait waits until the process has ended and leaves it to be reaped. It reports false
// where it could not wait.
func (*group) wait(cmd *exec.Cmd) bool {
	queue, err := unix.Kqueue()
	if err != nil {
		return false
	}
	defer unix.Close(queue)
	var exit unix.Kevent_t
	unix.SetKevent(&exit, cmd.Process.Pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	exit.Fflags = unix.NOTE_EXIT
	changes, events := []unix.Kevent_t{exit}, make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(queue, changes, events, nil)
		switch {
		case errors.Is(err, unix.EINTR): // what was interrupted is the waiting, or nothing was done
		case errors.Is(err, unix.ESRCH):
			return true // a process that was not reaped and is not found has ended
		case err != nil:
			return false
		case n > 0 && events[0].Flags&unix.EV_ERROR != 0:
			return events[0].Data == int64(unix.ESRCH)
		case n > 0:
			return true
		}
	}
}

// kill kills all processes of the group, even stopped ones.
func (*group) kill(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

// close releases what the group holds.
func (*group) close() {}
