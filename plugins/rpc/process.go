package rpc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/timeout"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
)

// maxSocketDirBytes bounds the folder of a socket: systems take paths of little more than 100 bytes.
const maxSocketDirBytes = 84

// process is one life of a plugin's program.
type process struct {
	opts Options
	log  *logbook
	// ready is closed when the plugin can be called or could not be started, which err then says.
	ready chan struct{}
	err   error
	conn  pluginpb.PluginClient
	// calls counts the calls that are going on.
	calls atomic.Int64
	// over is closed when no further call is to use the process.
	over     chan struct{}
	overOnce sync.Once
	// ended is closed when nothing is left of the process.
	ended chan struct{}
	// printed is closed when the stream of what go-plugin's other end redirects has ended.
	printed     chan struct{}
	printedOnce sync.Once

	mu     sync.Mutex
	child  *child // nil until there is one
	reason error  // why the host ended it, or nil
}

// errStartFailed and errClosed are why a process was ended, if nothing better is known.
var (
	errStartFailed = errors.New("it could not be started")
	errClosed      = errors.New("it was closed")
)

// startProcess starts the program in the background.
func startProcess(opts Options) *process {
	p := &process{
		opts:    opts,
		log:     &logbook{logger: opts.Logger.With("plugin", opts.name())},
		ready:   make(chan struct{}),
		over:    make(chan struct{}),
		ended:   make(chan struct{}),
		printed: make(chan struct{}),
	}
	go p.run()
	return p
}

// run is the life of the process.
func (p *process) run() {
	defer close(p.ended)
	client := p.configure()
	inTime := p.expect("it did not start")
	conn, err := p.connect(client)
	if !inTime() && err == nil {
		err = p.ending()
	}
	child := p.running()
	if err != nil {
		p.stop(errStartFailed)
		if child != nil {
			<-child.drained
		}
		p.err = p.startError(err)
		close(p.ready)
	} else {
		p.conn = pluginpb.NewPluginClient(conn)
		close(p.ready)
		go p.watch(grpc_health_v1.NewHealthClient(conn), child)
	}
	if child == nil {
		return
	}
	<-child.exited
	p.retire()
	<-child.drained
	client.Kill() // the process is gone; this ends what go-plugin has running beside it
	if p.conn != nil {
		p.awaitOutput()
	}
	p.log.tellLost()
	child.folder.remove()
}

// expect ends the process within StartTimeout, unless the function that it returns is called
// before, which reports whether it was.
func (p *process) expect(what string) (met func() bool) {
	return timeout.Deadline(p.opts.StartTimeout, func() {
		p.stop(fmt.Errorf("%s within %v", what, p.opts.StartTimeout))
	})
}

// awaitOutput waits until what came over the connection is logged, once that is broken.
func (p *process) awaitOutput() {
	timeout.Within(p.printed, drainTime)
}

// configure makes go-plugin's client.
func (p *process) configure() *plugin.Client {
	chatter := &lineWriter{line: func(line []byte) {
		p.log.pass(record{level: slog.LevelDebug, text: cleanLine(string(bytes.TrimSpace(line)), shownBytes)})
	}}
	stdout := &lineWriter{line: func(line []byte) { p.log.add(line, slog.LevelDebug) }}
	stderr := &lineWriter{line: func(line []byte) { p.log.add(line, slog.LevelInfo) }}
	printed := func() {
		p.printedOnce.Do(func() {
			stdout.end()
			stderr.end()
			close(p.printed)
		})
	}
	return plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: wire{}.versions(p.opts.Protocols),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		RunnerFunc:       p.prepare,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.opts.TempDir},
		StartTimeout:     math.MaxInt64, // run ends the process in time, and with it this wait
		SyncStdout:       stdout,
		SyncStderr:       stderr,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: chatter, Level: hclog.Debug, DisableTime: true}),
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxFrame), grpc.MaxCallSendMsgSize(maxRequest)),
			grpc.WithStreamInterceptor(streams(printed)),
		},
	})
}

