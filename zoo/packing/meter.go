package packing

import "sync"

// Meter counts the bytes of a checkpoint that have been read. It is safe for concurrent use.
type Meter struct {
	mu sync.Mutex
	// progress is told the bytes that are done, one call at a time, or is nil.
	progress    func(doneBytes, totalBytes int64)
	done, total int64
}

// NewMeter returns a meter that tells progress, unless it is nil, of each step, in one
// call at a time.
func NewMeter(progress func(doneBytes, totalBytes int64)) *Meter { return &Meter{progress: progress} }

// Expect adds bytes that are going to be read.
func (m *Meter) Expect(sourceBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += sourceBytes
}

// Add adds bytes that have been read.
func (m *Meter) Add(sourceBytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += sourceBytes
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
}
