package rpc

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/windows"
)

// group is the job of a plugin: the process and all that it starts. A plugin notices
// the end of its host by the end of its standard input.
type group struct {
	job windows.Handle
}

// start starts the process in a job. There are no limits on this system.
func (g *group) start(cmd *exec.Cmd, _ Limits) error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("create a job: %w", err)
	}
	if err := cmd.Start(); err != nil {
		_ = windows.CloseHandle(job)
		return err
	}
	if err := assign(job, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(job)
		return err
	}
	g.job = job
	return nil
}

// assign puts a process into a job.
func assign(job windows.Handle, pid int) error {
	p, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer windows.CloseHandle(p)
	if err := windows.AssignProcessToJobObject(job, p); err != nil {
		return fmt.Errorf("put process %d into its job: %w", pid, err)
	}
	return nil
}

// wait reports false: here a process cannot be reaped too early.
func (*group) wait(*exec.Cmd) bool { return false }

// kill kills all processes of the job.
func (g *group) kill(*exec.Cmd) { _ = windows.TerminateJobObject(g.job, 1) }

// close releases the job.
func (g *group) close() { _ = windows.CloseHandle(g.job) }
