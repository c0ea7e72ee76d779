package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/internal/timeout"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
)

// A plugin may report progress this often: at once, and then a second.
const (
	progressBurst  = 1 << 12
	progressSecond = 1000
)

// call is one call of a plugin.
type call struct {
	request *pluginpb.HostFrame
	// progress is told of progress; nil if nobody listens.
	progress func(doneBytes, totalBytes int64)
	// gathering takes reference values; nil if there are to be none.
	gathering *gathering
	// brief says that the call asks for no work: it is given StartTimeout.
	brief bool

	// sent says that the plugin may have the request.
	sent    bool
	started time.Time
	reports int
	done    int64 // the latest progress
}

// errGone says that the process ended during a call.
var errGone = errors.New("the process ended")

// ask makes a call and returns its last frame, which is no fault. A process that had
// ended before it was sent the request is replaced.
func (c *Client) ask(ctx context.Context, k *call) (*pluginpb.PluginFrame, error) {
	switch data, err := proto.Marshal(k.request); {
	case err != nil:
		return nil, fmt.Errorf("%w: the request to a plugin: %w", fault.ErrUsage, err)
	case len(data) > maxRequest:
		return nil, fmt.Errorf("%w: a request of %d bytes to a plugin, at most %d are allowed", fault.ErrUsage, len(data), maxRequest)
	}
	p, err := c.process(ctx)
	if err != nil {
		return nil, err
	}
	last, err := p.ask(ctx, k)
	if errors.Is(err, errGone) && !k.sent && ctx.Err() == nil {
		if p, err = c.process(ctx); err != nil {
			return nil, err
		}
		last, err = p.ask(ctx, k)
	}
	if errors.Is(err, errGone) {
		err = p.crashError()
	}
	return last, err
}

// ask makes a call. When it returns, the plugin works on it no more. The error is
// errGone if the process ended.
func (p *process) ask(ctx context.Context, k *call) (*pluginpb.PluginFrame, error) {
	p.calls.Add(1)
	defer p.calls.Add(-1)
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	// The end of ctx is told to the plugin, which then ends the stream, or is killed.
	wire, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var last *pluginpb.PluginFrame
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		last, err = p.exchange(ctx, giveUp, wire, k)
	}()
	select {
	case <-done:
		return last, err
	case <-ctx.Done():
	}
	if !timeout.Within(done, p.opts.StopTimeout) {
		p.stop(fmt.Errorf("a cancelled call did not end within %v", p.opts.StopTimeout))
		cut()
		<-done
		err = context.Cause(ctx)
	}
	// How a process ended is no concern of who has given the call up.
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errGone) {
		err = context.Cause(ctx)
	}
	return last, err
}

// exchange sends the request once the plugin is ready, and takes what comes until the last
// frame. ctx is the caller's, which giveUp ends, wire that of the connection.
func (p *process) exchange(ctx context.Context, giveUp context.CancelCauseFunc, wire context.Context, k *call) (*pluginpb.PluginFrame, error) {
	ready := p.expect("it was not ready for a call")
	defer ready()
	stream, err := p.conn.Call(wire)
	if err != nil {
		return nil, p.broken(err)
	}
	frame, err := stream.Recv()
	ready()
	switch {
	case err != nil:
		return nil, p.broken(err)
	case frame.GetReady() == nil:
		return nil, p.refuse(errors.New("the first frame does not say that the plugin is ready"))
	}
	k.sent, k.started = true, time.Now()
	// What went wrong in sending is told by Recv.
	if err := stream.Send(k.request); err != nil && !errors.Is(err, io.EOF) {
		return nil, p.broken(err)
	}
	defer context.AfterFunc(ctx, func() { _ = stream.CloseSend() })()
	if k.brief {
		defer timeout.Deadline(p.opts.StartTimeout, func() {
			giveUp(p.unusable(fmt.Errorf("it did not say what it is within %v", p.opts.StartTimeout)))
		})()
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return nil, p.broken(err)
		}
		last, err := k.take(frame)
		if err != nil {
			return nil, p.refuse(err)
		}
		if !last {
			continue
		}
		if f := frame.GetFault(); f != nil {
			return nil, decodeFault(f)
		}
		return frame, nil
	}
}

// refuse kills a process that broke the rules of the protocol.
func (p *process) refuse(problem error) error {
	p.stop(errors.New("it was ended because it gave an answer that is refused"))
	return &AnswerError{Plugin: p.opts.Path, Problem: problem}
}

// broken makes an error of the end of a stream that has had no last frame.
func (p *process) broken(err error) error {
	switch s := status.Convert(err); {
	case errors.Is(err, io.EOF):
		return p.refuse(errors.New("it ended without a last frame"))
	case s.Code() == codes.Unavailable, s.Code() == codes.Canceled:
		p.await()
		return errGone
	default:
		return p.refuse(errors.New(cleanLine(s.Message(), maxTextBytes)))
	}
}

// await waits until a process whose connection broke has ended and its last lines are read.
func (p *process) await() {
	p.retire()
	child := p.running()
	if !timeout.Within(child.exited, time.Second) {
		p.stop(errors.New("it closed its connection"))
	}
	<-child.drained
	p.awaitOutput()
}

// take takes one frame and reports whether it is the last. Errors break the protocol.
func (k *call) take(frame *pluginpb.PluginFrame) (last bool, err error) {
	switch f := frame.GetFrame().(type) {
	case *pluginpb.PluginFrame_Progress:
		return false, k.report(f.Progress)
	case *pluginpb.PluginFrame_Reference:
		if k.gathering != nil {
			return false, k.gathering.part(f.Reference)
		}
	case *pluginpb.PluginFrame_Logits:
		if k.gathering != nil {
			return false, k.gathering.logits(f.Logits.GetValues())
		}
	case *pluginpb.PluginFrame_Fault, *pluginpb.PluginFrame_Description, *pluginpb.PluginFrame_Plan, *pluginpb.PluginFrame_Conversion,
		*pluginpb.PluginFrame_Program, *pluginpb.PluginFrame_Estimation, *pluginpb.PluginFrame_Done:
		return true, nil
	}
	return false, fmt.Errorf("a frame that has no place here: %T", frame.GetFrame())
}

// report passes progress on, if it goes forward.
func (k *call) report(p *pluginpb.Progress) error {
	k.reports++
	if k.reports > progressBurst+progressSecond*int(time.Since(k.started)/time.Second) {
		return fmt.Errorf("progress was reported %d times", k.reports)
	}
	done, total := p.GetDoneBytes(), p.GetTotalBytes()
	if k.progress == nil || done < k.done || done > total {
		return nil
	}
	k.done = done
	k.progress(done, total)
	return nil
}
