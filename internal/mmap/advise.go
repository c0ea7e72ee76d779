package mmap

import (
	"context"
	"fmt"
	"os"
)

// Advice says how bytes of a mapped file will be read. It is a wish: it changes no
// content, and a system that does not know it goes on as it is.
type Advice int

const (
	// Stream is for what is read from one end to the other, again and again. Where the
	// system has huge pages it then reads the file into those: small ones take a walk of
	// page tables every 4 KiB, which costs bandwidth, most of all in a virtual machine.
	Stream Advice = iota + 1
	// Soon begins to read from the file what is not in memory, and does not wait for it.
	Soon
	// random is what [Random] asks for, and normal takes it back.
	random
	normal
)

// populateBytes is how much [Populate] asks the system for at a time.
const populateBytes = 16 << 20

// Advise tells the system how bytes [from, to) of data will be read. data begins at
// the start of a page, as [Map.Bytes] does. Of the pages at the ends, which are also
// others', Soon takes in both and Stream the last. It allocates nothing.
func Advise(data []byte, from, to int, a Advice) {
	if region := pages(data, from, to, a); len(region) > 0 {
		advise(region, a)
	}
}

// pages returns the pages of bytes [from, to) of data that advice is for: none where there are no such bytes.
func pages(data []byte, from, to int, a Advice) []byte {
	page := os.Getpagesize()
	if from < 0 || from >= to || to > len(data) {
		return nil
	}
	switch a {
	case Soon:
		from = from / page * page
	case Stream:
		from = (from + page - 1) / page * page
	case random:
		from = (from + page - 1) / page * page
		if to < len(data) {
			to = to / page * page
		}
	}
	if from >= to {
		return nil
	}
	return data[from:to]
}

// Populate reads bytes [from, to) of data, which begins at the start of a page, into
// memory: afterwards touching them waits for no file. It stops with the cause of ctx.
// Another error says that the file could not be read.
func Populate(ctx context.Context, data []byte, from, to int) error {
	from = from / os.Getpagesize() * os.Getpagesize()
	Advise(data, from, min(from+populateBytes, to), Soon)
	for end := from; from < to; from = end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		end = min(from+populateBytes, to)
		Advise(data, end, min(end+populateBytes, to), Soon)
		if err := populate(data[from:end]); err != nil {
			return fmt.Errorf("read %d bytes of a mapped file at %d: %w", end-from, from, err)
		}
	}
	return nil
}

// Resident returns how many of the bytes [from, to) of data, which begins at the
// start of a page, the system holds in memory, for this process or for another. Where
// it does not tell, known is false; Linux tells nobody but the file's owner and those
// who may write to it, and names all bytes to others.
func Resident(data []byte, from, to int) (bytes int64, known bool) {
	page := os.Getpagesize()
	var held [4096]byte
	for at := from / page * page; at < to; at += len(held) * page {
		end := min(at+len(held)*page, to)
		if !resident(data[at:end], held[:]) {
			return 0, false
		}
		for p := at; p < end; p += page {
			if held[(p-at)/page]&1 != 0 {
				bytes += int64(min(p+page, to) - max(p, from))
			}
		}
	}
	return bytes, true
}

// Offset returns where part begins in data, and whether it lies in it.
func Offset(data, part []byte) (offset int, ok bool) {
	at := address(part) - address(data)
	if at > uintptr(len(data)) || uintptr(len(part)) > uintptr(len(data))-at {
		return 0, false
	}
	return int(at), true
}

// touch reads a byte of every page.
//
//go:noinline
func touch(region []byte) (sum byte) {
	for at := 0; at < len(region); at += os.Getpagesize() {
		sum += region[at]
	}
	return sum
}
