package plugintest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/zoo"
)

// damage is a way to spoil a file.
type damage struct {
	name string
	// change returns the new content, and false for no file.
	change func(data []byte) ([]byte, bool)
}

// damages lists ways to spoil a file.
var damages = []damage{
	{"garbage", func(data []byte) ([]byte, bool) { return garbage(len(data)), true }},
	{"half of a file", func(data []byte) ([]byte, bool) { return data[:len(data)/2], true }},
	{"an empty file", func([]byte) ([]byte, bool) { return nil, true }},
	{"an empty object", func([]byte) ([]byte, bool) { return []byte("{}"), true }},
	{"deep JSON", func([]byte) ([]byte, bool) { return bytes.Repeat([]byte(`{"a":[`), 100_000), true }},
	{"no file", func([]byte) ([]byte, bool) { return nil, false }},
}

// shortens reports whether the damage leaves less than there was, which no format survives.
func (d damage) shortens() bool { return d.name != "garbage" }

// convertBroken converts checkpoints of which one file, or all, are damaged.
func (s *suite) convertBroken(ctx context.Context) error {
	if s.about.Name == "" {
		return nil
	}
	if err := s.convertNothing(ctx); err != nil || s.pack == nil {
		return err
	}
	files := s.planned
	if len(files) == 0 {
		files = s.sources
	}
	have := byPath(s.sources)
	files = slices.DeleteFunc(slices.Clone(files), func(f catalog.File) bool { _, ok := have[f.Path]; return !ok })
	if len(files) == 0 {
		return nil
	}
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	if err := copyFiles(s.o.Checkpoint, dir, files); err != nil {
		return err
	}
	weights := slices.MaxFunc(files, func(a, b catalog.File) int { return cmp.Compare(have[a.Path].SizeBytes, have[b.Path].SizeBytes) })
	for _, d := range damages {
		for _, f := range files {
			call := fmt.Sprintf("Convert, %s in place of %s", d.name, f.Path)
			must := f.Path == weights.Path && d.shortens()
			if err := s.convertDamaged(ctx, call, dir, d, must, f); err != nil {
				return err
			}
		}
		if err := s.convertDamaged(ctx, fmt.Sprintf("Convert, %s in place of all files", d.name), dir, d, true, files...); err != nil {
			return err
		}
	}
	around("Convert, a damaged checkpoint")
	return nil
}

// convertNothing converts checkpoints without files.
func (s *suite) convertNothing(ctx context.Context) error {
	empty, around, err := s.folder()
	if err != nil {
		return err
	}
	err = s.convertWrong(ctx, "Convert, an empty checkpoint", empty, nil, true, s.judgeData)
	if err == nil {
		err = s.convertWrong(ctx, "Convert, a checkpoint that does not exist", filepath.Join(s.dir, "nothing"), nil, true, s.judge)
	}
	around("Convert, an empty checkpoint")
	return err
}

