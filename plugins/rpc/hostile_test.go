package rpc_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/plugins/rpc"
	"github.com/zoo-sdk/zoo/plugins/rpc/pluginpb"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/zoo"
)

// byHand runs the test binary in a role without the handshake of a host.
func byHand(t *testing.T, role string) (int, string) {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// lieVariable names the lie that the program of the role "liar" tells.
const lieVariable = "ZOO_RPC_TEST_LIE"

// badHandshakes lists programs that are not quite plugins.
func badHandshakes() map[string]func() {
	of := func(versions map[int]plugin.PluginSet) func() {
		return func() {
			plugin.Serve(&plugin.ServeConfig{
				HandshakeConfig: rpc.Handshake, VersionedPlugins: versions, Logger: hclog.NewNullLogger(), GRPCServer: plugin.DefaultGRPCServer,
			})
		}
	}
	line := func(format string, args ...any) func() {
		return func() {
			fmt.Printf(format+"\n", args...)
			time.Sleep(time.Minute)
		}
	}
	return map[string]func(){
		"ancient":   of(map[int]plugin.PluginSet{0: {rpc.Service: lies{}}}),
		"future":    of(map[int]plugin.PluginSet{7: {rpc.Service: lies{}}, 8: {rpc.Service: lies{}}}),
		"elsewhere": line("1|1|unix|/run/docker.sock|grpc|%s", strings.Repeat("A", 60)),
		"network":   line("1|1|tcp|169.254.169.254:80|grpc|%s", strings.Repeat("A", 60)),
		"plaintext": line("1|1|unix|/nowhere|grpc"),
		"unheard": func() { // says that it listens, and does not
			fmt.Printf("1|1|unix|%s/socket|grpc|%s\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), strings.Repeat("A", 60))
			time.Sleep(time.Minute)
		},
	}
}

// TestNoPlugin starts programs that are none.
func TestNoPlugin(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		role, path string
		timeout    time.Duration
		want       string
		is         error
	}{
		"ends":       {role: "ends", want: "ended without saying where it listens: exit status 3; it wrote: no such option"},
		"silent":     {role: "silent", timeout: 300 * time.Millisecond, want: "did not start within 300ms"},
		"floods":     {role: "floods", want: "none of which are the line of a plugin"},
		"ancient":    {role: "ancient", want: "version 0 of the protocol, this host 1"},
		"future":     {role: "future", want: "version 7 of the protocol, this host 1"},
		"elsewhere":  {role: "elsewhere", want: `listens on unix "/run/docker.sock", which is not its own`},
		"network":    {role: "network", want: `listens on tcp "169.254.169.254:80", which is not its own`},
		"plaintext":  {role: "plaintext", want: "no encrypted gRPC"},
		"unheard":    {role: "unheard", timeout: 2 * time.Second, want: ""},
		"no file":    {path: filepath.Join(t.TempDir(), "nothing"), want: "no such file", is: zoo.ErrNotFound},
		"a folder":   {path: t.TempDir(), want: "start plugin", is: zoo.ErrNotPermitted},
		"no program": {path: text, want: "start plugin"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := start(t, tt.role, func(o *rpc.Options) {
				if tt.path != "" {
					o.Path = tt.path
				}
				if tt.timeout > 0 {
					o.StartTimeout = tt.timeout
				}
			})
			_, err := c.Describe(t.Context())
			var bad *rpc.StartError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if zoo.Hint(err) == "" {
				t.Error("no hint")
			}
		})
	}
	t.Run("hints", func(t *testing.T) {
		t.Parallel()
		for role, want := range map[string]string{"ancient": "use a newer version of the plugin", "future": "use a newer zoo, or an older version of the plugin"} {
			c, _ := start(t, role)
			if _, err := c.Describe(t.Context()); zoo.Hint(err) != want {
				t.Errorf("%s: hint %q of %v", role, zoo.Hint(err), err)
			}
		}
	})
}

// TestProtocols offers a plugin versions of the protocol that it cannot know.
func TestProtocols(t *testing.T) {
	t.Parallel()
	offer := func(list ...int) *rpc.Client {
		c, _ := start(t, "plain", func(o *rpc.Options) { o.Protocols = list })
		return c
	}
	works(t, offer(rpc.Protocol+1, rpc.Protocol))
	_, err := offer(rpc.Protocol+2, rpc.Protocol+1).Describe(t.Context())
	var skew *rpc.ProtocolError
	if !errors.As(err, &skew) || skew.Plugin != rpc.Protocol || zoo.Hint(err) != "use a newer version of the plugin" {
		t.Errorf("%v, hint %q", err, zoo.Hint(err))
	}
}

