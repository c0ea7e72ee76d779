package rpc

import (
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"runtime"
	"syscall"

	"golang.org/x/sys/windows"
)

// group is the job of a plugin: the process and all that it starts. The system ends it with
// the last handle of the job, which is the host's.
type group struct {
	job windows.Handle
}

// start starts the process in a job. There are no limits on this system.
func (g *group) start(cmd *exec.Cmd, _ Limits) error {
	job, err := newJob()
	if err != nil {
		return err
	}
	// Until it is in the job, the process is not to start others.
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED}
	if err := cmd.Start(); err != nil {
		_ = windows.CloseHandle(job)
		return err
	}
	if err = assign(job, cmd.Process.Pid); err == nil {
		err = resume(cmd.Process.Pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(job)
		return err
	}
	g.job = job
	return nil
}

// newJob makes a job that is killed when its last handle is closed.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("create a job: %w", err)
	}
	info := &windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	address := reflect.ValueOf(info).Pointer() // what the call takes is a number
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, address, uint32(reflect.TypeOf(*info).Size()))
	runtime.KeepAlive(info)
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, fmt.Errorf("set the limits of a job: %w", err)
	}
	return job, nil
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

// resume lets the threads of a process run that was started suspended.
func resume(pid int) error {
	threads, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer windows.CloseHandle(threads)
	resumed := false
	var entry windows.ThreadEntry32
	entry.Size = uint32(reflect.TypeOf(entry).Size())
	for err = windows.Thread32First(threads, &entry); err == nil; err = windows.Thread32Next(threads, &entry) {
		if entry.OwnerProcessID != uint32(pid) {
			continue
		}
		if err := resumeThread(entry.ThreadID); err != nil {
			return fmt.Errorf("resume process %d: %w", pid, err)
		}
		resumed = true
	}
	if !resumed || !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return fmt.Errorf("threads of process %d: %w", pid, err)
	}
	return nil
}

// resumeThread lets a thread run.
func resumeThread(id uint32) error {
	thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, id)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(thread)
	_, err = windows.ResumeThread(thread)
	return err
}

// wait reports false: here a process cannot be reaped too early.
func (*group) wait(*exec.Cmd) bool { return false }

// kill kills all processes of the job.
func (g *group) kill(*exec.Cmd) { _ = windows.TerminateJobObject(g.job, 1) }

// close kills what is left of the job and releases it.
func (g *group) close() {
	_ = windows.TerminateJobObject(g.job, 1)
	_ = windows.CloseHandle(g.job)
}
