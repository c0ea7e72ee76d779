package metaltest

import (
	"runtime"
	"sync"
	"time"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// Options say what device a [Driver] opens. The zero value is one that runs
// kernels fast and checks no more than what needs no checking of memory.
type Options struct {
	// Checked has every access of a kernel checked, which makes it many times slower.
	Checked bool
	// Seed, unless 0, permutes the order in which groups and threads run.
	Seed uint64
	// Workers is how many threads of the system run groups, 0 for as many as
	// help, at most two. Checked kernels run on one.
	Workers int
	// FlushDenormals has kernels compute with 0 for numbers below the normal ones.
	FlushDenormals bool
	// MemoryBytes is the device's memory, 0 for 64 GiB. All buffers together are no larger.
	MemoryBytes int64
	// MaxBufferBytes is the largest buffer, 0 for MemoryBytes.
	MaxBufferBytes int64
	// MaxThreads is the most threads of a group, 0 for 1024.
	MaxThreads int
	// SharedBytes is the most memory of a group, 0 for 32 KiB.
	SharedBytes int
	// NoDevice has Open find no device.
	NoDevice bool
	// FailAfter, unless 0, is the number of dispatches after which the device goes away.
	FailAfter int
	// TimeLimit is how much processor time a dispatch may take until the device goes away, 0 for five minutes.
	TimeLimit time.Duration
}

// Counts are what the devices of a driver did, and what they still hold.
type Counts struct {
	// Allocs, Maps, Lists, Submissions and Waits are the numbers of calls that succeeded.
	Allocs, Maps, Lists, Submissions, Waits int
	// Dispatches is how many dispatches were submitted, a list's again each
	// time, and BoundBytes how many bytes of buffers were bound to them.
	Dispatches, BoundBytes int64
	// LiveDevices, LiveBuffers, LiveBytes and LiveLists are what was not closed or released.
	LiveDevices, LiveBuffers int
	LiveBytes                int64
	LiveLists                int
	// Running is the number of submissions that nobody waited for.
	Running int
}

// Driver is a metal.Driver. Its methods may be called by many goroutines.
type Driver struct {
	options Options

	mu      sync.Mutex
	counts  Counts
	devices []*device
}

// New returns a driver.
func New(options Options) *Driver {
	if options.MemoryBytes == 0 {
		options.MemoryBytes = 64 << 30
	}
	if options.MaxBufferBytes == 0 {
		options.MaxBufferBytes = options.MemoryBytes
	}
	if options.MaxThreads == 0 {
		options.MaxThreads = 1024
	}
	if options.SharedBytes == 0 {
		options.SharedBytes = 32 << 10
	}
	if options.Workers == 0 {
		options.Workers = min(2, runtime.NumCPU())
	}
	if options.Checked {
		options.Workers = 1
	}
	if options.TimeLimit == 0 {
		options.TimeLimit = 5 * time.Minute
	}
	return &Driver{options: options}
}

// Open opens a device.
func (d *Driver) Open() (metal.Device, error) {
	if d.options.NoDevice {
		return nil, metal.ErrNoDevice
	}
	return open(d)
}

// Counts returns the present counts.
func (d *Driver) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// count changes the counts.
func (d *Driver) count(change func(*Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.counts)
}

// Kill makes all devices go away at once, whatever they are doing.
func (d *Driver) Kill() {
	d.mu.Lock()
	devices := d.devices
	d.mu.Unlock()
	for _, dev := range devices {
		dev.kill()
	}
}
