package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"

	"github.com/zoo-sdk/zoo/internal/timeout"
)

const (
	// maxNoise is how much a program may write before the line that makes it a plugin.
	maxNoise = 64 << 10
	// drainTime is how long a process that has ended is listened to, in case that a
	// descendant which has left the group holds its pipes.
	drainTime = 500 * time.Millisecond
	// busyFirst and busyWait are the first and the longest wait for a program that is busy: what
	// this process has just written may for a moment be open in another one that it starts
	// meanwhile, and is not run as long as it could be written.
	busyFirst, busyWait = 5 * time.Millisecond, time.Second
)

// child is the process of a plugin: how go-plugin starts, hears and ends it. It runs
// in a process group of its own, under limits, with nothing of the host's environment
// and with a pipe for standard input, by whose end it notices that the host is gone.
type child struct {
	opts   Options
	log    *logbook
	folder *folder
	env    []string
	cmd    *exec.Cmd

	stdin          *os.File // the end that is kept open
	stdout, stderr *os.File
	// announced is read by go-plugin; only the announcement is written to it.
	announced *io.PipeReader
	announce  *io.PipeWriter
	// exited is closed when the process is gone and reaped.
	exited chan struct{}
	// drained is closed after that, when all that it wrote has been read.
	drained chan struct{}
	err     error // of the process, once exited is closed

	mu     sync.Mutex // held while the process is started, signalled and reaped
	group  group
	killed bool // before it was started
	reaped bool
	// refused says why the program is no plugin that can be used. It is set before announced
	// ends.
	refused error
}

var _ runner.Runner = (*child)(nil)

// errSilent says that a program has ended before it was a plugin.
var errSilent = errors.New("it ended without saying where it listens")

// newChild prepares a process.
func newChild(opts Options, f *folder, env []string, log *logbook) *child {
	c := &child{opts: opts, folder: f, env: env, log: log, exited: make(chan struct{}), drained: make(chan struct{})}
	c.cmd = c.command()
	c.announced, c.announce = io.Pipe()
	return c
}

// command returns what starts the process once.
func (c *child) command() *exec.Cmd {
	cmd := exec.Command(c.opts.Path)
	cmd.Env = c.env
	cmd.Dir = c.folder.files
	return cmd
}

// Start implements runner.Runner.
func (c *child) Start(context.Context) error {
	started := make(chan error, 1)
	go c.run(started)
	return <-started
}

// run starts the process and waits for its end. The goroutine keeps its thread, for
// on Linux a process is killed when the thread ends that has started it.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.drained)
	defer c.closePipes()
	err := c.begin()
	for wait := busyFirst; errors.Is(err, syscall.ETXTBSY) && wait <= busyWait; wait *= 2 {
		time.Sleep(wait)
		err = c.begin()
	}
	started <- err
	if err != nil {
		c.err = err
		_ = c.announce.Close()
		close(c.exited)
		return
	}
	var hearing sync.WaitGroup
	hearing.Go(c.hearStdout)
	hearing.Go(func() {
		readLines(c.stderr, func(line []byte) { c.log.add(line, slog.LevelInfo) })
	})
	c.end()
	close(c.exited)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		hearing.Wait()
	}()
	if !timeout.Within(heard, drainTime) {
		// To close a pipe ends the reading from it, which on Windows may be late for that.
		go c.closePipes()
		timeout.Within(heard, drainTime)
	}
	_ = c.announce.Close()
}

// begin starts the process, unless it was killed before. It may be called again after an error.
func (c *child) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closePipes()
	c.cmd = c.command() // one that was not started is of no further use
	theirs, err := c.pipes()
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	if err != nil {
		return err
	}
	if c.killed {
		return errors.New("it was ended before it started")
	}
	err = c.group.start(c.cmd, c.opts.Limits)
	c.reaped = err != nil && c.cmd.Process != nil
	return err
}

