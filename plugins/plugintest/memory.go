package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

const (
	// measurements is how often a call is made until it takes little memory: what others
	// in this process take at the same time is counted with it, but not each time.
	measurements = 5
	// confinedBytes is the memory of a process that is not to read what is huge.
	confinedBytes int64 = 1 << 30
	// vastBytes is the size of files that do not fit into it.
	vastBytes int64 = 3 << 30
)

// planThriftily asks for the files of a release, and checks how much memory that takes
// in this process.
func (s *suite) planThriftily(ctx context.Context, call string, release catalog.Release, dir string) (files []catalog.File, err error) {
	if s.o.Process != nil { // its memory is checked by fetchConfined
		return s.plan(ctx, call, release, dir)
	}
	var took uint64
	for range measurements {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		files, err = s.plan(ctx, call, release, dir)
		runtime.ReadMemStats(&after)
		if took = after.TotalAlloc - before.TotalAlloc; took <= hugeBytes || errors.Is(err, errFaulty) {
			return files, err
		}
	}
	s.find(RuleFetchHostile, call, "it took %d MiB of memory, and as much when it was asked again", took>>20)
	return files, err
}

// fetchConfined asks for files from a process that has not the memory to read what lies
// in the folder. A plugin that cannot be called with so little at all is left alone.
func (s *suite) fetchConfined(ctx context.Context, sets [][]string, releases []catalog.Release) error {
	if s.o.Process == nil || s.o.Process.Confine == nil {
		return nil
	}
	p, stop, err := s.o.Process.Confine(confinedBytes)
	if err == nil {
		err = s.fetchVast(ctx, p, sets, releases)
	} else {
		err = context.Cause(ctx)
	}
	if stop != nil {
		err = errors.Join(err, stop())
	}
	return err
}

// fetchVast asks a plugin for files while vast ones lie in the folder.
func (s *suite) fetchVast(ctx context.Context, p zoo.Plugin, sets [][]string, releases []catalog.Release) error {
	fails := func(call, dir string, r catalog.Release) error {
		_, err := ask(ctx, s, call, func(ctx context.Context) (zoo.FetchPlan, error) {
			return s.callFetch(ctx, p, call, zoo.FetchRequest{Release: r, Dir: dir})
		})
		if errors.Is(err, errFaulty) || hasKind(err) {
			return nil // it lives
		}
		return err
	}
	confined := fmt.Sprintf("with %d MiB of memory", confinedBytes>>20)
	for _, r := range releases {
		if fails("Fetch, "+confined, "", r) != nil {
			return nil
		}
	}
	for _, set := range sets {
		dir, _, err := s.folder()
		if err != nil {
			return err
		}
		for _, name := range set {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			if err := writeSparse(path, vastBytes); err != nil {
				return err
			}
		}
		call := fmt.Sprintf("Fetch, %s and %d MiB in place of %s", confined, vastBytes>>20, nameOf(set))
		for _, r := range releases {
			if err := fails(call, dir, r); err != nil {
				s.find(RuleFetchHostile, call, "it failed: %w", err)
			}
		}
		if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// writeSparse writes a file that is the beginning of an object, and then holes.
func writeSparse(path string, size int64) error {
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}
