package metal_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
)

// fewKernels opens devices that compile the kernels of the diagnosis only, which is quick.
type fewKernels struct {
	metal.Driver
	asked *[]string // what was to be compiled
}

// Open implements metal.Driver.
func (f fewKernels) Open() (metal.Device, error) {
	d, err := f.Driver.Open()
	return fewKernelsDevice{d, f.asked}, err
}

// fewKernelsDevice is a device of fewKernels.
type fewKernelsDevice struct {
	metal.Device
	asked *[]string
}

// Load implements metal.Device. It takes the files that the kernels need in place of the whole source.
func (d fewKernelsDevice) Load(ctx context.Context, _ string, kernels []string) error {
	*d.asked = kernels
	own := slices.DeleteFunc(slices.Clone(kernels), func(name string) bool { return !strings.HasPrefix(name, "diagnose_") })
	var source []byte
	for _, name := range []string{"kernels/common.metal", "kernels/diagnose.metal"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		source = append(source, data...)
	}
	return d.Device.Load(ctx, string(source), own)
}

var allChecks = []string{
	"device", "kernels", "threads", "arithmetic", "mapping", "order", "lists", "visibility", "bandwidth",
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	for name, options := range map[string]metaltest.Options{
		"as it is": {MemoryBytes: 64 << 20},
		"checked":  {MemoryBytes: 16 << 20, Checked: true, Seed: 7},
		"flushing": {MemoryBytes: 64 << 20, FlushDenormals: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver := metaltest.New(options)
			var asked, names []string
			err := metal.Diagnose(t.Context(), fewKernels{driver, &asked}, func(c metal.Check) {
				names = append(names, c.Name)
				t.Logf("%-12s %s (%v)", c.Name, c.Detail, c.Took)
				if c.Err != nil {
					t.Errorf("%s: %v", c.Name, c.Err)
				}
				if c.Name == "arithmetic" && options.FlushDenormals == strings.Contains(c.Detail, " 0 subnormal") {
					t.Errorf("arithmetic: %s", c.Detail)
				}
			})
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(allChecks, names); diff != "" {
				t.Error(diff)
			}
			for _, want := range []string{"diagnose_read", "embed", "attention_half", "linear_int4x32_p3_t32"} {
				if !slices.Contains(asked, want) {
					t.Errorf("%s is not compiled", want)
				}
			}
			if c := driver.Counts(); c.LiveDevices+c.LiveBuffers+c.LiveLists+c.Running != 0 {
				t.Errorf("it leaves %+v", c)
			}
		})
	}
}

// TestDiagnoseFails lets devices fail.
func TestDiagnoseFails(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		options metaltest.Options
		want    error
		checks  []string
	}{
		{"there is none", t.Context(), metaltest.Options{NoDevice: true}, metal.ErrNoDevice, allChecks[:1]},
		{"it goes away", t.Context(), metaltest.Options{FailAfter: 10}, metal.ErrDevice, allChecks},
		{"it has no memory", t.Context(), metaltest.Options{MemoryBytes: 4096}, metal.ErrMemory, allChecks},
		{"nobody waits", cancelled, metaltest.Options{}, context.Canceled, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if !tt.options.NoDevice {
				metaltest.Require(t)
			}
			driver := metaltest.New(tt.options)
			var asked, names []string
			err := metal.Diagnose(tt.ctx, fewKernels{driver, &asked}, func(c metal.Check) { names = append(names, c.Name) })
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(tt.checks, names); diff != "" {
				t.Error(diff)
			}
			if c := driver.Counts(); c.LiveDevices+c.LiveBuffers+c.LiveLists != 0 {
				t.Errorf("it leaves %+v", c)
			}
		})
	}
}

func TestDeclaredKernels(t *testing.T) {
	t.Parallel()
	const source = `#include <metal_stdlib>
// kernel void none(
#define PLAIN(X) ((X) + 1)
#define ONE(NAME, T) kernel void NAME(device T* out [[buffer(0)]]) { \
    out[0] = PLAIN(T(1)); \
}
#define TWO(FORMAT, ROWS) \
    ONE(small_##FORMAT##_t##ROWS, float) /**/ ONE(large_##FORMAT, half)
kernel void first(device float* x [[buffer(0)]]) { helper(x); }
ONE(second, uint)
TWO(int4, 8)
TWO(int8,
    32)
inline void helper(device float* x) {}
kernel void
last (device float* x [[buffer(0)]]) {}
`
	want := []string{"first", "second", "small_int4_t8", "large_int4", "small_int8_t32", "large_int8", "last"}
	if diff := cmp.Diff(want, metal.DeclaredKernels(source)); diff != "" {
		t.Error(diff)
	}
}
