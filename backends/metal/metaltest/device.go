//go:build linux

package metaltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/zoo-sdk/zoo/backends/metal"
)

// device is a metal.Device. Until kernels are loaded there is no process, and
// buffers are this one's memory only.
type device struct {
	driver  *Driver
	options Options
	info    metal.DeviceInfo

	mu       sync.Mutex
	process  *process
	library  *library
	loaded   bool
	closed   bool
	buffers  map[uint32]*buffer
	lists    map[uint32]*list
	bytes    int64
	lastID   uint32
	lastDone uint64
	running  int
}

// open returns a device.
func open(d *Driver) (metal.Device, error) {
	if _, err := findCompiler(); err != nil {
		return nil, fmt.Errorf("%w: %w", metal.ErrNoDevice, err)
	}
	dev := &device{
		driver: d, options: d.options, buffers: map[uint32]*buffer{}, lists: map[uint32]*list{},
		info: metal.DeviceInfo{
			Name: "test device", MemoryBytes: d.options.MemoryBytes, MaxBufferBytes: d.options.MaxBufferBytes,
			PageBytes: os.Getpagesize(), MaxThreads: d.options.MaxThreads, SharedBytes: d.options.SharedBytes,
		},
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = append(d.devices, dev)
	d.counts.LiveDevices++
	return dev, nil
}

// Info implements metal.Device.
func (d *device) Info() metal.DeviceInfo { return d.info }

// usable returns why the device cannot be used, or nil. The caller holds the lock.
func (d *device) usable() error {
	if d.closed {
		return fmt.Errorf("%w: it is closed", metal.ErrDevice)
	}
	if d.process != nil {
		return d.process.reason()
	}
	return nil
}

// buffer is a metal.Buffer.
type buffer struct {
	device   *device
	id       uint32
	file     int
	offset   int64 // in the file
	data     []byte
	own      bool // data is a mapping of this buffer
	released bool
}

// list is a metal.List.
type list struct {
	device     *device
	id         uint32
	dispatches int64
	boundBytes int64
	buffers    []*buffer
	released   bool
}

// room returns whether so many bytes more are allowed. The caller holds the lock.
func (d *device) room(sizeBytes int) error {
	if err := d.usable(); err != nil {
		return err
	}
	if sizeBytes <= 0 {
		return fmt.Errorf("%w: a buffer of %d bytes", metal.ErrMemory, sizeBytes)
	}
	if int64(sizeBytes) > d.info.MaxBufferBytes {
		return fmt.Errorf("%w: a buffer of %d bytes, and the largest has %d", metal.ErrMemory, sizeBytes, d.info.MaxBufferBytes)
	}
	if d.bytes+int64(sizeBytes) > d.info.MemoryBytes {
		return fmt.Errorf("%w: %d bytes more than the %d of %d in use", metal.ErrMemory, sizeBytes, d.bytes, d.info.MemoryBytes)
	}
	return nil
}

// Alloc implements metal.Device.
func (d *device) Alloc(sizeBytes int) (metal.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.room(sizeBytes); err != nil {
		return nil, err
	}
	file, err := unix.MemfdCreate("metaltest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", metal.ErrMemory, err)
	}
	err = unix.Ftruncate(file, int64(sizeBytes))
	var data []byte
	if err == nil {
		data, err = unix.Mmap(file, 0, sizeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", metal.ErrMemory, err), unix.Close(file))
	}
	b := &buffer{device: d, file: file, data: data, own: true}
	if err := d.add(b); err != nil {
		return nil, errors.Join(err, unix.Munmap(data))
	}
	d.driver.count(func(c *Counts) { c.Allocs++ })
	return b, nil
}

// Map implements metal.Device.
func (d *device) Map(memory []byte) (metal.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.room(len(memory)); err != nil {
		return nil, err
	}
	file, offset, err := backing(memory, d.info.PageBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", metal.ErrMemory, err)
	}
	b := &buffer{device: d, file: file, offset: offset, data: memory}
	if err := d.add(b); err != nil {
		return nil, err
	}
	d.driver.count(func(c *Counts) { c.Maps++ })
	return b, nil
}

// add counts a buffer and tells the process of it. If that fails, its file is closed.
func (d *device) add(b *buffer) error {
	d.lastID++
	b.id = d.lastID
	if d.process != nil {
		if err := d.announce(b); err != nil {
			return errors.Join(err, unix.Close(b.file))
		}
	}
	d.buffers[b.id] = b
	d.bytes += int64(len(b.data))
	d.driver.count(func(c *Counts) {
		c.LiveBuffers++
		c.LiveBytes += int64(len(b.data))
	})
	return nil
}

// announce has the process map a buffer.
func (d *device) announce(b *buffer) error {
	m := newMessage(requestBuffer)
	m.u32(b.id, uint32(b.file))
	m.u64(uint64(b.offset), uint64(len(b.data)))
	writable := uint32(0)
	if b.own {
		writable = 1
	}
	m.u32(writable)
	c := d.process.expect(d.process.buffers, uint64(b.id))
	d.process.send(m.bytes())
	r, err := d.process.await(c)
	if err == nil && r.text != "" {
		err = fmt.Errorf("%w: %s", metal.ErrMemory, r.text)
	}
	return err
}

// Bytes implements metal.Buffer.
func (b *buffer) Bytes() []byte { return b.data }

// Release implements metal.Buffer.
func (b *buffer) Release() {
	d := b.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if b.released {
		panic("metaltest: a buffer is released twice")
	}
	d.free(b)
	if d.process != nil {
		m := newMessage(requestRelease)
		m.u32(b.id)
		d.process.send(m.bytes())
	}
}

// free gives a buffer's memory back. The caller holds the lock.
func (d *device) free(b *buffer) {
	b.released = true
	delete(d.buffers, b.id)
	d.bytes -= int64(len(b.data))
	d.driver.count(func(c *Counts) {
		c.LiveBuffers--
		c.LiveBytes -= int64(len(b.data))
	})
	if b.own {
		if err := unix.Munmap(b.data); err != nil {
			panic(err) // it is our mapping
		}
	}
	b.data = nil
	_ = unix.Close(b.file) // nothing was written through it
}

// Load implements metal.Device.
func (d *device) Load(ctx context.Context, source string, kernels []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	if d.loaded {
		return errors.New("load: kernels were loaded before")
	}
	d.loaded = true
	c, err := findCompiler()
	if err != nil {
		return fmt.Errorf("%w: %w", metal.ErrKernel, err)
	}
	built, err := c.build(ctx, d.options, source, kernels)
	if err != nil {
		return err
	}
	p, err := start(built.program, d.options)
	if err != nil {
		return fmt.Errorf("%w: start the runner: %w", metal.ErrDevice, err)
	}
	d.process = p
	d.library = built
	for _, b := range d.buffers {
		if err := d.announce(b); err != nil {
			return err
		}
	}
	return nil
}

// check returns what is wrong with a binding.
func (d *device) check(b metal.Binding) error {
	own, ok := b.Buffer.(*buffer)
	switch {
	case !ok || own.device != d:
		return errors.New("it is of another device")
	case own.released:
		return errors.New("it was released")
	case b.Offset < 0 || b.Offset%16 != 0:
		return fmt.Errorf("offset %d is not a multiple of 16", b.Offset)
	case b.Size <= 0 || b.Size > len(own.data) || b.Offset > len(own.data)-b.Size:
		return fmt.Errorf("%d bytes from %d on are not within its %d", b.Size, b.Offset, len(own.data))
	}
	return nil
}

// bind appends a binding to a message, and the buffer to those of the list.
func (l *list) bind(m *message, b metal.Binding) {
	if b.Buffer == nil {
		m.u32(0)
		m.u64(0, 0)
		return
	}
	own := b.Buffer.(*buffer)
	m.u32(own.id)
	m.u64(uint64(b.Offset), uint64(b.Size))
	l.buffers = append(l.buffers, own)
}

// Record implements metal.Device.
func (d *device) Record(dispatches []metal.Dispatch) (metal.List, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return nil, err
	}
	if d.process == nil {
		return nil, errors.New("record: no kernels are loaded")
	}
	d.lastID++
	l := &list{device: d, id: d.lastID, dispatches: int64(len(dispatches))}
	m := newMessage(requestList)
	m.u32(l.id, uint32(len(dispatches)))
	for i, one := range dispatches {
		if err := d.encode(l, m, one); err != nil {
			return nil, fmt.Errorf("record dispatch %d, %q: %w", i, one.Kernel, err)
		}
	}
	d.lists[l.id] = l
	d.process.send(m.bytes())
	d.driver.count(func(c *Counts) {
		c.Lists++
		c.LiveLists++
	})
	return l, nil
}

