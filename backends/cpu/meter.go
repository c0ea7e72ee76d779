package cpu

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// sink keeps the compiler from dropping reads whose sum nobody wants.
var sink atomic.Uint64

// ReadBandwidth implements backends.Meter.
func (b *Backend) ReadBandwidth(ctx context.Context, data []byte, threads, rounds int) (float64, error) {
	if b.err != nil {
		return 0, b.err
	}
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	if len(data) < threads*readChunk || rounds < 1 {
		return 0, fmt.Errorf("%w: %d bytes and %d rounds are too few to measure with %d threads", fault.ErrUsage, len(data), rounds, threads)
	}
	var rates []float64
	for range rounds + 1 {
		start := time.Now()
		var all sync.WaitGroup
		for w := range threads {
			all.Go(func() {
				share := data[len(data)/threads*w:][:len(data)/threads]
				for len(share) > 0 && ctx.Err() == nil {
					n := min(readChunk, len(share))
					sink.Add(b.kernels.Read(share[:n]))
					share = share[n:]
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		rates = append(rates, float64(len(data)/threads*threads)/time.Since(start).Seconds())
	}
	rates = rates[1:]
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

// readChunk is the number of bytes after which a reader looks whether it should stop.
const readChunk = 1 << 20
