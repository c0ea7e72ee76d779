package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/zoo"
)

// Serve serves a plugin to the host that has started this program, and returns when
// the host needs it no more. It is all that the main function of a plugin does. In a
// program that was started by hand it says what it is and exits.
//
// What the default logger of log/slog is told, and what is written to standard output
// and standard error, reaches the host's logger, to the last word before the program ends:
// as a warning at most, and not in any number, for errors are told by returning them. An
// interrupt from the terminal is left to the host. A method that panics, or that ends its
// goroutine, fails that call alone.
func Serve(p zoo.Plugin) {
	if p == nil {
		panic("rpc: a nil plugin")
	}
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		_, _ = fmt.Fprintln(os.Stderr, "This program is a plugin of zoo, which starts it when it needs it. Try `zoo plugin check` with its path.")
		os.Exit(1)
	}
	signal.Ignore(os.Interrupt)
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	// What go-plugin puts in their place is lost when the program ends.
	stdout, stderr := os.Stdout, os.Stderr
	var restore, once sync.Once
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: wire{served: p}.versions(protocols),
		Logger:           hclog.NewNullLogger(),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			first := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
				restore.Do(func() { os.Stdout, os.Stderr = stdout, stderr })
				return handle(srv, stream)
			}
			s := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(maxRequest), grpc.StreamInterceptor(first))...)
			once.Do(func() { go leave(os.Stdin, s) })
			return s
		},
	})
}

// leave ends the server when standard input ends: the host is gone, or needs the
// plugin no more.
func leave(stdin io.Reader, s *grpc.Server) {
	_, _ = io.Copy(io.Discard, stdin)
	s.Stop()
}

// server answers the calls of a host.
type server struct {
	pluginpb.UnimplementedPluginServer
	plugin zoo.Plugin
}

// Call implements pluginpb.PluginServer.
func (s *server) Call(stream pluginpb.Plugin_CallServer) error {
	out := &sender{stream: stream}
	if err := out.send(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Ready{Ready: &pluginpb.Ready{}}}); err != nil {
		return err
	}
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		// The host sends nothing more: it closes its side to cancel.
		_, _ = stream.Recv()
		cancel()
	}()
	last := s.answer(ctx, request, out)
	switch data, err := proto.Marshal(last); {
	case err != nil:
		last = encodeFault(fmt.Errorf("%w: %w", errAnswer, err))
	case len(data) > maxFrame:
		last = encodeFault(fmt.Errorf("%w: it has %d bytes, at most %d are allowed", errAnswer, len(data), maxFrame))
	}
	return out.send(last)
}

// answer calls the plugin and returns the last frame, which there is although the method
// panics or ends its goroutine.
func (s *server) answer(ctx context.Context, request *pluginpb.HostFrame, out *sender) *pluginpb.PluginFrame {
	done := make(chan *pluginpb.PluginFrame, 1)
	go func() {
		last := panicFrame("ended its goroutine")
		defer func() {
			if v := recover(); v != nil {
				text := fmt.Sprint(v)
				slog.Error("a method of the plugin panicked", "panic", clean(text, shownBytes), "stack", clean(string(debug.Stack()), shownBytes))
				last = panicFrame("panicked: " + text)
			}
			done <- last
		}()
		answer, err := s.method(ctx, request, out)
		if err != nil {
			answer = encodeFault(err)
		}
		last = answer
	}()
	return <-done
}

// panicFrame says what a method has done in place of returning.
func panicFrame(what string) *pluginpb.PluginFrame {
	return faultFrame(&pluginpb.Fault{Kinds: []pluginpb.Fault_Kind{pluginpb.Fault_PANIC}, Text: clean("the plugin "+what, maxTextBytes)})
}

// errUnknown reports a request that the plugin does not know.
var errUnknown = fmt.Errorf("%w: the plugin does not do that", fault.ErrUsage)

// method makes the call of a request.
func (s *server) method(ctx context.Context, request *pluginpb.HostFrame, out *sender) (*pluginpb.PluginFrame, error) {
	switch r := request.GetRequest().(type) {
	case *pluginpb.HostFrame_Describe:
		about, err := s.plugin.Describe(ctx)
		return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Description{Description: encodeDescription(about, s.plugin)}}, err
	case *pluginpb.HostFrame_Fetch:
		plan, err := s.plugin.Fetch(ctx, zoo.FetchRequest{Release: decodeRelease(r.Fetch.GetRelease()), Dir: r.Fetch.GetDir()})
		return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Plan{Plan: &pluginpb.FetchPlan{Files: encodeFiles(plan.Files)}}}, err
	case *pluginpb.HostFrame_Convert:
		return s.convert(ctx, r.Convert, out)
	case *pluginpb.HostFrame_Gate:
		return s.gate(ctx, r.Gate, out)
	case *pluginpb.HostFrame_Run:
		return s.run(ctx, r.Run)
	case *pluginpb.HostFrame_Synthesize:
		return s.synthesize(ctx, r.Synthesize, out)
	case *pluginpb.HostFrame_Estimate:
		return s.estimate(ctx, r.Estimate)
	}
	return nil, errUnknown
}

