// Package newplugin writes the module of a new plugin: a small decoder that converts, runs
// and passes the conformance suite, on a tiny checkpoint of random weights, with the places
// marked that make it the plugin of a family of models.
package newplugin

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
)

//go:embed module/*.tmpl
var module embed.FS

const (
	// moduleDir is the folder of the templates, and suffix ends their names.
	moduleDir = "module"
	suffix    = ".tmpl"
	// tinyDir is where the module has its checkpoint.
	tinyDir = "testdata/tiny"
	// sumFile is the name of the file of checksums of a module.
	sumFile = "go.sum"
)

// Options says what to write.
type Options struct {
	// Name is the plugin's name, under the rules of catalogs.
	Name string
	// Module is the path of the Go module; "" stands for example.org/NAME.
	Module string
	// Dir is the folder that the module becomes; it must not exist.
	Dir string
	// Version is the version of zoo to build with, such as v1.2.0; "" leaves that open.
	Version string
	// Replace is a folder with the source of zoo to build with, or "".
	Replace string
}

// data is what templates are filled with.
type data struct {
	Name, Module, Require, Replace string
	Files                          []catalog.File
}

// Write writes the module. It appears whole or not at all. Errors match fault.ErrUsage for
// a name that breaks the rules, or a folder that is there already.
func Write(ctx context.Context, o Options) (err error) {
	if err := catalog.ValidateName(o.Name); err != nil {
		return err
	}
	d := data{Name: o.Name, Module: o.Module, Require: o.Version}
	if d.Module == "" {
		d.Module = "example.org/" + o.Name
	}
	if err := catalog.ValidatePath(d.Module); err != nil {
		return fmt.Errorf("module: %w", err)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fault.WithHint(fmt.Errorf("%w: %q is there already", fault.ErrUsage, dir), "name a folder that does not exist with -o")
	}
	stage, err := atomicfile.MkdirTemp(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	if o.Replace != "" {
		if err := d.replace(o.Replace, stage); err != nil {
			return err
		}
	}
	tiny := filepath.Join(stage, filepath.FromSlash(tinyDir))
	if err := os.MkdirAll(tiny, 0o755); err != nil {
		return atomicfile.MapError(dir, err)
	}
	if d.Files, err = writeTiny(ctx, tiny); err != nil {
		return err
	}
	if err := d.fill(ctx, stage); err != nil {
		return err
	}
	return atomicfile.CommitDir(stage, dir, atomicfile.DirOptions{})
}

// replace has the module built with the source of zoo in a folder, whose checksums it takes over.
func (d *data) replace(source, stage string) error {
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(source, sumFile))
	if err != nil {
		return fault.WithHint(fmt.Errorf("%w: %q is no source of zoo: %w", fault.ErrNotFound, source, err), "name the folder of a checkout of zoo")
	}
	d.Require, d.Replace = "v0.0.0", filepath.ToSlash(source)
	if strings.ContainsAny(d.Replace, " \t\"'`") {
		d.Replace = fmt.Sprintf("%q", d.Replace)
	}
	return os.WriteFile(filepath.Join(stage, sumFile), sums, 0o644)
}

// fill writes the files of all templates.
func (d *data) fill(ctx context.Context, dir string) error {
	all, err := template.ParseFS(module, path.Join(moduleDir, "*"+suffix))
	if err != nil {
		return err
	}
	for _, t := range all.Templates() {
		var b strings.Builder
		if err := t.Execute(&b, d); err != nil {
			return err
		}
		name := strings.TrimSuffix(t.Name(), suffix)
		if err := atomicfile.WriteFile(ctx, filepath.Join(dir, name), []byte(b.String()), atomicfile.Options{}); err != nil {
			return err
		}
	}
	return nil
}