// end waits for the end of the process and kills what it leaves behind.
func (c *child) end() {
	// As long as a process is not reaped, its number stands for its group and for no other.
	waited := c.group.wait(c.cmd)
	if !waited {
		c.err = c.cmd.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waited {
		c.group.kill(c.cmd)
		c.err = c.cmd.Wait()
	}
	c.reaped = true
	c.group.close()
}

// pipes connects the process and returns the ends that are its own.
func (c *child) pipes() (theirs []*os.File, err error) {
	connect := func(mine **os.File, pipe func() (ours, theirs *os.File, err error)) *os.File {
		if err != nil {
			return nil
		}
		var their *os.File
		if *mine, their, err = pipe(); err == nil {
			theirs = append(theirs, their)
		}
		return their
	}
	reading := os.Pipe
	writing := func() (ours, theirs *os.File, err error) {
		theirs, ours, err = os.Pipe()
		return ours, theirs, err
	}
	stdin := connect(&c.stdin, writing)
	stdout := connect(&c.stdout, reading)
	stderr := connect(&c.stderr, reading)
	if err != nil {
		return theirs, fmt.Errorf("pipes: %w", err)
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdin, stdout, stderr
	return theirs, nil
}

// closePipes closes the host's ends.
func (c *child) closePipes() {
	for _, f := range []*os.File{c.stdin, c.stdout, c.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// hearStdout looks for the announcement among what the process writes to standard
// output, hands it to go-plugin and logs everything else.
func (c *child) hearStdout() {
	noise, announced := 0, false
	readLines(c.stdout, func(line []byte) {
		if announced || c.refusal() != nil {
			c.log.add(line, slog.LevelDebug)
			return
		}
		a, err := parseAnnouncement(string(line), c.opts.Protocols)
		if errors.Is(err, errNoAnnouncement) {
			c.log.add(line, slog.LevelDebug)
			if noise += len(line); noise < maxNoise {
				return
			}
			err = fmt.Errorf("it wrote %d bytes, none of which are %s", noise, "the line of a plugin")
		} else if err == nil {
			err = c.checkAddress(a.network, a.address)
		}
		if err == nil {
			announced = true
			_, err = c.announce.Write(line)
		}
		if err != nil && !announced {
			c.refuse(err)
			_ = c.announce.Close()
			c.signal()
		}
	})
	if !announced {
		c.refuse(errSilent)
	}
	_ = c.announce.Close()
}

// refuse notes why the program is no plugin that can be used. The first reason counts.
func (c *child) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = err
	}
}

// refusal returns why the program is no plugin that can be used, or nil.
func (c *child) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// checkAddress refuses an address that is not the plugin's own: the host would
// connect to whatever the plugin says.
func (c *child) checkAddress(network, address string) error {
	if network == "unix" && filepath.Dir(address) == c.folder.dir {
		return nil
	}
	if runtime.GOOS == "windows" && network == "tcp" && isLoopback(address) {
		return nil
	}
	return fmt.Errorf("it says that it listens on %s %q, which is not its own", cleanLine(network, 16), cleanLine(address, maxNameBytes))
}

// signal kills the process and all that it has started. It may be called at any time.
func (c *child) signal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reaped:
	case c.cmd.Process == nil:
		c.killed = true
	default:
		c.group.kill(c.cmd)
	}
}

// hangUp tells the process that the host needs it no more. One that has not started is not started any more.
func (c *child) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd.Process == nil {
		c.killed = true
		return
	}
	_ = c.stdin.Close()
}

// reason says how the process ended. It must have exited.
func (c *child) reason() error {
	if c.err == nil {
		return errors.New("exit status 0")
	}
	return c.err
}

// panicked reports whether the process has ended as the Go runtime ends one that it gives up.
func (c *child) panicked() bool {
	select {
	case <-c.exited:
	default:
		return false
	}
	exit, ok := errors.AsType[*exec.ExitError](c.err)
	return ok && (exit.ExitCode() == 2 || strings.HasPrefix(exit.Error(), "signal: abort"))
}

// isLoopback reports whether an address with a port is of this machine alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && net.ParseIP(host).IsLoopback()
}

// Wait implements runner.AttachedRunner.
func (c *child) Wait(context.Context) error {
	<-c.exited
	return c.err
}

// Kill implements runner.AttachedRunner.
func (c *child) Kill(context.Context) error {
	c.signal()
	return nil
}

// ID implements runner.AttachedRunner.
func (c *child) ID() string {
	if c.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

// Name implements runner.Runner.
func (c *child) Name() string { return c.opts.Path }

// Stdout implements runner.Runner.
func (c *child) Stdout() io.ReadCloser { return c.announced }

// Stderr implements runner.Runner. The child logs standard error itself.
func (c *child) Stderr() io.ReadCloser { return io.NopCloser(eof{}) }

// eof is an empty reader.
type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Diagnose implements runner.Runner.
func (c *child) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.AddrTranslator.
func (c *child) PluginToHost(network, address string) (string, string, error) {
	return network, address, c.checkAddress(network, address)
}

// HostToPlugin implements runner.AddrTranslator.
func (c *child) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
