package cpu_test

import (
	"errors"
	"testing"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/cpu"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
)

func TestContract(t *testing.T) {
	t.Parallel()
	sets := cpu.Kernels()
	if testing.Short() {
		sets = sets[len(sets)-1:] // plain Go takes minutes under the race detector
	}
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			if err := backendtest.Test(t.Context(), cpu.New(set)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnknownKernels(t *testing.T) {
	t.Parallel()
	b := cpu.New("abacus")
	if err := b.Available(); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("available: %v, want a usage error", err)
	}
	if _, err := b.Compile(t.Context(), &program.Program{}, nil, backends.Options{}); !errors.Is(err, fault.ErrUsage) {
		t.Errorf("compile: %v, want a usage error", err)
	}
}
