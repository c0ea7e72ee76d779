package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// failingBackend is available and compiles nothing.
type failingBackend struct {
	backends.Backend
	name     string
	err      error
	compiled int // programs
}

// Name implements backends.Backend.
func (b *failingBackend) Name() string { return b.name }

// Available implements backends.Backend.
func (b *failingBackend) Available() error { return nil }

// Compile implements backends.Backend.
func (b *failingBackend) Compile(context.Context, *program.Program, backends.Weights, backends.Options) (backends.Executor, error) {
	b.compiled++
	return nil, b.err
}

// goneBackend is not available.
type goneBackend struct{ backends.Backend }

// Name implements backends.Backend.
func (goneBackend) Name() string { return "gone" }

// Available implements backends.Backend.
func (goneBackend) Available() error { return errors.New("no such device") }

// onBackends returns a zoo with other backends, and its notices.
func onBackends(t *testing.T, dir string, devices ...backends.Backend) (z *sdk.Zoo, notices *[]string) {
	t.Helper()
	notices = &[]string{}
	z, err := sdk.NewOn(devices, sdk.WithHome(dir), sdk.WithOffline(), sdk.WithProgress(sdk.Events{
		Notice: func(text string) {
			if strings.HasPrefix(text, "backend ") { // others tell of the demo's gate
				*notices = append(*notices, text)
			}
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return z, notices
}

// refusal is what a compiler has to say, which goes on and on.
func refusal() error {
	return fmt.Errorf("%w: Compilation failed: \n\nprogram_source:12:5: error: no such thing\n    thing\n%s", metal.ErrKernel, strings.Repeat("    ^~~~~\n", 500))
}

const (
	shortRefusal = "kernels do not compile: Compilation failed: program_source:12:5: error: no such thing thing ..."
	goneReason   = "gone is not available: no such device"
)

// TestFallback opens models on the next backend where a device fails, and says so.
func TestFallback(t *testing.T) {
	t.Parallel()
	usage := fmt.Errorf("%w: heads too large for it: %w", zoo.ErrUsage, metal.ErrKernel)
	for _, test := range []struct {
		name         string
		err          error
		asked        string
		before       bool // a backend that is not available
		why, notices string
		want         error // of opening, with the text and the hint
		text, hint   string
	}{
		{
			name: "kernels", err: refusal(), why: "gpu failed: " + shortRefusal,
			notices: "backend \"gpu\" is passed over for \"cpu\", since it failed: " + shortRefusal + "; `zoo doctor --metal` tells more",
		},
		{
			name: "after another", err: refusal(), before: true, why: goneReason + "; gpu failed: " + shortRefusal,
			notices: "backend \"gone\" is passed over, since it is not available: no such device\n" +
				"backend \"gpu\" is passed over for \"cpu\", since it failed: " + shortRefusal + "; `zoo doctor --metal` tells more",
		},
		{name: "device", err: metal.ErrDevice, why: "gpu failed: the GPU failed", notices: "backend \"gpu\" is passed over for \"cpu\", since it failed: the GPU failed; `zoo doctor --metal` tells more"},
		{
			name: "memory", err: fmt.Errorf("weights: %w", metal.ErrMemory), why: "gpu failed: weights: not enough GPU memory",
			notices: "backend \"gpu\" is passed over for \"cpu\", since it failed: weights: not enough GPU memory; `zoo doctor --metal` tells more",
		},
		{
			name: "format", err: fmt.Errorf("int8/16 weights: %w", errors.ErrUnsupported), why: "gpu does not run this model: int8/16 weights: unsupported operation",
			notices: "backend \"gpu\" is passed over for \"cpu\", since it does not run this model: int8/16 weights: unsupported operation",
		},
		{
			name: "asked for", err: refusal(), asked: "gpu", want: metal.ErrKernel, text: `demo on backend "gpu": ` + shortRefusal,
			hint: "run on the processor with `--backend cpu`; `zoo doctor --metal` tells what is wrong",
		},
		{name: "usage", err: usage, want: zoo.ErrUsage, text: `demo on backend "gpu": ` + usage.Error()},
		{name: "integrity", err: zoo.ErrIntegrity, want: zoo.ErrIntegrity, text: `demo on backend "gpu": integrity`},
		{name: "cancelled", err: fmt.Errorf("%w: %w", metal.ErrDevice, context.Canceled), want: context.Canceled, text: `demo on backend "gpu": the GPU failed: context canceled`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			processor := cpu.New("")
			gpu := &failingBackend{Backend: processor, name: "gpu", err: test.err}
			devices := []backends.Backend{gpu, processor}
			if test.before {
				devices = append([]backends.Backend{goneBackend{processor}}, devices...)
			}
			z, notices := onBackends(t, installed(t), devices...)
			m, err := z.Open(t.Context(), "demo", sdk.WithBackend(test.asked))
			if diff := cmp.Diff(test.notices, strings.Join(*notices, "\n")); diff != "" {
				t.Error(diff)
			}
			if test.want != nil {
				if !errors.Is(err, test.want) || err.Error() != test.text || zoo.Hint(err) != test.hint {
					t.Errorf("error %v, hint %q", err, zoo.Hint(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if i := m.Info(); i.Backend != "cpu" || i.Why != test.why {
				t.Errorf("%+v", i)
			}
			if got, err := m.Respond(t.Context(), askParis); got != paris || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestFallbackEnds gives up where no backend is left.
func TestFallbackEnds(t *testing.T) {
	t.Parallel()
	gpu := &failingBackend{name: "gpu", err: refusal()}
	z, notices := onBackends(t, installed(t), gpu, goneBackend{})
	_, err := z.Open(t.Context(), "demo")
	if !errors.Is(err, metal.ErrKernel) || err.Error() != `demo on backend "gpu": gpu failed: `+shortRefusal+"; "+goneReason || zoo.Hint(err) == "" {
		t.Errorf("error %v, hint %q", err, zoo.Hint(err))
	}
	if len(*notices) != 0 {
		t.Errorf("notices %q", *notices)
	}
	both := []backends.Backend{gpu, &failingBackend{name: "other", err: metal.ErrDevice}}
	z, notices = onBackends(t, installed(t), both...)
	if _, err := z.Open(t.Context(), "demo"); !errors.Is(err, metal.ErrDevice) || zoo.Hint(err) == "" {
		t.Errorf("error %v, hint %q", err, zoo.Hint(err))
	}
	if len(*notices) != 1 {
		t.Errorf("notices %q", *notices)
	}
}

// TestFallbackElsewhere measures and gates on the next backend, too.
func TestFallbackElsewhere(t *testing.T) {
	t.Parallel()
	processor := cpu.New("")
	notice := []string{"backend \"gpu\" is passed over for \"cpu\", since it failed: " + shortRefusal + "; `zoo doctor --metal` tells more"}
	t.Run("bench", func(t *testing.T) {
		t.Parallel()
		gpu := &failingBackend{Backend: processor, name: "gpu", err: refusal()}
		z, notices := onBackends(t, installed(t), gpu, processor)
		r, err := z.Bench(t.Context(), "demo", sdk.BenchOptions{Prompt: 4, Generate: 2, Rounds: 2})
		if err != nil {
			t.Fatal(err)
		}
		if r.Backend != "cpu" || r.Why != "gpu failed: "+shortRefusal || gpu.compiled != 1 {
			t.Errorf("%q: %q, after %d programs", r.Backend, r.Why, gpu.compiled)
		}
		if diff := cmp.Diff(notice, *notices); diff != "" {
			t.Error(diff)
		}
		if _, err := z.Bench(t.Context(), "demo", sdk.BenchOptions{}, sdk.WithBackend("gpu")); !errors.Is(err, metal.ErrKernel) {
			t.Errorf("asked for: %v", err)
		}
	})
	t.Run("gate", func(t *testing.T) {
		t.Parallel()
		gpu := &failingBackend{Backend: processor, name: "gpu", err: refusal()}
		z, notices := onBackends(t, copied(t), gpu, processor)
		report, err := z.Gate(t.Context(), "demo", sdk.GateOptions{Quick: true})
		if err != nil {
			t.Fatal(err)
		}
		if report.Backend != "cpu" {
			t.Errorf("gated on %q", report.Backend)
		}
		if diff := cmp.Diff(notice, *notices); diff != "" {
			t.Error(diff)
		}
		if _, err := z.Gate(t.Context(), "demo", sdk.GateOptions{Quick: true}, sdk.WithBackend("gpu")); !errors.Is(err, metal.ErrKernel) || zoo.Hint(err) == "" {
			t.Errorf("asked for: %v", err)
		}
	})
}
