package backends

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/program"
	"github.com/zoo-sdk/zoo/quant"
)

// BlockPositions is the number of absolute positions that attention sums as one block.
const BlockPositions = 256

// PeakRun is the number of logits of which [Executor.Peaks] tells the largest.
const PeakRun = 256

// Activations says how the input of a packed product becomes integers.
type Activations string

const (
	// ActivationsStatic rounds on the checkpoint's static scales, and where there is none works as ActivationsFloat.
	ActivationsStatic Activations = "static"
	// ActivationsFloat uses 24-bit fixed point for each row, which stands for float32, and ignores static scales.
	ActivationsFloat Activations = "float"
	// Activations16 uses 16-bit fixed point for each row and ignores static scales.
	Activations16 Activations = "16"
	// Activations8 uses 8-bit fixed point for each row and ignores static scales.
	Activations8 Activations = "8"
)

// CacheType is the number type of keys and values.
type CacheType string

const (
	// CacheFloat keeps float32.
	CacheFloat CacheType = "float"
	// CacheHalf rounds to float16. It saves memory where a device keeps that; the
	// CPU backend keeps the rounded numbers as float32.
	CacheHalf CacheType = "half"
	// CacheInt8 keeps int8 on the checkpoint's static grid.
	CacheInt8 CacheType = "int8"
)

// TablePlacement says how the tables are kept that rows are only looked up in; see [Gathered].
type TablePlacement string

const (
	// TablesMapped leaves them in the pack's file. The host looks up the rows of a
	// batch, which are read from the file as soon as the tokens are known, and
	// nothing else of them. A burst, which knows no tokens beforehand, cannot do so.
	TablesMapped TablePlacement = "mapped"
	// TablesResident keeps them in the memory of the device. One that computes where the
	// file is mapped reads them ahead when a program is compiled, and where the
	// system permits it locks them there.
	TablesResident TablePlacement = "resident"
)

// Options are fixed when a program is compiled.
type Options struct {
	// Threads is the number of threads that share the work; 0 means one for each processor.
	Threads int
	// MaxRows is the most rows of a batch; 0 means 64.
	MaxRows int
	// MaxLogits is the most rows of a batch that want logits; 0 means 8.
	MaxLogits int
	// Context is the most positions of a slot; 0 means the program's.
	Context int
	// Cache is the type of keys and values. CacheInt8 needs a program whose caches have scales.
	Cache CacheType
	// Activations is how products are computed.
	Activations Activations
	// Tables is how tables are kept; "" means as it suits the backend best.
	Tables TablePlacement
	// MemoryBytes is the most that activations and caches may take where the
	// processor computes; 0 means as much as they ask for. A device sets limits of its own.
	MemoryBytes int64
	// Profile makes the executor measure each operation, which costs it a little time.
	Profile bool
}

// Weights gives access to the tensors of a pack. Their bytes stay valid and unchanged
// until the Executor that uses them is closed; see [Retainer].
type Weights interface {
	// Tensor returns the data and the matrix of a tensor, and whether there is one of that name.
	Tensor(name string) (data []byte, m quant.Matrix, ok bool)
}

// Mapping is what weights also implement whose tensors all lie in one mapped file.
type Mapping interface {
	// Mapping returns the whole file as it lies in memory, from the start of a page.
	Mapping() []byte
}

// Retainer is what weights also implement that their owner may close, such as a pack.
// An executor retains them from Compile until Close: between two steps too its threads
// read what the next will begin with.
type Retainer interface {
	// Retain keeps all tensors there, to be looked up and read, until release is
	// called, though their owner closes them before. The error matches fs.ErrClosed if
	// that has happened. A second call of release does nothing.
	Retain() (release func(), err error)
}

// Backend compiles programs for one kind of device.
type Backend interface {
	// Name is the backend's name on the command line, such as "cpu".
	Name() string
	// Describe says in words what it runs on, such as the device and the kernel set.
	Describe() string
	// Available returns nil, or why the backend cannot be used here. The error
	// matches errors.ErrUnsupported where it never can: for what is not there
	// nobody need be told.
	Available() error
	// Compile prepares a validated program. The weights must hold every tensor
	// that it names, with equal matrices: otherwise the error matches fault.ErrIntegrity.
	Compile(ctx context.Context, p *program.Program, w Weights, opts Options) (Executor, error)
}

// Plain is what a backend also implements if it has kernels of several kinds.
type Plain interface {
	// Plain returns the backend with the kernels that define what all others
	// compute, or nil if it runs these already.
	Plain() Backend
}

// Meter is what a backend also implements if it can measure its device.
type Meter interface {
	// ReadBandwidth returns how many bytes a second so many threads (0 means one
	// for each processor) read, each its share of data from one end to the other.
	// It reads everything once to warm up and then rounds times, and returns the median.
	ReadBandwidth(ctx context.Context, data []byte, threads, rounds int) (float64, error)
}

// Slot is a set of caches: the memory of one sequence.
type Slot int

// Row is one token of a batch.
type Row struct {
	// Token is fed at position Pos of Slot.
	Token int32
	Slot  Slot
	Pos   int
	// Logits asks for logits and the final hidden state.
	Logits bool
}

