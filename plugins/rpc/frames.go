package rpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
)

const (
	// maxFrameMemory bounds what a frame takes once it is decoded. Two bytes can stand for
	// a whole entry of a list.
	maxFrameMemory = 32 << 20
	// messageBytes is about what the largest message takes without what it points to,
	// textBytes what a text or a list takes beside its content, numberBytes a number.
	messageBytes = 160
	textBytes    = 32
	numberBytes  = 16
)

// frameCodec is gRPC's codec for protobuf, except that it refuses messages that would take
// too much memory before it takes it.
type frameCodec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return decodeFrame(whole.ReadOnlyData(), v.(proto.Message))
}

// decodeFrame decodes a message that a plugin has sent.
func decodeFrame(data []byte, m proto.Message) error {
	if weight(data, m.ProtoReflect().Descriptor()) > maxFrameMemory {
		return fmt.Errorf("a frame of %d bytes takes more than %d MiB of memory", len(data), maxFrameMemory>>20)
	}
	return proto.Unmarshal(data, m)
}

// weight is at least what a message takes once it is decoded. What is no message weighs
// little: to decode it will fail.
func weight(data []byte, kind protoreflect.MessageDescriptor) int64 {
	sum := int64(messageBytes)
	for len(data) > 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return sum
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, wireType, data); n < 0 {
			return sum
		}
		value := data[:n]
		data = data[n:]
		field := kind.Fields().ByNumber(number)
		switch text, _ := protowire.ConsumeBytes(value); {
		case field == nil || wireType != protowire.BytesType:
			sum += numberBytes + int64(n)
		case field.Message() != nil:
			sum += weight(text, field.Message())
		case field.IsPacked():
			sum += textBytes + 4*int64(len(text)) // a byte can stand for a number of four
		default:
			sum += textBytes + int64(len(text))
		}
	}
	return sum
}

// stdioMethod is what go-plugin asks for the plugin's output with.
const stdioMethod = "/plugin.GRPCStdio/StreamStdio"

// output is the stream of what the plugin prints. ended is called when it has ended.
type output struct {
	grpc.ClientStream
	ended func()
}

// RecvMsg implements grpc.ClientStream.
func (o *output) RecvMsg(m any) error {
	err := o.ClientStream.RecvMsg(m)
	if err != nil {
		o.ended()
	}
	return err
}

// streams opens the streams of calls and that of the plugin's output, whose end it tells.
// It opens no other: of the messages of go-plugin's broker, which nothing here uses, the
// host would have to keep each for seconds, however many there are.
func streams(ended func()) grpc.StreamClientInterceptor {
	codec := grpc.ForceCodecV2(frameCodec{encoding.GetCodecV2("proto")})
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		switch method {
		case pluginpb.Plugin_Call_FullMethodName:
			return open(ctx, desc, conn, method, append(opts, codec)...)
		case stdioMethod:
			stream, err := open(ctx, desc, conn, method, opts...)
			if err != nil {
				ended()
				return nil, err
			}
			return &output{stream, ended}, nil
		}
		return nil, status.Errorf(codes.Unimplemented, "the host does not use %s", method)
	}
}
