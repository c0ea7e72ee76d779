//go:build darwin && cgo

package metal

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/progrium/darwinkit/macos/foundation"
	mtl "github.com/progrium/darwinkit/macos/metal"
	"github.com/progrium/darwinkit/objc"

	"github.com/zoo-sdk/zoo/internal/fault"
)

// Values of Metal that darwinkit does not know.
const (
	languageVersion30   mtl.LanguageVersion = 3 << 16 // macOS 13
	mathModeSafe        int                 = 0       // MTLMathModeSafe, macOS 15
	mathFunctionPrecise int                 = 1       // MTLMathFloatingPointFunctionsPrecise, macOS 15
)

// systemPipeline is a compiled kernel.
type systemPipeline struct {
	state mtl.ComputePipelineStateObject
	// maxThreads is the most threads of a group with the registers that the kernel takes.
	maxThreads int
}

// Load implements Device.
func (d *systemDevice) Load(ctx context.Context, source string, kernels []string) (err error) {
	switch {
	case d.closed:
		return errDeviceClosed
	case d.pipelines != nil:
		return errors.New("kernels are loaded already")
	}
	d.pipelines = map[string]systemPipeline{}
	// What is not called new comes with a reference that the pool releases: options, errors, strings.
	objc.WithAutoreleasePool(func() { err = d.load(ctx, source, kernels) })
	return err
}

// load is Load inside a pool.
func (d *systemDevice) load(ctx context.Context, source string, kernels []string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var failure foundation.Error
	library := d.gpu.NewLibraryWithSourceOptionsError(source, compileOptions(), unsafe.Pointer(&failure))
	if library.IsNil() {
		return fmt.Errorf("%w: %s", ErrKernel, appleText(failure))
	}
	defer library.Release() // pipelines hold what they need of it
	for _, name := range kernels {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, err := d.compile(library, name)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrKernel, name, err)
		}
		d.pipelines[name] = p
	}
	return nil
}

// compileOptions asks for the arithmetic that all backends share. The pool owns them.
func compileOptions() mtl.CompileOptions {
	o := mtl.NewCompileOptions()
	o.SetLanguageVersion(languageVersion30)
	o.SetFastMathEnabled(false)
	for name, value := range map[string]int{"setMathMode:": mathModeSafe, "setMathFloatingPointFunctions:": mathFunctionPrecise} {
		if s := objc.Sel(name); o.RespondsToSelector(s) {
			objc.Call[objc.Void](o, s, value)
		}
	}
	return o
}

// compile makes the pipeline of a kernel.
func (d *systemDevice) compile(library mtl.LibraryObject, name string) (systemPipeline, error) {
	function := library.NewFunctionWithName(name)
	if function.IsNil() {
		return systemPipeline{}, errors.New("there is no such kernel")
	}
	defer function.Release()
	// darwinkit's own method wraps the function in a protocol, and panics over that.
	var failure foundation.Error
	state := objc.Call[mtl.ComputePipelineStateObject](d.gpu, objc.Sel("newComputePipelineStateWithFunction:error:"),
		function, unsafe.Pointer(&failure))
	if state.IsNil() {
		return systemPipeline{}, errors.New(appleText(failure))
	}
	p := systemPipeline{state, int(state.MaxTotalThreadsPerThreadgroup())}
	if width := state.ThreadExecutionWidth(); width != SIMDWidth || p.maxThreads < SIMDWidth {
		state.Release()
		return systemPipeline{}, fmt.Errorf("%q runs groups of up to %d threads, %d in step", d.info.Name, p.maxThreads, width)
	}
	return p, nil
}

// appleText returns what an error of Apple's says.
func appleText(e foundation.Error) string {
	if e.IsNil() {
		return "no reason is given"
	}
	return e.LocalizedDescription()
}

// commandError returns the error of a command buffer that did not end well.
func commandError(commands mtl.CommandBufferObject) (err error) {
	objc.WithAutoreleasePool(func() {
		e := commands.Error()
		if e.IsNil() {
			err = fmt.Errorf("%w: no reason is given", ErrDevice)
			return
		}
		code := mtl.CommandBufferError(e.Code())
		what, hint := explainCode(code)
		err = fault.WithHint(fmt.Errorf("%w: %s: %s (code %d)", ErrDevice, what, appleText(e), code), hint)
	})
	return err
}

// explainCode tells what an error of a command buffer means and what to do about it.
func explainCode(code mtl.CommandBufferError) (what, hint string) {
	const bug = "report this with what `zoo doctor --metal` prints, and use `--backend cpu` until then"
	switch code {
	case mtl.CommandBufferErrorTimeout:
		return "the system stopped it because it took too long", "close other programs that use the GPU, or run on the processor with `--backend cpu`"
	case mtl.CommandBufferErrorPageFault:
		return "a kernel touched memory that is not its own", bug
	case mtl.CommandBufferErrorOutOfMemory:
		return "memory ran out", "close other programs, ask for a smaller context with `--context`, or run on the processor with `--backend cpu`"
	case mtl.CommandBufferErrorNotPermitted:
		return "the system does not let this process use the GPU now", "run it in the session of a user who is logged in"
	case mtl.CommandBufferErrorAccessRevoked:
		return "the system has taken the GPU from this process after earlier faults", "start zoo again"
	case mtl.CommandBufferErrorDeviceRemoved:
		return "the device is gone", "start zoo again"
	}
	return "it did not finish", bug
}
