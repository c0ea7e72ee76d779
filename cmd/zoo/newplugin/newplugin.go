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
	"regexp"
	"strings"
	"text/template"

	"github.com/Masterminds/semver/v3"

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
	// modFile and sumFile say what a module is and which checksums others have.
	modFile = "go.mod"
	sumFile = "go.sum"
	// zooModule is the path of zoo's module.
	zooModule = "github.com/zoo-sdk/zoo"
)

// Options says what to write.
type Options struct {
	// Name is the plugin's name, under the rules of catalogs.
	Name string
	// Module is the path of the Go module; "" stands for example.org/NAME.
	Module string
	// Dir is the folder that the module becomes; it must not exist.
	Dir string
	// Version is the published version of zoo to build with, such as v1.2.0; "" leaves that
	// open.
	Version string
	// Replace is a folder with the source of zoo to build with, or "".
	Replace string
}

// data is what templates are filled with.
type data struct {
	Name, Module, Require, Replace string
	Files                          []catalog.File
}

// pseudo matches what Go makes of a commit that has no version.
var pseudo = regexp.MustCompile(`[-.][0-9]{14}-[0-9a-f]{12}$`)

// Published reports whether a version of zoo, as a build records it, can be one that others
// can fetch: not that of a commit without a tag or of changed files, which end so.
func Published(version string) bool {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	return err == nil && strings.HasPrefix(version, "v") && v.Metadata() == "" && !pseudo.MatchString(version)
}

// Write writes the module. It appears whole or not at all. Errors match fault.ErrUsage for
// a name that breaks the rules, or a folder that is there already, and fault.ErrNotFound
// for one that has no parent, or that is no source of zoo.
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
	parent := filepath.Dir(dir)
	stage, err := atomicfile.MkdirTemp(parent)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.WithHint(fmt.Errorf("%w: no folder %q to write the module in", fault.ErrNotFound, parent), "make that folder, or name another with -o")
	case err != nil:
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
	sums, err := sumsOf(source)
	if err != nil {
		return fault.WithHint(fmt.Errorf("%w: %q is no source of zoo: %w", fault.ErrNotFound, source, err), "name the folder of a checkout of zoo with --replace")
	}
	d.Require, d.Replace = "v0.0.0", filepath.ToSlash(source)
	if strings.ContainsAny(d.Replace, " \t\"'`") {
		d.Replace = fmt.Sprintf("%q", d.Replace)
	}
	return os.WriteFile(filepath.Join(stage, sumFile), sums, 0o644)
}

// sumsOf returns the checksums of zoo's module in a folder.
func sumsOf(source string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(source, modFile))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "module" {
			if name := strings.Trim(f[1], "\"`"); name != zooModule {
				return nil, fmt.Errorf("its module is %q", name)
			}
			return os.ReadFile(filepath.Join(source, sumFile))
		}
	}
	return nil, fmt.Errorf("%s names no module", modFile)
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
