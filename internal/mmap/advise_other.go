//go:build !linux && !darwin

package mmap

import "errors"

// advise does nothing where the system is left to itself.
func advise([]byte, Advice) {}

// populate reads pages.
func populate(region []byte) error {
	touch(region)
	return nil
}

// lock is not supported.
func lock([]byte) error { return errors.ErrUnsupported }

// unlock has nothing to do.
func unlock([]byte) {}

// resident is not known.
func resident(_, _ []byte) bool { return false }
