package packing_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zoo-sdk/zoo/zoo"
	"github.com/zoo-sdk/zoo/zoo/packing"
)

// TestWriteBrokenOff has whoever is told of progress panic, or end its goroutine, in the
// middle of a tensor: no goroutine is left, and none reads a checkpoint that may be unmapped.
func TestWriteBrokenOff(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("enough") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const cols = 256
				m, err := packing.BF16("w", random("w", 32<<20/(2*cols), cols)) // more than is packed ahead
				if err != nil {
					t.Fatal(err)
				}
				var closed, late atomic.Bool
				read := m.Read
				m.Read = func(row int, to *packing.Row) error {
					time.Sleep(time.Nanosecond) // others are in the middle of a chunk when one is written
					if closed.Load() {
						late.Store(true)
					}
					return read(row, to)
				}
				w, err := packing.NewMatrix(m)
				if err != nil {
					t.Fatal(err)
				}
				p := &packing.Pack{Plugin: zoo.PluginID{Name: "test", Version: "1.0.0"}, Tensors: []*packing.Tensor{w}}
				meter := packing.NewMeter(func(int64, int64) { leave() })
				meter.Expect(p.SourceBytes())
				dir, done := t.TempDir(), make(chan struct{})
				go func() {
					defer close(done)
					defer func() {
						_ = recover()
						closed.Store(true)
					}()
					err := p.Write(t.Context(), dir, meter)
					t.Errorf("it returns: %v", err)
				}()
				<-done
				time.Sleep(time.Minute) // for those who are left
				if late.Load() {
					t.Error("the checkpoint is read after it may be closed")
				}
			})
		})
	}
}
