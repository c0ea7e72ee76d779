//go:build unix && !linux

package rpc

import (
	"os/exec"
	"syscall"
)

// group is the process group of a plugin. These systems set no limits for another
// process; a plugin notices the end of its host by the end of its standard input.
type group struct{}

// start starts the process as the leader of a group.
func (*group) start(cmd *exec.Cmd, _ Limits) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// wait reports false: it cannot wait for a process and leave it to be reaped.
func (*group) wait(*exec.Cmd) bool { return false }

// kill kills all processes of the group, even stopped ones.
func (*group) kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// close releases what the group holds.
func (*group) close() {}