// TestChecksum runs what is pinned and nothing else.
func TestChecksum(t *testing.T) {
	t.Parallel()
	pin := func(sum string) func(*rpc.Options) { return func(o *rpc.Options) { o.SHA256 = sum } }
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	right, _ := start(t, "plain", pin(hex.EncodeToString(sum[:])))
	works(t, right)
	wrong, log := start(t, "plain", pin(strings.Repeat("0", 64)))
	var bad *rpc.ChecksumError
	if _, err := wrong.Describe(t.Context()); !errors.As(err, &bad) || !errors.Is(err, zoo.ErrIntegrity) || zoo.Hint(err) == "" {
		t.Errorf("wrong sum: %v", err)
	}
	if strings.Contains(log.String(), "started") {
		t.Errorf("it was started:\n%s", log)
	}
	none, _ := start(t, "plain", pin("no digest"))
	if _, err := none.Describe(t.Context()); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("no sum: %v", err)
	}
}

// TestCrash lets a plugin end in the midst of a call, and hears its last words.
func TestCrash(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		"crash":     "exit status 2; it wrote: panic: in a goroutine",
		"exit":      "exit status 7; it wrote: that was it",
		"break off": "exit status 7; it wrote: that was",
	} {
		c, _ := start(t, "plain")
		_, err := do(t.Context(), t, c, what)
		var crash *rpc.CrashError
		if !errors.As(err, &crash) || !strings.Contains(err.Error(), want) || zoo.Hint(err) == "" {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
		if what == "break off" && (!slices.Contains(crash.Log, "that was") || !slices.Contains(crash.Log, "that was it")) {
			t.Errorf("the last words are %q", crash.Log)
		}
		works(t, c)
	}
}

