package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/zoo-sdk/zoo/internal/fault"
)

const (
	// IndexFile says which shard holds which tensor.
	IndexFile = "model.safetensors.index.json"
	// maxIndexBytes bounds an index.
	maxIndexBytes = 64 << 20
	// maxShards bounds the files that an index names.
	maxShards = 4096
	// shardSuffix ends the name of every shard.
	shardSuffix = ".safetensors"
)

// Shards returns the files that an index names, sorted. Errors are *FormatError.
func Shards(index []byte) ([]string, error) {
	files, err := parseIndex(index)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range files {
		names[file] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// parseIndex returns the file of each tensor.
func parseIndex(text []byte) (map[string]string, error) {
	bad := func(err error, problem string) error {
		return &FormatError{File: IndexFile, Problem: problem, Err: err}
	}
	switch {
	case len(text) > maxIndexBytes:
		return nil, bad(nil, fmt.Sprintf("%d bytes, at most %d are allowed", len(text), maxIndexBytes))
	case !utf8.Valid(text):
		return nil, bad(nil, "not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	var files map[string]string
	err := eachMember(d, func(key string) error {
		if key != "weight_map" {
			// The metadata and whatever else there may be says nothing about where tensors are.
			return d.Decode(new(json.RawMessage))
		}
		if files != nil {
			return &FormatError{Problem: "weight_map occurs twice"}
		}
		files = map[string]string{}
		return parseWeightMap(d, files)
	})
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = &FormatError{Problem: "something follows the object"}
		}
	}
	if fe, ok := errors.AsType[*FormatError](err); ok {
		fe.File = IndexFile
		return nil, fe
	}
	switch {
	case err != nil:
		return nil, bad(err, "not the JSON it should be")
	case files == nil:
		return nil, bad(nil, "weight_map is missing")
	case len(files) == 0:
		return nil, bad(nil, "weight_map is empty")
	}
	return files, nil
}

// parseWeightMap reads the object from tensor to file.
func parseWeightMap(d *json.Decoder, files map[string]string) error {
	shards := map[string]bool{}
	return eachMember(d, func(name string) error {
		if _, twice := files[name]; twice {
			return &FormatError{Tensor: name, Problem: "the tensor occurs twice"}
		}
		t, err := d.Token()
		if err != nil {
			return err
		}
		file, ok := t.(string)
		if !ok || !strings.HasSuffix(file, shardSuffix) || strings.ContainsAny(file, `/\:`) || strings.HasPrefix(file, ".") {
			return &FormatError{Tensor: name, Problem: fmt.Sprintf("%q is not the name of a shard", fault.Shorten(fmt.Sprint(t)))}
		}
		shards[file] = true
		if len(shards) > maxShards {
			return &FormatError{Problem: fmt.Sprintf("more than %d shards", maxShards)}
		}
		files[name] = file
		return nil
	})
}

// addShards maps all shards of an index and checks that the index speaks the truth.
func (c *Checkpoint) addShards(index []byte) error {
	files, err := parseIndex(index)
	if err != nil {
		return err
	}
	// The first tensor of each shard, for messages that are the same on every run.
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, ok := first[files[name]]; !ok {
			first[files[name]] = name
		}
	}
	if err := c.checkExtra(first); err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(first)) {
		err := c.addFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return &MissingError{Dir: c.dir, File: file, Tensor: first[file], Err: err}
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t, ok := c.tensors[name]
		if !ok {
			return &FormatError{File: IndexFile, Tensor: name, Problem: fmt.Sprintf("the index says it is in %q, which does not have it", files[name])}
		}
		if t.File != files[name] {
			return &FormatError{File: IndexFile, Tensor: name, Problem: fmt.Sprintf("the index says it is in %q, but it is in %q", files[name], t.File)}
		}
	}
	for _, name := range c.Names() {
		if _, ok := files[name]; !ok {
			return &FormatError{File: IndexFile, Tensor: name, Problem: fmt.Sprintf("%q has it, the index does not name it", c.tensors[name].File)}
		}
	}
	return nil
}

// checkExtra reports a file that is named like a shard and that the index does not
// name: a sign of two versions mixed in one folder.
func (c *Checkpoint) checkExtra(named map[string]string) error {
	shard, err := regexp.Compile(`^model-\d{5}-of-\d{5}\.safetensors$`)
	if err != nil {
		return err
	}
	names, err := c.folder.names()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if _, ok := named[name]; !ok && shard.MatchString(name) {
			return &FormatError{File: name, Problem: "named like a shard, but the index does not name it: the folder mixes two versions"}
		}
	}
	return nil
}