// encode checks a dispatch and appends it to a message.
func (d *device) encode(l *list, m *message, one metal.Dispatch) error {
	n := slices.IndexFunc(d.library.kernels, func(k kernel) bool { return k.name == one.Kernel })
	switch {
	case n < 0:
		return fmt.Errorf("%w: no such kernel was loaded", metal.ErrKernel)
	case one.Threads <= 0 || one.Threads%metal.SIMDWidth != 0 || one.Threads > d.info.MaxThreads:
		return fmt.Errorf("%d threads: not a multiple of %d up to %d", one.Threads, metal.SIMDWidth, d.info.MaxThreads)
	case d.library.kernels[n].threads > 0 && one.Threads > d.library.kernels[n].threads:
		return fmt.Errorf("%d threads: the kernel's source says %d at most", one.Threads, d.library.kernels[n].threads)
	case one.SharedBytes < 0 || one.SharedBytes%16 != 0 || one.SharedBytes > d.info.SharedBytes:
		return fmt.Errorf("%d bytes of threadgroup memory: not a multiple of 16 up to %d", one.SharedBytes, d.info.SharedBytes)
	case len(one.Args) > 4096 || len(one.Args)%4 != 0:
		return fmt.Errorf("arguments of %d bytes: not words, up to 4096 bytes", len(one.Args))
	case len(one.Buffers) > 30:
		return fmt.Errorf("%d buffers: the largest index is 30", len(one.Buffers))
	}
	groups := int64(1)
	for _, g := range one.Groups {
		if g < 0 || int64(g) > 1<<31 {
			return fmt.Errorf("a grid of %v groups", one.Groups)
		}
		if groups *= int64(g); groups > 1<<31 {
			return fmt.Errorf("a grid of %v groups", one.Groups)
		}
	}
	for i, b := range one.Buffers {
		if b.Buffer == nil {
			continue
		}
		if err := d.check(b); err != nil {
			return fmt.Errorf("buffer %d: %w", i+1, err)
		}
		l.boundBytes += int64(b.Size)
	}
	m.u32(uint32(len(one.Kernel)))
	m.data = append(m.data, one.Kernel...)
	m.u32(uint32(one.Threads), uint32(one.SharedBytes))
	for _, g := range one.Groups {
		m.u32(uint32(g))
	}
	m.u32(uint32(len(one.Args)))
	m.data = append(m.data, one.Args...)
	m.u32(uint32(len(one.Buffers)))
	for _, b := range one.Buffers {
		l.bind(m, b)
	}
	return nil
}