// convertDamaged spoils files of a copy of the checkpoint, converts it and makes the files whole again.
func (s *suite) convertDamaged(ctx context.Context, call, dir string, d damage, must bool, spoiled ...catalog.File) error {
	for _, f := range spoiled {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if data, ok := d.change(data); ok {
			err = os.WriteFile(path, data, 0o600)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	if err := s.convertWrong(ctx, call, dir, files, must, s.judgeData); err != nil {
		return err
	}
	return copyFiles(s.o.Checkpoint, dir, spoiled)
}

// convertWrong converts a checkpoint that must, or may, be refused, with an error that judge is content with.
func (s *suite) convertWrong(ctx context.Context, call, checkpoint string, files []catalog.File, must bool, judge func(rule Rule, call string, err error)) error {
	dir, around, err := s.folder()
	if err != nil {
		return err
	}
	req := s.request(dir)
	req.Checkpoint, req.Sources = checkpoint, files
	err = s.toPack(ctx, s.plugin, call, req)
	around(call)
	switch {
	case err != nil:
		judge(RuleConvertBroken, call, err)
		s.noPack(RuleConvertBroken, call, dir)
	case must:
		s.find(RuleConvertBroken, call, "it was not refused")
	default:
		if pack := s.openPack(ctx, RuleConvertBroken, call, dir); pack != nil {
			_ = pack.Close()
		}
	}
	return os.RemoveAll(filepath.Dir(dir))
}

// noPack checks that a folder holds no pack.
func (s *suite) noPack(rule Rule, call, dir string) {
	if pack, err := zoo.OpenPack(dir); err == nil {
		_ = pack.Close()
		s.find(rule, call, "it failed and left a pack")
	} else if exists(filepath.Join(dir, zoo.DigestFile)) {
		s.find(rule, call, "it failed and left %s, which marks a complete pack", zoo.DigestFile)
	}
}

// wholeOrNone checks that a folder holds a sound pack or none: a process may have been
// stopped when it had made one, and had not said so.
func (s *suite) wholeOrNone(ctx context.Context, rule Rule, call, dir string) {
	if !exists(filepath.Join(dir, zoo.DigestFile)) {
		return
	}
	if pack := s.openPack(ctx, rule, call, dir); pack != nil {
		_ = pack.Close()
	}
}

// runBad asks for the programs of packs that lack something or hold something else.
func (s *suite) runBad(ctx context.Context) error {
	if s.program == nil {
		return nil
	}
	read := map[string]bool{}
	for _, w := range s.program.Weights {
		read[w.Name] = true
	}
	sample := 0
	for i, t := range s.info.Manifest.Tensors {
		if !read[t.Name] {
			continue
		}
		// All of a few, then fewer and fewer.
		if sample++; sample > 16 && sample&(sample-1) != 0 {
			continue
		}
		info := s.copyInfo()
		info.Manifest.Tensors = slices.Delete(info.Manifest.Tensors, i, i+1)
		s.runWrong(ctx, fmt.Sprintf("Run, a pack without tensor %q", t.Name), info, true)
		info = s.copyInfo()
		info.Manifest.Tensors[i].Rows *= 2
		s.runWrong(ctx, fmt.Sprintf("Run, twice the rows in tensor %q", t.Name), info, false)
	}
	empty := s.copyInfo()
	empty.Manifest.Tensors = nil
	s.runWrong(ctx, "Run, a pack without tensors", empty, true)
	none := s.copyInfo()
	none.Manifest.Constants = nil
	s.runWrong(ctx, "Run, a pack without constants", none, false)
	other := s.copyInfo()
	other.Manifest.Plugin.Version = "0.0.1"
	s.runWrong(ctx, "Run, a pack of another version of the plugin", other, false)
	s.runWrong(ctx, "Run, no pack", zoo.PackInfo{}, true)
	if s.info.Config == nil {
		return nil
	}
	for what, config := range map[string]string{
		"no configuration": "", "garbage as a configuration": string(garbage(1000)), "half of the configuration": string(s.info.Config[:len(s.info.Config)/2]),
		"deep JSON as a configuration": strings.Repeat(`{"a":[`, 100_000),
	} {
		info := s.copyInfo()
		info.Config = []byte(config)
		s.runWrong(ctx, "Run, "+what, info, true)
	}
	for _, config := range editedConfigs(s.info.Config) {
		info := s.copyInfo()
		info.Config = config
		s.runWrong(ctx, "Run, another number in the configuration", info, false)
	}
	return nil
}

// copyInfo returns what the plugin is told of the pack, to be changed.
func (s *suite) copyInfo() zoo.PackInfo {
	m := *s.info.Manifest
	m.Tensors = slices.Clone(m.Tensors)
	return zoo.PackInfo{Manifest: &m, Config: slices.Clone(s.info.Config)}
}

// runWrong asks for the program of a pack that must be refused, or else gives a valid program.
func (s *suite) runWrong(ctx context.Context, call string, info zoo.PackInfo, must bool) {
	p, err := s.record(ctx, call, info)
	switch {
	case err != nil:
		s.judge(RuleRunBad, call, err)
	case must:
		s.find(RuleRunBad, call, "it was not refused")
	default:
		if err := p.Validate(); err != nil {
			s.find(RuleRunBad, call, "it was not refused, and its program is invalid: %w", err)
		}
	}
}

// editedConfigs returns the configuration with one of its numbers changed: the first ones
// that are found, to values that are out of any range.
func editedConfigs(config []byte) [][]byte {
	var all [][]byte
	numbers := 0
	for i := 0; i < len(config) && numbers < 24; i++ {
		if config[i] != ':' && config[i] != '[' && config[i] != ',' {
			continue
		}
		start := i + 1
		for start < len(config) && (config[start] == ' ' || config[start] == '\n') {
			start++
		}
		end := start
		for end < len(config) && bytes.IndexByte([]byte("0123456789.-+eE"), config[end]) >= 0 {
			end++
		}
		if end == start {
			continue
		}
		numbers++
		for _, value := range []string{"0", "-1", "1099511627776"} {
			edited := slices.Concat(config[:start], []byte(value), config[end:])
			if json.Valid(edited) {
				all = append(all, edited)
			}
		}
		i = end - 1
	}
	return all
}
