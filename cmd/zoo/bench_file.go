package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/zoo-sdk/zoo/internal/atomicfile"
)

// plotFile is a file that a plot will be written to. It is opened before anything is
// measured, so that a wrong name costs nothing, and keeps what is in it until then.
type plotFile struct {
	*os.File
	// made says that the file was not there before.
	made bool
}

// openPlot opens or makes a file.
func openPlot(name string) (*plotFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	}
	if err == nil {
		return &plotFile{f, made}, nil
	}
	if info, serr := os.Stat(name); serr == nil && info.IsDir() {
		return nil, &usageError{fmt.Sprintf("--plot: %q is a folder", name), "name a file in it"}
	}
	return nil, plotError(name, err)
}

// write puts data into the place of what was in the file, and closes it.
func (p *plotFile) write(data []byte) error {
	info, err := p.Stat()
	if err == nil && info.Mode().IsRegular() { // a device or a pipe has no length
		err = p.Truncate(0)
	}
	if err == nil {
		_, err = p.Write(data)
	}
	return plotError(p.Name(), errors.Join(err, p.Close()))
}

// discard closes the file, and removes it if it was not there before.
func (p *plotFile) discard() error {
	err := p.Close()
	if p.made {
		err = errors.Join(err, os.Remove(p.Name()))
	}
	return plotError(p.Name(), err)
}

// plotError classifies an error of the file of a plot.
func plotError(name string, err error) error { return atomicfile.MapError(name, fileError(name, err)) }
