//go:build darwin && cgo

package metal

import (
	"errors"
	"fmt"
	"unsafe"

	mtl "github.com/progrium/darwinkit/macos/metal"
	"github.com/progrium/darwinkit/objc"
)

const (
	// maxArgsBytes is how much Metal copies into a command buffer for one argument.
	maxArgsBytes = 4096
	// maxBindings is the number of buffers beside the arguments.
	maxBindings = 30
)

// systemList implements List.
type systemList struct {
	systemResource
	native unsafe.Pointer
}

// Record implements Device.
func (d *systemDevice) Record(dispatches []Dispatch) (List, error) {
	if d.closed {
		return nil, errDeviceClosed
	}
	var r nativeRecorder
	for i := range dispatches {
		if err := d.record(&r, &dispatches[i]); err != nil {
			return nil, fmt.Errorf("dispatch %d of %s: %w", i, dispatches[i].Kernel, err)
		}
	}
	l := &systemList{native: r.list()}
	if l.native == nil {
		return nil, fmt.Errorf("%w: a list of %d dispatches", ErrMemory, len(dispatches))
	}
	d.hold(&l.systemResource, func() { nativeFree(l.native) })
	return l, nil
}

// record checks a dispatch and appends it. The command buffer would end the process over what is wrong with it.
func (d *systemDevice) record(r *nativeRecorder, p *Dispatch) error {
	kernel, ok := d.pipelines[p.Kernel]
	switch {
	case !ok:
		return fmt.Errorf("%w: it is not loaded", ErrKernel)
	case p.Threads <= 0 || p.Threads%SIMDWidth != 0:
		return fmt.Errorf("%d threads are no multiple of %d", p.Threads, SIMDWidth)
	case p.Threads > kernel.maxThreads:
		return fmt.Errorf("%w: it takes so many registers that a group has %d threads at most on %q, and %d are asked for",
			ErrKernel, kernel.maxThreads, d.info.Name, p.Threads)
	case p.SharedBytes < 0 || p.SharedBytes%16 != 0 || p.SharedBytes > d.info.SharedBytes:
		return fmt.Errorf("%d bytes for a group to share: %q has %d", p.SharedBytes, d.info.Name, d.info.SharedBytes)
	case len(p.Args) > maxArgsBytes || len(p.Args)%4 != 0:
		return fmt.Errorf("%d bytes of arguments", len(p.Args))
	case len(p.Buffers) > maxBindings:
		return fmt.Errorf("%d buffers", len(p.Buffers))
	case min(p.Groups[0], p.Groups[1], p.Groups[2]) < 0:
		return fmt.Errorf("%d groups", p.Groups)
	}
	buffers := make([]nativeBinding, len(p.Buffers))
	for i, b := range p.Buffers {
		var err error
		if buffers[i], err = d.bind(b); err != nil {
			return fmt.Errorf("buffer %d: %w", i+1, err)
		}
	}
	if min(p.Groups[0], p.Groups[1], p.Groups[2]) == 0 {
		return nil // Metal takes no empty grid
	}
	r.add(kernel.state.Ptr(), p, buffers)
	return nil
}

// bind checks a binding. For one without a buffer it returns none.
func (d *systemDevice) bind(b Binding) (nativeBinding, error) {
	if b.Buffer == nil {
		return nativeBinding{}, nil
	}
	buffer, ok := b.Buffer.(*systemBuffer)
	switch {
	case !ok || buffer.owner != d:
		return nativeBinding{}, errors.New("it is of another device")
	case b.Offset < 0 || b.Offset%16 != 0 || b.Size < 0 || b.Offset > len(buffer.memory)-b.Size:
		return nativeBinding{}, fmt.Errorf("%d bytes at %d of %d", b.Size, b.Offset, len(buffer.memory))
	}
	return nativeBinding{buffer.object.Ptr(), b.Offset}, nil
}

// systemSubmission implements Submission.
type systemSubmission struct {
	held     systemResource
	commands mtl.CommandBufferObject
}

// Submit implements Device.
func (d *systemDevice) Submit(lists []List) (Submission, error) {
	if d.closed {
		return nil, errDeviceClosed
	}
	native := make([]unsafe.Pointer, len(lists))
	for i, l := range lists {
		list, ok := l.(*systemList)
		if !ok || list.owner != d {
			return nil, errors.New("a list is of another device")
		}
		native[i] = list.native
	}
	commands := nativeSubmit(d.queue.Ptr(), d.event.Ptr(), d.signals+1, native)
	if commands == nil {
		return nil, fmt.Errorf("%w: %q has no command buffer left", ErrDevice, d.info.Name)
	}
	d.signals += uint64(len(lists))
	s := &systemSubmission{commands: mtl.CommandBufferObject{Object: objc.ObjectFrom(commands)}}
	d.hold(&s.held, s.commands.Release)
	return s, nil
}

// Wait implements Submission.
func (s *systemSubmission) Wait() error {
	defer s.held.Release()
	if nativeWait(s.commands.Ptr()) {
		return nil
	}
	return commandError(s.commands)
}
