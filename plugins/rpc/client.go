package rpc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Options says which program a client runs, and how.
type Options struct {
	// Path is the program; a relative path is one from the folder that New is called in.
	Path string
	// SHA256 is its pinned digest in hexadecimal; "" runs whatever is there.
	SHA256 string
	// Protocols lists the versions of the protocol that the host offers; nil stands for
	// those that this package speaks. A conformance suite offers others, to hear what a
	// plugin makes of them.
	Protocols []int
	// TempDir is where the process gets a private folder for sockets and temporary
	// files; "" stands for the system's. Its path must be short. What hosts that were killed
	// have left there is removed.
	TempDir string
	// Env lists further variables for the process, "NAME=value", beside the few that it gets of the host's.
	Env []string
	// Logger is told what the plugin logs and prints, in lines and as warnings at most; nil
	// discards it.
	Logger *slog.Logger
	// Limits are the limits of the process and of its answers.
	Limits Limits
	// StartTimeout is how long the process may take to say where it listens, then to be
	// ready for a call, and to say what it is; 0 stands for 30 seconds.
	StartTimeout time.Duration
	// StopTimeout is how long a cancelled call, and a process that is closed, may
	// take to end by itself before the process is killed; 0 stands for 2 seconds.
	StopTimeout time.Duration
	// HangTimeout is how long the process may leave the question unanswered whether it
	// is there, which is asked during calls, before it is killed; 0 stands for a minute.
	HangTimeout time.Duration
}

// Limits bounds what a plugin can take.
type Limits struct {
	// MemoryBytes bounds the private memory of the process where the system has such a
	// limit, which Linux has; 0 stands for none.
	MemoryBytes int64
	// OpenFiles bounds the open files of the process, on Linux; 0 stands for 1,024.
	OpenFiles int
	// ReferenceBytes bounds the reference values of a gate; 0 stands for 512 MiB.
	ReferenceBytes int64
}

// openFiles returns the limit of open files.
func (l Limits) openFiles() int {
	if l.OpenFiles == 0 {
		return 1024
	}
	return l.OpenFiles
}

// name is what logs call the plugin.
func (o Options) name() string { return filepath.Base(o.Path) }

// locate makes the paths absolute: the program that is checked is the one that runs, and
// sockets are compared with their folder.
func (o *Options) locate() (err error) {
	if o.Path == "" {
		return fmt.Errorf("%w: no program of a plugin is named", fault.ErrUsage)
	}
	if o.Path, err = filepath.Abs(o.Path); err == nil {
		o.TempDir, err = filepath.Abs(cmp.Or(o.TempDir, os.TempDir()))
	}
	return err
}

// Client is a plugin in a process of its own: a zoo.Plugin and a zoo.Resolver. The
// process is started by the first call, and anew by the next call after it has ended.
//
// A call whose context ends is cancelled in the plugin, too. When it returns, the
// plugin works on it no more: a process that does not end a cancelled call within
// [Options.StopTimeout] is killed, and with it its other calls.
//
// Methods may be called by many goroutines.
type Client struct {
	opts Options
	lost error // why the program cannot be located

	mu     sync.Mutex
	closed bool
	proc   *process // the latest, or nil
	lives  sync.WaitGroup
}

// New returns a client. Nothing is started or read yet.
func New(opts Options) *Client {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, t := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&opts.StartTimeout, 30 * time.Second}, {&opts.StopTimeout, 2 * time.Second}, {&opts.HangTimeout, time.Minute}} {
		if *t.value <= 0 {
			*t.value = t.standard
		}
	}
	if opts.Limits.ReferenceBytes == 0 {
		opts.Limits.ReferenceBytes = 512 << 20
	}
	opts.Env, opts.Protocols = slices.Clone(opts.Env), slices.Clone(opts.Protocols)
	if len(opts.Protocols) == 0 {
		opts.Protocols = protocols
	}
	err := opts.locate()
	return &Client{opts: opts, lost: err}
}

// Close ends the process, fails the calls that are going on and waits until nothing
// is left of it. They and later calls get a [ClosedError]. It returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	p := c.proc
	c.mu.Unlock()
	if p != nil {
		p.close()
	}
	c.lives.Wait()
	return nil
}

// process returns a process that can be called, and starts one if there is none.
func (c *Client) process(ctx context.Context) (*process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	p, err := c.current()
	if err != nil {
		return nil, err
	}
	select {
	case <-p.ready:
		return p, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// current returns the process that the next call is to use.
func (c *Client) current() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &ClosedError{Plugin: c.opts.Path}
	}
	if c.lost != nil {
		return nil, &StartError{Plugin: c.opts.Path, Err: c.lost}
	}
	if c.proc != nil {
		select {
		case <-c.proc.over:
		default:
			return c.proc, nil
		}
	}
	p := startProcess(c.opts)
	c.proc = p
	c.lives.Go(func() { <-p.ended })
	return p, nil
}

// passed lists the variables of the host's environment that a plugin gets: language,
// time zone and how the Go runtime behaves, and what Windows programs cannot start without.
var passed = []string{"LANG", "LANGUAGE", "TZ", "GOMAXPROCS", "GOTRACEBACK", "SYSTEMROOT", "WINDIR"}

// environment returns the variables of a plugin whose temporary files lie in dir.
func environment(further []string, dir string) []string {
	env := []string{"TMPDIR=" + dir, "TMP=" + dir, "TEMP=" + dir}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(passed, strings.ToUpper(name)) || strings.HasPrefix(name, "LC_") {
			env = append(env, v)
		}
	}
	return append(env, further...)
}
