package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/sdk"
	"github.com/zoo-sdk/zoo/zoo"
)

// fewKernels opens devices that, where all kernels are to be loaded, load those of the
// device's own checks only: the others would take minutes to compile.
type fewKernels struct {
	metal.Driver
	err error // of loading
}

// Open implements metal.Driver.
func (f fewKernels) Open() (metal.Device, error) {
	d, err := f.Driver.Open()
	return fewKernelsDevice{d, f.err}, err
}

// fewKernelsDevice is a device of fewKernels.
type fewKernelsDevice struct {
	metal.Device
	err error
}

// Load implements metal.Device.
func (d fewKernelsDevice) Load(ctx context.Context, source string, kernels []string) error {
	if d.err != nil {
		return d.err
	}
	own := func(name string) bool { return strings.HasPrefix(name, "diagnose_") }
	if slices.ContainsFunc(kernels, own) {
		kernels = slices.DeleteFunc(slices.Clone(kernels), func(name string) bool { return !own(name) })
	}
	return d.Device.Load(ctx, source, kernels)
}

// deviceChecks are the checks of the device alone.
var deviceChecks = []string{
	"device", "kernels", "threads", "arithmetic", "mapping", "order", "lists", "visibility", "bandwidth",
}

// available is a contract that is soon checked.
func available(_ context.Context, b backends.Backend) error { return b.Available() }

// TestDiagnoseMetal checks a device on which all is well.
func TestDiagnoseMetal(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	driver := metaltest.New(metaltest.Options{MemoryBytes: 256 << 20})
	var names []string
	details := map[string]string{}
	err := client(t, installed(t)).DiagnoseMetalOn(t.Context(), fewKernels{driver, nil}, available, sdk.MetalOptions{}, func(c sdk.MetalCheck) {
		t.Logf("%-12s %s (%v)", c.Name, c.Detail, c.Took)
		names = append(names, c.Name)
		details[c.Name] = c.Detail
		if c.Err != nil || c.Detail == "" || c.Took <= 0 {
			t.Errorf("%+v", c)
		}
	})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(append(deviceChecks[:len(deviceChecks):len(deviceChecks)], "contract", "demo", "arrival"), names); diff != "" {
		t.Error(diff)
	}
	var answers, tokens, came, early int
	var each float64
	if _, err := fmt.Sscanf(details["demo"], "%d answers, %d tokens", &answers, &tokens); err != nil || answers < 6 || tokens < 5*answers {
		t.Errorf("demo: %q, %v", details["demo"], err)
	}
	_, err = fmt.Sscanf(details["arrival"], "%d tokens, %g a submission; %d came before", &came, &each, &early)
	if err != nil || came != tokens || each < 2 || early < 1 || early > came {
		t.Errorf("arrival: %q, %v", details["arrival"], err)
	}
	if c := driver.Counts(); c.LiveDevices+c.LiveBuffers+c.LiveLists+c.Running != 0 {
		t.Errorf("it leaves %+v", c)
	}
}

// TestDiagnoseMetalFails goes on where that makes sense, and says what failed.
func TestDiagnoseMetalFails(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	wrong := errors.New("wrong")
	for _, test := range []struct {
		name     string
		ctx      context.Context
		options  metaltest.Options
		load     error
		contract func(context.Context, backends.Backend) error
		checks   []string
		failed   []string // nil: want is the error
		want     error
	}{
		{
			name: "no device", options: metaltest.Options{NoDevice: true}, want: zoo.ErrNotFound,
		},
		{
			name: "no kernels", load: fmt.Errorf("%w: here is why", metal.ErrKernel),
			checks: []string{"device", "kernels"}, failed: []string{"kernels"},
		},
		{
			name: "no memory", options: metaltest.Options{MemoryBytes: 64 << 10}, contract: func(context.Context, backends.Backend) error { return wrong },
			checks: append(deviceChecks[:len(deviceChecks):len(deviceChecks)], "contract", "demo"),
			failed: []string{"arithmetic", "mapping", "bandwidth", "contract", "demo"},
		},
		{
			name: "nobody waits", ctx: ctx, contract: func(context.Context, backends.Backend) error { cancel(); return wrong },
			checks: deviceChecks, want: context.Canceled,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.ctx == nil {
				test.ctx = t.Context()
			}
			driver := metaltest.New(test.options)
			var names, failed []string
			err := client(t, installed(t)).DiagnoseMetalOn(test.ctx, fewKernels{driver, test.load}, test.contract, sdk.MetalOptions{}, func(c sdk.MetalCheck) {
				names = append(names, c.Name)
				if c.Err != nil {
					failed = append(failed, c.Name)
				}
			})
			if diff := cmp.Diff(test.checks, names); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.failed, failed); diff != "" {
				t.Error(diff)
			}
			var all *sdk.FailedChecksError
			switch {
			case test.want != nil:
				if !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
			case !errors.As(err, &all):
				t.Errorf("error %v", err)
			default:
				if diff := cmp.Diff(&sdk.FailedChecksError{Checks: len(test.checks), Failed: test.failed}, all); diff != "" {
					t.Error(diff)
				}
			}
			if c := driver.Counts(); c.LiveDevices+c.LiveBuffers+c.LiveLists+c.Running != 0 {
				t.Errorf("it leaves %+v", c)
			}
		})
	}
}

// TestDiagnoseMetalElsewhere says where Metal is to be had.
func TestDiagnoseMetalElsewhere(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "darwin" {
		t.Skip("here it may be")
	}
	z, none := client(t, t.TempDir()), func(c sdk.MetalCheck) { t.Errorf("%+v", c) }
	err := z.DiagnoseMetal(t.Context(), sdk.MetalOptions{}, none)
	if !errors.Is(err, zoo.ErrNotFound) || !errors.Is(err, errors.ErrUnsupported) || err.Error() != "Metal exists on Apple systems only" {
		t.Errorf("error %v", err)
	}
	err = z.DiagnoseMetal(t.Context(), sdk.MetalOptions{Synthetic: "nosuch"}, none)
	if !errors.Is(err, zoo.ErrNotFound) || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no such model: %v", err)
	}
}
