package mmap

import (
	"os"
	"slices"
	"sync"
	"unsafe"
)

// Hold is what the system was told about bytes of a mapped file, [Random] or [Lock].
// It lasts until [Hold.Release] or the end of the mapping. Others may hold some of the
// same bytes, or of the same pages: for these it lasts until the last of them has
// released. Its methods may be called by many goroutines.
type Hold struct {
	among  *holds
	region []byte
}

// holds are those of one kind in this process. A system knows one state of a page
// and does not count who asked for it, so that is done here.
type holds struct {
	begin func(region []byte) error
	end   func(region []byte)

	mu  sync.Mutex
	all []*Hold
}

// locked and scattered are the holds of [Lock] and of [Random].
var (
	locked    = &holds{begin: lock, end: unlock}
	scattered = &holds{
		begin: func(region []byte) error { advise(region, random); return nil },
		end:   func(region []byte) { advise(region, normal) },
	}
)

// Random tells the system that bytes [from, to) of data are read here and there: when
// a page is touched it reads this one alone from the file, and not its neighbours.
// data begins at the start of a page. The pages at the ends are left out, as they are
// also others'. It is a wish, as [Advise] has them.
func Random(data []byte, from, to int) *Hold {
	h, _ := scattered.take(pages(data, from, to, random)) // nothing fails
	return h
}

// Lock keeps bytes [from, to) of data, which begins at the start of a page, in memory.
// Systems permit that for a few bytes or for chosen users only: the error says so.
func Lock(data []byte, from, to int) (*Hold, error) {
	page := os.Getpagesize()
	return locked.take(data[from/page*page : min((to+page-1)/page*page, len(data))])
}

// Release gives up the hold. A second call does nothing.
func (h *Hold) Release() {
	h.among.mu.Lock()
	defer h.among.mu.Unlock()
	h.among.drop(h)
}

// forget drops all holds of a mapping that is about to end, and with it what the
// system knows of them.
func forget(data []byte) {
	for _, k := range []*holds{locked, scattered} {
		k.mu.Lock()
		k.all = slices.DeleteFunc(k.all, func(h *Hold) bool {
			_, within := Offset(data, h.region)
			return within
		})
		k.mu.Unlock()
	}
}

// take adds a hold.
func (k *holds) take(region []byte) (*Hold, error) {
	h := &Hold{k, region}
	if len(region) == 0 {
		return h, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, h)
	if err := k.begin(region); err != nil {
		k.drop(h) // some of it may have been done
		return nil, err
	}
	return h, nil
}

// drop ends a hold, if it still is one, where there is no other. k is locked.
func (k *holds) drop(h *Hold) {
	i := slices.Index(k.all, h)
	if i < 0 {
		return
	}
	k.all = slices.Delete(k.all, i, i+1)
	alone := [][]byte{h.region}
	for _, other := range k.all {
		var left [][]byte
		for _, part := range alone {
			left = append(left, without(part, other.region)...)
		}
		alone = left
	}
	for _, part := range alone {
		k.end(part)
	}
}

// without returns the parts of a region that do not lie in another.
func without(region, other []byte) (left [][]byte) {
	from, size := address(region), uintptr(len(region))
	offset := func(at uintptr) uintptr { return min(max(at, from), from+size) - from }
	begin, end := offset(address(other)), offset(address(other)+uintptr(len(other)))
	if begin > 0 {
		left = append(left, region[:begin])
	}
	if end < size {
		left = append(left, region[end:])
	}
	return left
}

// address returns where bytes lie.
func address(data []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(data))) }
