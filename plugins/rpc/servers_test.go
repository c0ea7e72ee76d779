package rpc_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/zoo"
)

// badServers lists plugins that speak the protocol, and more or less than that.
func badServers() map[string]func() {
	serve := func(l lie, o ...grpc.ServerOption) {
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  rpc.Handshake,
			VersionedPlugins: map[int]plugin.PluginSet{rpc.Protocol: {rpc.Service: lies{lie: l}}},
			Logger:           hclog.NewNullLogger(),
			GRPCServer:       func(opts []grpc.ServerOption) *grpc.Server { return grpc.NewServer(append(opts, o...)...) },
		})
	}
	type send = func(...*pluginpb.PluginFrame) error
	return map[string]func(){
		"mute": func() { rpc.Serve(mute{}) },
		"unready": func() {
			serve(lie{tell: func(send) error { select {} }})
		},
		"printing": func() { // by way of go-plugin
			serve(lie{tell: func(send send) error {
				fmt.Fprint(os.Stderr, "a line\nand half a line")
				return send(ready, describedAs("a", "1.0.0"))
			}})
		},
		"broker": func() {
			opened := make(chan string, 100)
			serve(lie{tell: func(send send) error {
				select {
				case method := <-opened:
					return status.Error(codes.Internal, "the host opened "+method)
				case <-time.After(300 * time.Millisecond):
					return send(ready, describedAs("a", "1.0.0"))
				}
			}}, grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
				if info.FullMethod == "/plugin.GRPCBroker/StartStream" {
					opened <- info.FullMethod
				}
				return handle(srv, stream)
			}))
		},
	}
}

// mute is a plugin that does not say what it is.
type mute struct{ plain }

// Describe implements zoo.Plugin.
func (mute) Describe(context.Context) (zoo.Description, error) { select {} }

// TestBroker checks that a plugin has no way to the broker of go-plugin, which keeps for
// seconds whatever it is sent.
func TestBroker(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "broker", func(o *rpc.Options) { o.StopTimeout = 10 * time.Millisecond })
	if got, err := c.Describe(t.Context()); err != nil || got.Name != "a" {
		t.Errorf("describe: %+v, %v", got, err)
	}
}

// TestHalfLine checks that what a plugin prints at last is logged though its line does not
// end, if it comes by way of go-plugin.
func TestHalfLine(t *testing.T) {
	t.Parallel()
	log := &recorder{}
	c, _ := start(t, "printing", func(o *rpc.Options) { o.Logger, o.StopTimeout = slog.New(log), 10*time.Millisecond })
	if _, err := c.Describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.await(t, "INFO a line")
	_ = c.Close()
	if len(log.all("INFO and half a line")) != 1 {
		t.Errorf("the log has %q", log.all(""))
	}
}

// TestMute asks plugins that are there what they are, and waits in vain, but not for ever.
func TestMute(t *testing.T) {
	t.Parallel()
	describe := func(c *rpc.Client) error {
		_, err := c.Describe(t.Context())
		return err
	}
	for name, tt := range map[string]struct {
		role string
		ask  func(*rpc.Client) error
		want string
	}{
		"describe": {"mute", describe, "start plugin"},
		"resolve": {"mute", func(c *rpc.Client) error {
			_, err := c.Resolve(t.Context())
			return err
		}, "did not say what it is within 3s"},
		"not ready": {"unready", describe, "ended during the call: it was not ready for a call within 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := start(t, tt.role, func(o *rpc.Options) { o.StartTimeout, o.StopTimeout = 3*time.Second, 10*time.Millisecond })
			if err := tt.ask(c); err == nil || !strings.Contains(err.Error(), tt.want) || zoo.Hint(err) == "" {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