// convert calls Convert.
func (s *server) convert(ctx context.Context, r *pluginpb.Convert, out *sender) (*pluginpb.PluginFrame, error) {
	progress, flush := out.progress(ctx, r.GetProgress())
	done, err := s.plugin.Convert(ctx, zoo.ConvertRequest{
		Checkpoint: r.GetCheckpoint(),
		Sources:    decodeFiles(r.GetSources()),
		Recipe:     r.GetRecipe(),
		Dir:        r.GetDir(),
		Progress:   progress,
		Report:     r.GetReport(),
	})
	if err := errors.Join(err, flush()); err != nil {
		return nil, err
	}
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Conversion{Conversion: encodeConversion(done)}}, nil
}

// gate calls Gate.
func (s *server) gate(ctx context.Context, r *pluginpb.Gate, out *sender) (*pluginpb.PluginFrame, error) {
	pack, err := decodePack(r.GetPack())
	if err != nil {
		return nil, err
	}
	ref, err := s.plugin.Gate(ctx, zoo.GateRequest{Pack: pack, Dir: r.GetDir()})
	if err != nil {
		return nil, err
	}
	if err := sendReference(ctx, ref, out.send); err != nil {
		return nil, err
	}
	return doneFrame(), nil
}

// run calls Run.
func (s *server) run(ctx context.Context, r *pluginpb.Run) (*pluginpb.PluginFrame, error) {
	pack, err := decodePack(r.GetPack())
	if err != nil {
		return nil, err
	}
	p, err := s.plugin.Run(ctx, zoo.RunRequest{Pack: pack})
	if err != nil {
		return nil, err
	}
	encoded, err := encodeProgram(p)
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Program{Program: encoded}}, err
}

// synthesize calls Synthesize.
func (s *server) synthesize(ctx context.Context, r *pluginpb.Synthesize, out *sender) (*pluginpb.PluginFrame, error) {
	maker, ok := s.plugin.(zoo.Synthesizer)
	if !ok {
		return nil, errUnknown
	}
	progress, flush := out.progress(ctx, r.GetProgress())
	err := maker.Synthesize(ctx, zoo.SynthesizeRequest{Model: r.GetModel(), Dir: r.GetDir(), Progress: progress})
	return doneFrame(), errors.Join(err, flush())
}

// estimate calls Estimate.
func (s *server) estimate(ctx context.Context, r *pluginpb.Estimate) (*pluginpb.PluginFrame, error) {
	estimator, ok := s.plugin.(zoo.Estimator)
	if !ok {
		return nil, errUnknown
	}
	e, err := estimator.Estimate(ctx, zoo.EstimateRequest{Release: decodeRelease(r.GetRelease()), Sources: decodeFiles(r.GetSources()), Config: r.GetConfig()})
	if err != nil {
		return nil, err
	}
	encoded, err := encodeEstimate(e)
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Estimation{Estimation: encoded}}, err
}

// doneFrame is the last frame of a call that returns nothing.
func doneFrame() *pluginpb.PluginFrame {
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Done{Done: &pluginpb.Done{}}}
}

// sender sends frames of a call. Its methods may be called by many goroutines.
type sender struct {
	mu     sync.Mutex
	stream pluginpb.Plugin_CallServer
}

// send sends one frame.
func (s *sender) send(frame *pluginpb.PluginFrame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Send(frame)
}

// progressInterval is how often progress is sent, so that a plugin that reports
// every row is not slowed down.
const progressInterval = 50 * time.Millisecond

// progress returns a function that takes progress and never waits for the host, which
// is told the latest now and then, and a function that tells it the very last. If
// nobody listens, the first is nil.
func (s *sender) progress(ctx context.Context, wanted bool) (report func(done, total int64), flush func() error) {
	if !wanted {
		return nil, func() error { return nil }
	}
	var mu sync.Mutex
	var latest *pluginpb.Progress
	tell := func() error {
		mu.Lock()
		p := latest
		latest = nil
		mu.Unlock()
		if p == nil {
			return nil
		}
		return s.send(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Progress{Progress: p}})
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		every := time.NewTicker(progressInterval)
		defer every.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ctx.Done():
				return
			case <-every.C:
				_ = tell() // that the host is gone ends the call's context
			}
		}
	}()
	report = func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		latest = &pluginpb.Progress{DoneBytes: done, TotalBytes: total}
	}
	return report, func() error {
		close(quit)
		<-gone
		return tell()
	}
}
