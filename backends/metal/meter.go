package metal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/internal/fault"
)

var _ backends.Meter = (*Backend)(nil)

// ReadBandwidth implements backends.Meter. The device reads as much memory of
// its own as there is data, but no more than a quarter of what it has; threads
// are not looked at. What a submission costs is not counted.
func (b *Backend) ReadBandwidth(ctx context.Context, data []byte, _, rounds int) (rate float64, err error) {
	x := &diagnosis{}
	if _, err := x.open(b.driver); err != nil {
		return 0, err
	}
	defer func() {
		x.release()
		err = errors.Join(err, x.close())
	}()
	size := min(len(data), x.mostBytes()) / readBytes * readBytes
	if size == 0 || rounds < 1 {
		return 0, fmt.Errorf("%w: %d bytes and %d rounds are too few to measure a GPU with", fault.ErrUsage, len(data), rounds)
	}
	if err := x.device.Load(ctx, source(), []string{"diagnose_fill", "diagnose_read"}); err != nil {
		return 0, err
	}
	memory, err := x.buffer(size)
	if err != nil {
		return 0, err
	}
	if err := x.fill(memory, 1); err != nil {
		return 0, err
	}
	var times []time.Duration
	for range min(rounds, mostMeterRounds) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		took, err := x.readTime(memory)
		if err != nil {
			return 0, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return float64(size) / times[len(times)/2].Seconds(), nil
}

// mostMeterRounds bounds the rounds of a measurement, each of which reads the memory several times.
const mostMeterRounds = 5