// TestOldPanic lets a plugin end some time after it printed what looks like a panic.
func TestOldPanic(t *testing.T) {
	t.Parallel()
	for then, want := range map[string]string{
		"exit": "exit status 3; it wrote: a harmless line | a harmless line | a harmless line",
		"":     "exit status 2; it wrote: panic: too bad | goroutine ",
	} {
		c, _ := start(t, "plain")
		_, err := c.Convert(t.Context(), zoo.ConvertRequest{Dir: t.TempDir(), Recipe: map[string]string{"do": "recover", "then": then}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestGoexit lets a method end its goroutine instead of returning.
func TestGoexit(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	if _, err := do(t.Context(), t, c, "goexit"); err == nil || !strings.Contains(err.Error(), "ended its goroutine") || zoo.Hint(err) == "" {
		t.Errorf("error %v", err)
	}
	works(t, c)
}

// TestUnsendable lets a plugin answer what cannot be sent, which fails that call alone.
func TestUnsendable(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain")
	dir, err := do(t.Context(), t, c, "")
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"answer at length":        "bytes, at most 4259840 are allowed",
		"answer with other bytes": "what is no answer: string field",
	} {
		if _, err := do(t.Context(), t, c, what); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}
	// What the host asks may be no text either.
	if _, err := c.Fetch(t.Context(), zoo.FetchRequest{Release: catalog.Release{Model: "\xff"}}); !errors.Is(err, zoo.ErrUsage) {
		t.Errorf("a request that cannot be sent: %v", err)
	}
	if next, err := do(t.Context(), t, c, ""); err != nil || word(t, dir, "pid") != word(t, next, "pid") {
		t.Errorf("the next call ran in another process; %v", err)
	}
}

// TestPanic lets a method panic, while another goes on.
func TestPanic(t *testing.T) {
	t.Parallel()
	c, log := start(t, "plain")
	ctx, cancel := context.WithCancel(t.Context())
	other, ended := t.TempDir(), make(chan error)
	go func() {
		_, err := c.Convert(ctx, zoo.ConvertRequest{Dir: other, Recipe: map[string]string{"do": "wait"}})
		ended <- err
	}()
	pid := word(t, other, "pid")
	_, err := do(t.Context(), t, c, "panic")
	if err == nil || !strings.Contains(err.Error(), "panicked: out of ideas") || zoo.Hint(err) == "" {
		t.Errorf("error %v", err)
	}
	if dir, err := do(t.Context(), t, c, ""); err != nil || word(t, dir, "pid") != pid {
		t.Errorf("the process is another one; %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !exists(filepath.Join(other, "stopped")) {
		t.Errorf("the other call: %v", err)
	}
	if !strings.Contains(log.String(), "main_test.go") {
		t.Error("the log has no stack")
	}
}

// TestDeaf cancels a conversion that does not listen, which costs the plugin its life.
func TestDeaf(t *testing.T) {
	t.Parallel()
	c, _ := start(t, "plain", func(o *rpc.Options) { o.StopTimeout = 100 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	dir, ended := t.TempDir(), make(chan error)
	go func() {
		_, err := c.Convert(ctx, zoo.ConvertRequest{Dir: dir, Recipe: map[string]string{"do": "deaf"}})
		ended <- err
	}()
	word(t, dir, "count")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	before := word(t, dir, "count")
	time.Sleep(50 * time.Millisecond)
	if after := word(t, dir, "count"); before != after {
		t.Error("the plugin goes on")
	}
	works(t, c)
}

// lies is the service of a plugin that does not keep to the protocol.
type lies struct {
	plugin.NetRPCUnsupportedPlugin
	pluginpb.UnimplementedPluginServer
	lie lie
}

// GRPCServer implements plugin.GRPCPlugin.
func (l lies) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, l)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (lies) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is a plugin")
}

// Call implements pluginpb.PluginServer.
func (l lies) Call(stream pluginpb.Plugin_CallServer) error {
	send := func(frames ...*pluginpb.PluginFrame) error {
		for _, f := range frames {
			if err := stream.Send(f); err != nil {
				return err
			}
		}
		return nil
	}
	if l.lie.method != "estimate" {
		return l.lie.tell(send)
	}
	if err := send(ready); err != nil {
		return err
	}
	if request, err := stream.Recv(); err != nil || request.GetDescribe() == nil {
		return errors.Join(err, l.lie.tell(send))
	}
	return send(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Description{Description: &pluginpb.Description{
		Name: "liar", Version: "1.0.0", Estimates: true,
	}}})
}

// serveLies is the program of the role "liar".
func serveLies() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  rpc.Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{rpc.Protocol: {rpc.Service: lies{lie: allLies()[os.Getenv(lieVariable)]}}},
		Logger:           hclog.NewNullLogger(),
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}

// lie is one way not to keep to the rules.
type lie struct {
	method string
	want   string // part of the error
	tell   func(send func(...*pluginpb.PluginFrame) error) error
}

// Frames of lies.
var (
	ready = &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Ready{Ready: &pluginpb.Ready{}}}
	done  = &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Done{Done: &pluginpb.Done{}}}
)

// programFrame makes a last frame of a text that is to be a program.
func programFrame(text []byte) *pluginpb.PluginFrame {
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Program{Program: &pluginpb.Program{Program: text}}}
}

// describedAs makes a last frame of a description.
func describedAs(name, version string) *pluginpb.PluginFrame {
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Description{Description: &pluginpb.Description{Name: name, Version: version}}}
}

// planOf makes a last frame of paths.
func planOf(paths ...string) *pluginpb.PluginFrame {
	p := &pluginpb.FetchPlan{}
	for _, path := range paths {
		p.Files = append(p.Files, &pluginpb.File{Path: path})
	}
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Plan{Plan: p}}
}

// partOf makes a frame of runs.
func partOf(runs ...*pluginpb.ReferenceRun) *pluginpb.PluginFrame {
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Reference{Reference: &pluginpb.ReferencePart{Runs: runs}}}
}

// logitsOf makes a frame of numbers.
func logitsOf(values ...float32) *pluginpb.PluginFrame {
	return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Logits{Logits: &pluginpb.Logits{Values: values}}}
}

