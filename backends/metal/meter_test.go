package metal_test

import (
	"errors"
	"testing"

	"github.com/zoo-sdk/zoo/backends/metal"
	"github.com/zoo-sdk/zoo/backends/metal/metaltest"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// TestReadBandwidth measures the device, and says what it cannot measure with.
func TestReadBandwidth(t *testing.T) {
	t.Parallel()
	metaltest.Require(t)
	d := metaltest.New(metaltest.Options{})
	b := metal.New(d)
	rate, err := b.ReadBandwidth(t.Context(), make([]byte, 4<<20), 0, 3)
	if err != nil || rate <= 0 {
		t.Errorf("%g bytes a second, %v", rate, err)
	}
	for _, c := range []struct{ bytes, rounds int }{{100, 3}, {4 << 20, 0}} {
		if _, err := b.ReadBandwidth(t.Context(), make([]byte, c.bytes), 0, c.rounds); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("%d bytes, %d rounds: %v", c.bytes, c.rounds, err)
		}
	}
	if _, err := metal.New(metaltest.New(metaltest.Options{NoDevice: true})).ReadBandwidth(t.Context(), make([]byte, 4<<20), 0, 1); !errors.Is(err, metal.ErrNoDevice) {
		t.Errorf("without a device: %v", err)
	}
	nothingHeld(t, d)
}
