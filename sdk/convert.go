package sdk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/internal/atomicfile"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/zoo"
)

// ConvertOptions says what to convert into what.
type ConvertOptions struct {
	// Checkpoint is a folder of source files.
	Checkpoint string
	// Plugin is the plugin's "name", such as "gemma4e2b", or "name@constraint". The newest
	// that satisfies it converts.
	Plugin string
	// Output is the folder that the pack becomes; it must not exist or be empty.
	Output string
	// Recipe chooses between ways to convert; see the plugin.
	Recipe map[string]string
	// Report asks for the errors of rounding, for which the checkpoint is read once more.
	Report bool
}

// Converted is the pack that [Zoo.Convert] has made.
type Converted struct {
	Dir       string         `json:"dir"`
	Digest    catalog.Digest `json:"digest"`
	SizeBytes int64          `json:"size"`
	// Plugin made it.
	Plugin zoo.PluginID `json:"plugin"`
	// Tensors counts the tensors by their format, most bytes first.
	Tensors []FormatDetails `json:"tensors"`
	// Rounding lists the errors of rounding, if they were asked for and anything can be rounded.
	Rounding []zoo.RoundingError `json:"rounding,omitempty"`
}

// Convert makes a pack of a checkpoint folder, outside of the store. The pack
// appears complete and verified, or not at all. It is not gated: see [Zoo.Gate].
func (z *Zoo) Convert(ctx context.Context, o ConvertOptions) (*Converted, error) {
	ref, err := catalog.ParseRef(o.Plugin)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("plugin: %w", err), "name a plugin, or NAME@^1 to choose a version; `zoo plugin list` shows what there is")
	}
	plugin, about, err := z.registry.Find(ctx, catalog.PluginRef(ref))
	if err != nil {
		return nil, err
	}
	output, err := freeOutput(o.Output)
	if err != nil {
		return nil, err
	}
	sources, err := z.sources(ctx, plugin, o.Checkpoint)
	if err != nil {
		return nil, err
	}
	stage, err := atomicfile.MkdirTemp(filepath.Dir(output))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(stage)
	done, err := plugin.Convert(ctx, zoo.ConvertRequest{
		Checkpoint: o.Checkpoint,
		Sources:    sources,
		Recipe:     o.Recipe,
		Dir:        stage,
		Progress:   z.set.events.Convert,
		Report:     o.Report,
	})
	if err != nil {
		return nil, fmt.Errorf("convert %q: %w", o.Checkpoint, err)
	}
	if err := checkMaker(stage, about); err != nil {
		return nil, err
	}
	made, err := z.inspect(ctx, stage)
	if err != nil {
		return nil, err
	}
	// An empty folder makes way; anything else that came up meanwhile does not.
	_ = os.Remove(output)
	err = atomicfile.CommitDir(stage, output, atomicfile.DirOptions{ReadOnly: true})
	var taken *atomicfile.ExistError
	switch {
	case errors.As(err, &taken):
		return nil, fault.WithHint(fmt.Errorf("%w: %w, made by somebody else meanwhile", fault.ErrUsage, err), freeHint)
	case err != nil:
		return nil, err
	}
	made.Dir, made.Plugin, made.Rounding = output, pluginID(about), done.Rounding
	return made, nil
}

// freeHint says which folder a pack can become.
const freeHint = "name a folder that does not exist yet"

// freeOutput checks that a pack can become a folder and returns its absolute path.
func freeOutput(dir string) (string, error) {
	if dir == "" {
		return "", fault.WithHint(fmt.Errorf("%w: no folder for the pack", fault.ErrUsage), freeHint)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) == 0:
	case err == nil:
		return "", fault.WithHint(fmt.Errorf("%w: %q is not empty", fault.ErrUsage, dir), freeHint)
	case errors.Is(err, fs.ErrNotExist):
		if parent := filepath.Dir(dir); !exists(parent) {
			return "", fault.WithHint(fmt.Errorf("%w: no folder %q to make the pack in", fault.ErrNotFound, parent), "make that folder, or name another")
		}
	default:
		return "", fault.WithHint(atomicfile.MapError(dir, fmt.Errorf("%w: %w", fault.ErrUsage, err)), freeHint)
	}
	return dir, nil
}

// sources lists the files of a checkpoint folder that a plugin needs, with their digests.
func (z *Zoo) sources(ctx context.Context, plugin zoo.Plugin, dir string) ([]catalog.File, error) {
	if !exists(dir) {
		return nil, fault.WithHint(fmt.Errorf("%w: no checkpoint folder %q", fault.ErrNotFound, dir),
			fmt.Sprintf("give the folder that holds %s and the files with the weights", zoo.ConfigFile))
	}
	there, err := regularFiles(dir)
	if err != nil {
		return nil, err
	}
	asked := make(map[string]bool)
	release := catalog.Release{Source: catalog.Source{Kind: catalog.KindHub, Files: there}}
	plan, err := plugin.Fetch(ctx, zoo.FetchRequest{Release: release, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("files of %q: %w", dir, err)
	}
	var files []catalog.File
	total, done := int64(0), int64(0)
	for _, f := range plan.Files {
		i := slices.IndexFunc(there, func(t catalog.File) bool { return t.Path == f.Path })
		switch {
		case asked[f.Path]:
		case i >= 0:
			files = append(files, there[i])
			total += there[i].SizeBytes
		case !f.Optional:
			return nil, fault.WithHint(fmt.Errorf("%w: checkpoint %q has no file %q", fault.ErrNotFound, dir, f.Path),
				"get the file from where the others are from: a checkpoint is converted whole, with every file that its index names")
		}
		asked[f.Path] = true
	}
	for i := range files {
		path := filepath.Join(dir, filepath.FromSlash(files[i].Path))
		size, sum, err := hashFile(ctx, path, func(n int64) { z.set.events.Verify("checkpoint", min(done+n, total), total) })
		if err != nil {
			return nil, err
		}
		files[i].SizeBytes, files[i].SHA256 = size, sum
		done += size
	}
	slices.SortFunc(files, func(a, b catalog.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// regularFiles lists the files of a folder by their slash-separated paths, those
// left out whose names a checkpoint's file cannot have.
func regularFiles(dir string) ([]catalog.File, error) {
	var files []catalog.File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := os.Stat(path) // through the links of a hub's cache
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); catalog.ValidatePath(name) == nil {
			files = append(files, catalog.File{Path: name, SizeBytes: info.Size()})
		}
		return nil
	})
	return files, atomicfile.MapError(dir, err)
}

// inspect verifies the pack in a folder and describes it.
func (z *Zoo) inspect(ctx context.Context, dir string) (*Converted, error) {
	pack, err := zoo.OpenPack(dir)
	if err != nil {
		return nil, err
	}
	defer pack.Close()
	if err := pack.Verify(ctx, func(done, total int64) { z.set.events.Verify("new pack", done, total) }); err != nil {
		return nil, err
	}
	return &Converted{
		Digest:    pack.Digest(),
		SizeBytes: pack.SizeBytes(),
		Tensors:   formats(pack.Manifest().Tensors),
	}, nil
}
