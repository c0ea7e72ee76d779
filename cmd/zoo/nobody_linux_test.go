package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// nobody is a user id that owns nothing.
const nobody = 65534

// canBeNobody says whether a command can be run as another user. Root may write
// everything, so that tests of permissions need one.
var canBeNobody = os.Geteuid() == 0

// nobodyCommand runs zoo as another user, in a copy of the test binary that this
// one can read.
func nobodyCommand(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := os.MkdirTemp("", "zoo-nobody-")
	ts.Check(err)
	defer os.RemoveAll(dir)
	ts.Check(os.Chmod(dir, 0o755))
	self, err := os.Executable()
	ts.Check(err)
	binary := filepath.Join(dir, args[0])
	// Copied by another process: a file that this one writes stays open in what
	// it starts meanwhile, and cannot be run until that has begun.
	ts.Check(exec.Command("cp", self, binary).Run())
	ts.Check(openUp(ts.Getenv("ZOO_HOME")))
	cmd := exec.Command(binary, args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ZOO_HOME="+ts.Getenv("ZOO_HOME"), "HF_HOME="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	_, _ = ts.Stdout().Write(stdout.Bytes())
	_, _ = ts.Stderr().Write(stderr.Bytes())
	code := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := map[bool]int{false: 0, true: 8}[neg]; code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}
