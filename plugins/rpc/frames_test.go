package rpc

import (
	"context"
	"io"
	"math"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
)

// TestWeight weighs frames before they are decoded.
func TestWeight(t *testing.T) {
	t.Parallel()
	tokens := make([]int32, 1000)
	part := func(p *pluginpb.ReferencePart) *pluginpb.PluginFrame {
		return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Reference{Reference: p}}
	}
	for name, tt := range map[string]struct {
		frame    proto.Message
		min, max int64
	}{
		"nothing":   {&pluginpb.PluginFrame{}, 1, 200},
		"tokens":    {part(&pluginpb.ReferencePart{Runs: []*pluginpb.ReferenceRun{{Prompt: tokens}}}), 4000, 5000},
		"texts":     {part(&pluginpb.ReferencePart{Prompts: make([]string, 1000)}), 16_000, 40_000},
		"questions": {part(&pluginpb.ReferencePart{Questions: make([]*pluginpb.Question, 1000)}), 96_000, 200_000},
		"program":   {&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Program{Program: &pluginpb.Program{Program: make([]byte, maxFrame)}}}, maxFrame, maxFrameMemory},
		"logits":    {&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Logits{Logits: &pluginpb.Logits{Values: make([]float32, maxFrame/4)}}}, maxFrame, maxFrameMemory},
	} {
		data, err := proto.Marshal(tt.frame)
		if err != nil {
			t.Fatal(err)
		}
		if got := weight(data, tt.frame.ProtoReflect().Descriptor()); got < tt.min || got > tt.max {
			t.Errorf("%s: %d bytes, want %d to %d", name, got, tt.min, tt.max)
		}
	}
}

// printing is a stream that ends at once.
type printing struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream.
func (printing) RecvMsg(any) error { return io.EOF }

// TestStreams opens the streams that a host uses, and no other.
func TestStreams(t *testing.T) {
	t.Parallel()
	ends, opened := 0, ""
	open := func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		opened = method
		return printing{}, nil
	}
	for method, want := range map[string]int{
		stdioMethod:                         1,
		pluginpb.Plugin_Call_FullMethodName: 0,
		"/plugin.GRPCBroker/StartStream":    math.MinInt,
		"/grpc.health.v1.Health/Watch":      math.MinInt,
	} {
		ends, opened = 0, ""
		stream, err := streams(func() { ends++ })(t.Context(), nil, nil, method, open)
		if want < 0 {
			if status.Code(err) != codes.Unimplemented || opened != "" {
				t.Errorf("%s: %v", method, err)
			}
			continue
		}
		if err != nil || opened != method {
			t.Errorf("%s: %v", method, err)
			continue
		}
		if err := stream.RecvMsg(nil); err != io.EOF || ends != want {
			t.Errorf("%s: %v, and the end was told %d times", method, err, ends)
		}
	}
}