// prepare checks the program and makes the runner of its process. spec has the
// variables that go-plugin's other end needs.
func (p *process) prepare(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
	sweep(p.opts.TempDir)
	f, err := claim(dir)
	if err != nil {
		return nil, err
	}
	if err = p.opts.verify(); err == nil && len(dir) > maxSocketDirBytes {
		err = fault.WithHint(fmt.Errorf("%w: the path of the temporary folder %q is too long for a socket", fault.ErrUsage, dir), "set TMPDIR to a folder with a short path")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		err = p.reason
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	p.child = newChild(p.opts, f, append(environment(p.opts.Env, f.files), spec.Env...), p.log)
	return p.child, nil
}

// connect starts the program and connects to it.
func (p *process) connect(client *plugin.Client) (*grpc.ClientConn, error) {
	protocol, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(service)
	if err != nil {
		return nil, err
	}
	return raw.(*grpc.ClientConn), nil
}

// running returns the child, or nil if there is none.
func (p *process) running() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// startError puts together why the program could not be started.
func (p *process) startError(err error) error {
	p.mu.Lock()
	reason, child := p.reason, p.child
	p.mu.Unlock()
	if sum, ok := errors.AsType[*ChecksumError](err); ok {
		return sum
	}
	var refused error
	if child != nil {
		refused = child.refusal()
	}
	switch {
	case reason == errClosed:
		return &ClosedError{Plugin: p.opts.Path}
	case refused != nil && !errors.Is(refused, errSilent):
		err = refused
	case reason != nil && reason != errStartFailed:
		err = reason
	case refused != nil:
		err = fmt.Errorf("%w: %w", refused, child.reason())
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: %w", fault.ErrNotFound, err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: %w", fault.ErrNotPermitted, err)
	}
	return p.unusable(err)
}

// unusable makes an error of what keeps the program from being used.
func (p *process) unusable(err error) error {
	log, telling := p.words()
	return &StartError{Plugin: p.opts.Path, Err: err, Log: log, telling: telling}
}

// crashError says why the process, which is gone, has ended during a call.
func (p *process) crashError() error {
	reason := p.ending()
	if reason == errClosed {
		return &ClosedError{Plugin: p.opts.Path}
	}
	log, telling := p.words()
	return &CrashError{Plugin: p.opts.Path, Reason: reason.Error(), Log: log, telling: telling}
}

// words returns what the plugin wrote at last and the most telling lines of it. A line that
// looks like a panic tells something only if the process ended as one does that panicked.
func (p *process) words() (log, telling []string) {
	if child := p.running(); child != nil && child.panicked() {
		if log = p.log.lastPanic(); log != nil {
			return log, log[:min(shownLines, len(log))]
		}
	}
	log = p.log.lastLines()
	return log, log[max(len(log)-shownLines, 0):]
}

// retire keeps further calls from the process.
func (p *process) retire() { p.overOnce.Do(func() { close(p.over) }) }

// stop kills the process with all that it has started. The first reason counts.
func (p *process) stop(reason error) {
	if child := p.blame(reason); child != nil {
		child.signal()
	}
}

// blame notes why the host ends the process, and returns the child, if there is one yet.
func (p *process) blame(reason error) *child {
	p.retire()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == nil {
		p.reason = reason
	}
	return p.child
}

// close ends the process, which may do so itself, and waits until it is gone.
func (p *process) close() {
	if child := p.blame(errClosed); child != nil {
		child.hangUp()
		timeout.Within(child.exited, p.opts.StopTimeout)
		child.signal()
	}
	<-p.ended
}

// ending says why the process has ended.
func (p *process) ending() error {
	p.mu.Lock()
	reason, child := p.reason, p.child
	p.mu.Unlock()
	if reason == nil && child != nil {
		<-child.exited
		reason = child.reason()
	}
	return reason
}

// watch kills the process if it stops to answer while calls are going on.
func (p *process) watch(health grpc_health_v1.HealthClient, child *child) {
	every := time.NewTicker(p.opts.HangTimeout / 2)
	defer every.Stop()
	for {
		select {
		case <-child.exited:
			return
		case <-every.C:
		}
		if p.calls.Load() == 0 {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		answered := timeout.Deadline(p.opts.HangTimeout, func() {
			p.stop(fmt.Errorf("it did not answer for %v", p.opts.HangTimeout))
			cancel()
		})
		_, _ = health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName}) // any answer will do
		answered()
		cancel()
	}
}

// verify checks the program's bytes against what is pinned.
func (o Options) verify() error {
	if o.SHA256 == "" {
		return nil
	}
	want, err := hex.DecodeString(o.SHA256)
	if err != nil || len(want) != sha256.Size {
		return fmt.Errorf("%w: sha256 %.80q is not 64 hexadecimal digits", fault.ErrUsage, o.SHA256)
	}
	secure := plugin.SecureConfig{Checksum: want, Hash: sha256.New()}
	same, err := secure.Check(o.Path)
	if err != nil {
		return err
	}
	if !same {
		return &ChecksumError{Plugin: o.Path, Want: o.SHA256}
	}
	return nil
}