// Release implements metal.List.
func (l *list) Release() {
	d := l.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if l.released {
		panic("metaltest: a list is released twice")
	}
	l.released = true
	delete(d.lists, l.id)
	d.driver.count(func(c *Counts) { c.LiveLists-- })
	m := newMessage(requestDrop)
	m.u32(l.id)
	d.process.send(m.bytes())
}

// submission is a metal.Submission.
type submission struct {
	device *device
	reply  chan reply
	waited bool
}

// Submit implements metal.Device.
func (d *device) Submit(lists []metal.List) (metal.Submission, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return nil, err
	}
	d.lastDone++
	m := newMessage(requestSubmit)
	m.u64(d.lastDone)
	m.u32(uint32(len(lists)))
	var dispatches, boundBytes int64
	for i, one := range lists {
		l, ok := one.(*list)
		if !ok || l.device != d || l.released {
			return nil, fmt.Errorf("submit list %d: it is of another device or was released", i)
		}
		if slices.ContainsFunc(l.buffers, func(b *buffer) bool { return b.released }) {
			return nil, fmt.Errorf("submit list %d: it names a buffer that was released", i)
		}
		m.u32(l.id)
		dispatches += l.dispatches
		boundBytes += l.boundBytes
	}
	if d.process == nil {
		return nil, errors.New("submit: no kernels are loaded")
	}
	s := &submission{device: d, reply: d.process.expect(d.process.done, d.lastDone)}
	d.process.send(m.bytes())
	d.running++
	d.driver.count(func(c *Counts) {
		c.Submissions++
		c.Running++
		c.Dispatches += dispatches
		c.BoundBytes += boundBytes
	})
	return s, nil
}

// Wait implements metal.Submission.
func (s *submission) Wait() error {
	d := s.device
	d.mu.Lock()
	waited := s.waited
	s.waited = true
	d.mu.Unlock()
	if waited {
		panic("metaltest: a submission is waited for twice")
	}
	r, err := d.process.await(s.reply)
	d.mu.Lock()
	d.running--
	d.mu.Unlock()
	d.driver.count(func(c *Counts) {
		c.Waits++
		c.Running--
	})
	if err == nil && r.code != outcomeOK {
		err = fmt.Errorf("%w: %s", metal.ErrDevice, d.library.locate(r.text))
	}
	return err
}

// Close implements metal.Device.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.running > 0 {
		return fmt.Errorf("close: %d submissions were not waited for", d.running)
	}
	if d.process != nil {
		d.process.stop()
	}
	for _, b := range d.buffers {
		d.free(b)
	}
	d.closed = true
	d.driver.mu.Lock()
	defer d.driver.mu.Unlock()
	d.driver.counts.LiveDevices--
	d.driver.counts.LiveLists -= len(d.lists)
	d.driver.devices = slices.DeleteFunc(d.driver.devices, func(other *device) bool { return other == d })
	return nil
}

// kill ends the process.
func (d *device) kill() {
	d.mu.Lock()
	p := d.process
	d.mu.Unlock()
	if p != nil {
		_ = p.cmd.Process.Kill() // it may be gone
		<-p.ended
	}
}