// allLies lists the lies by name.
func allLies() map[string]lie {
	all := map[string]lie{}
	add := func(method, name, want string, frames ...*pluginpb.PluginFrame) {
		all[name] = lie{method, want, func(send func(...*pluginpb.PluginFrame) error) error { return send(frames...) }}
	}
	tell := func(method, name, want string, f func(send func(...*pluginpb.PluginFrame) error) error) {
		all[name] = lie{method, want, f}
	}
	nan := float32(math.NaN())
	add("describe", "no start", "first frame", describedAs("a", "1.0.0"))
	add("describe", "no end", "without a last frame", ready)
	add("describe", "two starts", "has no place", ready, ready)
	add("describe", "empty frame", "has no place", ready, &pluginpb.PluginFrame{})
	add("describe", "logits", "has no place", ready, logitsOf(1))
	add("describe", "another end", "of another call", ready, done)
	add("describe", "name", "name", ready, describedAs("../x", "1.0.0"))
	add("describe", "version", "not semantic", ready, describedAs("a", "new"))
	titled := func(title string) *pluginpb.PluginFrame {
		return &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Description{Description: &pluginpb.Description{Name: "a", Version: "1.0.0", Title: title}}}
	}
	add("describe", "two lines", "not one line", ready, titled("a title\nerror: a line"))
	add("describe", "separated lines", "not one line", ready, titled("a\u2028b"))
	add("describe", "long title", "at most 200 characters", ready, titled(strings.Repeat("x", 201)))
	tell("describe", "status", "no such thing", func(func(...*pluginpb.PluginFrame) error) error {
		return status.Error(codes.Unimplemented, "no such thing")
	})
	add("fetch", "path", "not allowed", ready, planOf("a/b:c"))
	add("fetch", "dots", "ends in a dot", ready, planOf("../a"))
	add("fetch", "twice", "twice", ready, planOf("a", "A"))
	add("fetch", "no files", "number of files", ready, planOf())
	add("fetch", "size", "size", ready, &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Plan{Plan: &pluginpb.FetchPlan{Files: []*pluginpb.File{{Path: "a", SizeBytes: -1}}}}})
	tell("fetch", "empty files", "MiB of memory", func(send func(...*pluginpb.PluginFrame) error) error {
		return send(ready, &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Plan{Plan: &pluginpb.FetchPlan{Files: slices.Repeat([]*pluginpb.File{{}}, 300_000)}}})
	})
	add("convert", "roundings", "at most 65536", ready, &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Conversion{Conversion: &pluginpb.Conversion{
		Rounding: slices.Repeat([]*pluginpb.RoundingError{{}}, 1<<16+1),
	}}})
	add("convert", "rounding", "none", ready, &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Conversion{Conversion: &pluginpb.Conversion{
		Rounding: []*pluginpb.RoundingError{{RelL2: math.NaN()}},
	}}})
	add("estimate", "pack size", "-1 bytes", &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Estimation{Estimation: &pluginpb.Estimation{PackBytes: -1}}})
	add("estimate", "assumptions", "at most 256", &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Estimation{Estimation: &pluginpb.Estimation{
		Assumptions: make([]string, 257),
	}}})
	add("estimate", "no program", "invalid program", &pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Estimation{Estimation: &pluginpb.Estimation{}}})
	add("run", "nothing", "invalid program", ready, programFrame(nil))
	add("run", "huge program", "larger than max", ready, programFrame(make([]byte, rpc.MaxFrame)))
	add("run", "long program", "at most", ready, programFrame(make([]byte, program.MaxEncoded+1)))
	for name, spoil := range map[string]func(*program.Program){
		"weight":  func(p *program.Program) { p.Ops[0].Embed.Table = 1 << 30 },
		"buffer":  func(p *program.Program) { p.Ops[1].Softcap.Buffer = -5 },
		"columns": func(p *program.Program) { p.Buffers[0].Cols = 1 << 40 },
		"version": func(p *program.Program) { p.Version = 99 },
	} {
		p := tiny()
		spoil(p)
		text, err := program.Encode(p)
		if err != nil {
			panic(err)
		}
		add("run", "program of a wrong "+name, "invalid program", ready, programFrame(text))
	}
	one := func() *pluginpb.ReferenceRun { // with logits of one token
		return &pluginpb.ReferenceRun{Prompt: []int32{1}, Greedy: []int32{2}, Margin: []float32{1}, PromptRows: 1, Vocabulary: 2, LastLogits: 2}
	}
	add("gate", "margins", "2 margins for 1 tokens", ready, partOf(&pluginpb.ReferenceRun{Greedy: []int32{1}, Margin: []float32{1, 2}}), done)
	add("gate", "no number", "margin 0 is NaN", ready, partOf(&pluginpb.ReferenceRun{Greedy: []int32{1}, Margin: []float32{nan}}), done)
	add("gate", "token", "token -1", ready, partOf(&pluginpb.ReferenceRun{Prompt: []int32{-1}}), done)
	add("gate", "rows", "at 5 positions", ready, partOf(&pluginpb.ReferenceRun{Prompt: []int32{1}, PromptRows: 5, Vocabulary: 1}), done)
	add("gate", "negative", "-2 logits", ready, partOf(&pluginpb.ReferenceRun{Prompt: []int32{1}, PromptRows: 1, Vocabulary: 1, LastLogits: -2}), done)
	add("gate", "promise", "more memory", ready, partOf(&pluginpb.ReferenceRun{Prompt: make([]int32, 1<<16), PromptRows: 1 << 16, Vocabulary: 1 << 24}), done)
	add("gate", "short rows", "more memory", ready, partOf(&pluginpb.ReferenceRun{Prompt: make([]int32, 1<<18), PromptRows: 1 << 18, Vocabulary: 1}), done)
	add("gate", "short runs", "more memory", ready, partOf(slices.Repeat([]*pluginpb.ReferenceRun{{}}, 1<<15)...), done)
	add("gate", "infinite", "a logit is", ready, partOf(one()), logitsOf(1, float32(math.Inf(1))), done)
	add("gate", "few logits", "did not come", ready, partOf(one()), logitsOf(1, 2, 3), done)
	add("gate", "many logits", "more logits", ready, partOf(one()), logitsOf(1, 2, 3, 4, 5), done)
	add("gate", "no logits", "no logits", ready, partOf(one()), logitsOf(), done)
	add("gate", "mixture", "something else came", ready, partOf(one()), partOf(one()), done)
	add("gate", "disorder", "follows one that announces", ready, partOf(one(), one()), done)
	add("gate", "logits alone", "more logits", ready, logitsOf(1), done)
	tell("gate", "short tokens", "more memory", func(send func(...*pluginpb.PluginFrame) error) error {
		return send(ready, partOf(&pluginpb.ReferenceRun{Prompt: make([]int32, 1<<20+1)}), done)
	})
	tell("gate", "endless questions", "more memory", func(send func(...*pluginpb.PluginFrame) error) error {
		part := &pluginpb.ReferencePart{Questions: make([]*pluginpb.Question, 1000)}
		for i := range part.Questions {
			part.Questions[i] = &pluginpb.Question{}
		}
		err := send(ready)
		for err == nil {
			err = send(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Reference{Reference: part}})
		}
		return err
	})
	tell("convert", "endless progress", "progress was reported", func(send func(...*pluginpb.PluginFrame) error) error {
		err := send(ready)
		for i := int64(0); err == nil; i++ {
			err = send(&pluginpb.PluginFrame{Frame: &pluginpb.PluginFrame_Progress{Progress: &pluginpb.Progress{DoneBytes: i, TotalBytes: math.MaxInt64}}})
		}
		return err
	})
	return all
}

