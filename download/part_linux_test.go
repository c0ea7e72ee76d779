package download

import (
	"crypto/sha256"
	"errors"
	"os"
	"testing"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

// TestPartFullDevice writes a part to a device that is always full.
func TestPartFullDevice(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full:", err)
	}
	defer f.Close()
	p := &part{where: "/store/m.part", f: f, sum: sha256.New()}
	err = p.write([]byte("0123456789"))
	j := &job{fetcher: &fetcher{}, room: &reservation{ledger: &ledger{free: func(string) (int64, error) { return 3, nil }}}}
	err = j.needed(err, 10)
	var disk *diskError
	var space *atomicfile.SpaceError
	if !errors.As(err, &disk) || !errors.As(err, &space) || !errors.Is(err, fault.ErrNoSpace) || space.NeedBytes != 10 || space.FreeBytes != 3 || p.n != 0 {
		t.Errorf("error %v after %d bytes, want a SpaceError of 10 bytes with 3 free", err, p.n)
	}
}
