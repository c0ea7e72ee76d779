package sdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zoo-sdk/zoo/backends"
	"github.com/zoo-sdk/zoo/backends/backendtest"
	"github.com/zoo-sdk/zoo/backends/metal"
)

// MetalOptions says what [Zoo.DiagnoseMetal] checks. The zero value checks
// everything but the speed of a model.
type MetalOptions struct {
	// Synthetic is a model of the catalog in whose shapes random weights are run, to
	// measure the speed; see [Zoo.Synthesize]. They may take gigabytes. "" measures none.
	Synthetic string
}

// MetalCheck is the outcome of one check of [Zoo.DiagnoseMetal].
type MetalCheck struct {
	// Name says in a word what was checked.
	Name string
	// Detail says what was found, in words and numbers.
	Detail string
	// Err is nil if all is as it should be.
	Err error
	// Took is how long the check took.
	Took time.Duration
}

// FailedChecksError tells which checks of a diagnosis failed. What was wrong was
// reported with each of them.
type FailedChecksError struct {
	// Checks is the number of checks that were made.
	Checks int
	// Failed are the names of those that failed.
	Failed []string
}

// Error implements error.
func (e *FailedChecksError) Error() string {
	return fmt.Sprintf("%d of %d checks failed: %s", len(e.Failed), e.Checks, strings.Join(e.Failed, ", "))
}

// DiagnoseMetal checks the Metal backend on this machine's GPU: first what the device
// does, and how fast; then that the kernels compute what every backend does, that the
// model "demo" gives the same tokens as on the processor, and that they come one by one;
// and, if it is asked for, the speed of random weights. It installs "demo" if need be.
// It calls report after each check, and goes on after one that failed if that makes
// sense. That takes some minutes, in which nothing else should run.
//
// Where there is no device nothing is reported and the error matches zoo.ErrNotFound;
// errors about the model are those of [Zoo.Synthesize]. Where checks failed the error is
// a [FailedChecksError].
func (z *Zoo) DiagnoseMetal(ctx context.Context, how MetalOptions, report func(MetalCheck)) error {
	x := newMetalDiagnosis(z, metal.SystemDriver())
	return x.run(ctx, how, report)
}

// metalDiagnosis is one diagnosis under way.
type metalDiagnosis struct {
	// zoo has the backend on watched devices in place of its own.
	zoo     *Zoo
	watch   *watchedDriver
	backend backends.Backend
	// contract holds a backend to what all backends promise.
	contract func(context.Context, backends.Backend) error

	report func(MetalCheck)
	result FailedChecksError
	came   arrivals
}

// newMetalDiagnosis returns a diagnosis of the devices that a driver opens.
func newMetalDiagnosis(z *Zoo, d metal.Driver) *metalDiagnosis {
	x := &metalDiagnosis{watch: &watchedDriver{Driver: d}, contract: promises}
	x.backend = metal.New(x.watch)
	watched := *z
	watched.backends = slices.Clone(z.backends)
	for i, b := range watched.backends {
		if b.Name() == x.backend.Name() {
			watched.backends[i] = x.backend
		}
	}
	x.zoo = &watched
	return x
}

// promises holds a backend to what all backends promise. A GPU knows no threads of the processor.
func promises(ctx context.Context, b backends.Backend) error {
	return backendtest.TestWith(ctx, b, backendtest.Options{Threads: []int{1}})
}

// run makes all checks.
func (x *metalDiagnosis) run(ctx context.Context, how MetalOptions, report func(MetalCheck)) error {
	x.report = report
	if how.Synthetic != "" { // not after minutes
		if _, _, _, err := x.zoo.synthesizer(ctx, how.Synthetic); err != nil {
			return err
		}
	}
	usable, err := x.device(ctx)
	if err != nil {
		return err
	}
	if usable {
		x.check(ctx, "contract", func(ctx context.Context) (string, error) {
			return "random decoders in every format, bit for bit", x.contract(ctx, x.backend)
		})
		x.check(ctx, "demo", x.demo)
		if x.came.tokens > 0 {
			x.check(ctx, "arrival", x.came.judge)
		}
		if how.Synthetic != "" {
			x.check(ctx, "speed", func(ctx context.Context) (string, error) { return x.speed(ctx, how.Synthetic) })
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(x.result.Failed) > 0 {
		return &x.result
	}
	return nil
}

// device makes the checks of the device, and returns whether there is one that runs kernels.
func (x *metalDiagnosis) device(ctx context.Context) (usable bool, err error) {
	usable = true
	var missing error
	err = metal.Diagnose(ctx, x.watch, func(c metal.Check) {
		if errors.Is(c.Err, metal.ErrNoDevice) {
			missing = c.Err
			return
		}
		x.add(MetalCheck(c))
		if c.Err != nil && slices.Contains([]string{"device", "kernels"}, c.Name) {
			usable = false
		}
	})
	if err != nil && missing == nil && ctx.Err() == nil && len(x.result.Failed) == 0 {
		x.add(MetalCheck{Name: "close", Err: err}) // nothing else can have failed
	}
	return usable, missing
}

// check makes one check, unless nobody waits any more.
func (x *metalDiagnosis) check(ctx context.Context, name string, run func(context.Context) (string, error)) {
	if ctx.Err() != nil {
		return
	}
	begin := time.Now()
	detail, err := run(ctx)
	if ctx.Err() == nil {
		x.add(MetalCheck{name, detail, err, time.Since(begin)})
	}
}

// add reports a check.
func (x *metalDiagnosis) add(c MetalCheck) {
	x.result.Checks++
	if c.Err != nil {
		x.result.Failed = append(x.result.Failed, c.Name)
	}
	x.report(c)
}

// speed measures random weights in the shapes of a model.
func (x *metalDiagnosis) speed(ctx context.Context, model string) (string, error) {
	dir, err := x.zoo.Synthesize(ctx, model)
	if err != nil {
		return "", err
	}
	r, err := x.zoo.Bench(ctx, dir, BenchOptions{}, WithBackend(metalName))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %.1f tokens/s (%.1f to %.1f) after %d, which read %.1f GB/s of weights, %.1f tokens a submission; a prompt of %d at %.0f tokens/s",
		model, r.Decode.Median, r.Decode.Min, r.Decode.Max, r.Depth, r.Decode.Median*float64(r.StepBytes)/1e9, r.TokensPerSubmission,
		r.PromptTokens, r.Prefill.Median), nil
}