// callMethod calls a method by its name.
func callMethod(ctx context.Context, t *testing.T, c *rpc.Client, method string) (err error) {
	switch method {
	case "describe":
		_, err = c.Describe(ctx)
	case "fetch":
		_, err = c.Fetch(ctx, zoo.FetchRequest{})
	case "convert":
		_, err = c.Convert(ctx, zoo.ConvertRequest{Dir: t.TempDir(), Progress: func(int64, int64) {}})
	case "gate":
		_, err = c.Gate(ctx, zoo.GateRequest{})
	case "run":
		_, err = c.Run(ctx, zoo.RunRequest{})
	case "estimate":
		p, err := c.Resolve(ctx)
		if err != nil {
			return err
		}
		_, err = p.(zoo.Estimator).Estimate(ctx, zoo.EstimateRequest{})
		return err
	}
	return err
}

// TestLies refuses every answer that breaks the rules.
func TestLies(t *testing.T) {
	t.Parallel()
	for name, l := range allLies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := start(t, "liar", func(o *rpc.Options) {
				o.Env = append(o.Env, lieVariable+"="+name)
				o.Limits.ReferenceBytes = 4 << 20
				o.StopTimeout = 10 * time.Millisecond // it does not end by itself
			})
			for range 2 { // the second time perhaps in a new process
				err := callMethod(t.Context(), t, c, l.method)
				var bad *rpc.AnswerError
				if !errors.As(err, &bad) || !errors.Is(err, zoo.ErrIntegrity) || !strings.Contains(err.Error(), l.want) {
					t.Fatalf("error %v, want %q", err, l.want)
				}
			}
		})
	}
}