// Batch is the input of one step. Rows of one slot have rising, gapless positions
// which go on where the slot ends.
type Batch struct {
	Rows []Row
	// Trace, if set, is called before the first layer with layer -1 and after
	// each layer with its number. state holds the hidden state, [live rows,
	// hidden], and may be changed. It is for tests and tools.
	Trace func(layer int, state []float32)
}

// Executor replays a compiled program. Its methods may be called by one goroutine
// at a time. It may implement [Generator] as well.
type Executor interface {
	// NewSlot returns an empty slot.
	NewSlot() (Slot, error)
	// FreeSlot gives a slot back.
	FreeSlot(s Slot)
	// Len returns the number of positions of a slot.
	Len(s Slot) int
	// Truncate shortens a slot to n positions. It returns ErrTruncate where a
	// ring no longer holds what attention at position n would need.
	Truncate(s Slot, n int) error
	// Step runs a batch. When it returns an error the slots are as long as before.
	Step(ctx context.Context, b *Batch) error
	// Logits returns the logits of the i-th row of the last step that wanted
	// them. They are valid until the next step or burst.
	Logits(i int) []float32
	// Peaks returns, for each run of PeakRun of these logits, the largest, or not
	// a number if there is one. They spare who picks a token the reading of all.
	Peaks(i int) []float32
	// Hidden returns the output of the final norm for the same row.
	Hidden(i int) []float32
	// Stats returns what the executor holds.
	Stats() Stats
	// Profile returns what the operations took since the last call, and nil without Options.Profile.
	Profile() []OpProfile
	// Close frees everything; it may be called twice. Afterwards slots and
	// steps are refused, and the weights are not touched.
	Close() error
}

// Stats tells what an executor holds.
type Stats struct {
	// Threads is the number of threads that share the work.
	Threads int
	// Context is the most positions of a slot.
	Context int
	// BufferBytes is the memory of activations.
	BufferBytes int64
	// CacheBytes is the memory of all slots' keys and values.
	CacheBytes int64
	// StepBytes is the number of weight bytes that one decoded token reads.
	StepBytes int64
	// Tables is how tables are kept, and LockedBytes how much of them the system was
	// made to keep in memory.
	Tables      TablePlacement
	LockedBytes int64
}

// OpProfile is what the operations of one kind took.
type OpProfile struct {
	// Name is the kind of operation and, for products, the format and shape of
	// the matrix, such as "linear int4 2048x1536".
	Name string
	// Calls is how often they ran.
	Calls int
	// Time is the wall time from the first to the last thread's end.
	Time time.Duration
	// Bytes is how many weight bytes they read.
	Bytes int64
}

// ErrTruncate reports that a slot cannot be shortened to a position, since its
// sliding caches no longer hold the positions before it.
var ErrTruncate = fmt.Errorf("%w: the sliding caches no longer hold the positions needed", fault.ErrUsage)

// ErrMemory reports that an executor would take more than Options.MemoryBytes.
var ErrMemory = fmt.Errorf("%w: not enough memory", fault.ErrUsage)

// ContextError reports a batch that would make a slot longer than the context.
type ContextError struct {
	// Need is the number of positions that the slot would have, or at least those up to the first that does not fit, Context the most it may have.
	Need, Context int
}

// Error implements error.
func (e *ContextError) Error() string {
	return fmt.Sprintf("%d positions do not fit in a context of %d", e.Need, e.Context)
}

// Is matches fault.ErrUsage.
func (e *ContextError) Is(target error) bool { return target == fault.ErrUsage }

// Hint tells how to go on.
func (e *ContextError) Hint() string {
	return "shorten the prompt, or ask for a larger context with `--context` as far as the model allows"
}

// Peak returns the largest of some logits as [Executor.Peaks] holds it, and minus infinity for none.
func Peak(logits []float32) float32 {
	top := float32(math.Inf(-1))
	for _, l := range logits {
		if l > top || l != l { // nothing is greater than what is not a number
			top = l
		}
	}
	return top
}

// Accept is what every Compile begins with: it validates a program, and checks and
// retains its weights until release is called. After an error they are not retained.
func Accept(ctx context.Context, p *program.Program, w Weights) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	release = func() {}
	if r, ok := w.(Retainer); ok {
		if release, err = r.Retain(); err != nil {
			return nil, err
		}
	}
	if err := CheckWeights(p, w); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// CheckWeights reports whether w holds every tensor of p with the matrix that p
// names and the right size. Errors match fault.ErrIntegrity.
func CheckWeights(p *program.Program, w Weights) error {
	for _, want := range p.Weights {
		data, m, ok := w.Tensor(want.Name)
		switch {
		case !ok:
			return fmt.Errorf("%w: the pack has no tensor %.40q that the program reads", fault.ErrIntegrity, want.Name)
		case m != want.Matrix:
			return fmt.Errorf("%w: tensor %.40q is %+v in the pack and %+v in the program", fault.ErrIntegrity, want.Name, m, want.Matrix)
		case int64(len(data)) != m.SizeBytes():
			return fmt.Errorf("%w: tensor %.40q has %d bytes, its shape needs %d", fault.ErrIntegrity, want.Name, len(data), m.SizeBytes())
		}
	}
	return nil
}
