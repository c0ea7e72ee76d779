package packing

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/zoo-sdk/zoo/catalog"
	"github.com/zoo-sdk/zoo/checkpoint"
	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
	"github.com/zoo-sdk/zoo/zoo"
)

// TokenizerSource is the file of a checkpoint that [Tokenizer] compiles.
const TokenizerSource = "tokenizer.json"

// maxSpareTokens is how many rows the embedding may have beyond the tokenizer's
// pieces: some models round the number of rows up. With more, the tokenizer is
// that of another model.
const maxSpareTokens = 1024

// Files gives the content of small files of a checkpoint, as a checkpoint.Checkpoint does.
// One that is not there is fault.ErrNotFound.
type Files interface {
	File(name string) ([]byte, error)
}

// ReadFiles reads the small files that go into a pack as they are: those that must be
// there, and those that may. All but the chat template must be JSON, else they are a
// *checkpoint.FormatError.
func ReadFiles(from Files, required, optional []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range slices.Concat(required, optional) {
		data, err := from.File(name)
		if errors.Is(err, fault.ErrNotFound) && slices.Contains(optional, name) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if name != zoo.TemplateFile && !json.Valid(data) {
			return nil, &checkpoint.FormatError{File: name, Problem: "not JSON"}
		}
		files[name] = data
	}
	return files, nil
}

// Tokenizer compiles a checkpoint's tokenizer.json and checks that it is the model's, whose
// tables have that many rows: see [CheckTokenizer].
func Tokenizer(from Files, rows int) ([]byte, error) {
	source, err := from.File(TokenizerSource)
	if err != nil {
		return nil, err
	}
	compiled, err := tokenizer.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", TokenizerSource, err)
	}
	return compiled, CheckTokenizer(compiled, rows)
}

// CheckTokenizer reports a compiled tokenizer that is not that of a model whose tables have
// so many rows, as a *checkpoint.TokenizerError. Markers for what is not text, such as
// images, may lie beyond the tables, as no text gives them, and tables may have some rows
// to spare.
func CheckTokenizer(compiled []byte, rows int) error {
	t, err := tokenizer.Open(compiled)
	if err != nil {
		return fmt.Errorf("compiled tokenizer: %w", err)
	}
	for id := rows; id < t.VocabSize(); id++ {
		if t.Piece(int32(id)) != "" && !t.IsMarker(int32(id)) {
			return &checkpoint.TokenizerError{Pieces: t.VocabSize(), Rows: rows}
		}
	}
	if t.VocabSize()+maxSpareTokens < rows {
		return &checkpoint.TokenizerError{Pieces: t.VocabSize(), Rows: rows}
	}
	return nil
}

// Sources returns those of the given files that a conversion reads, so that others in
// the same folder do not change the pack. That all of them are given is what makes the
// pack's identity tell what it was made of; a file that is not is fault.ErrUsage.
func Sources(given []catalog.File, used ...string) ([]catalog.File, error) {
	var sources []catalog.File
	for _, name := range used {
		i := slices.IndexFunc(given, func(f catalog.File) bool { return f.Path == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: the conversion reads %q, which is not among the sources it was given", fault.ErrUsage, name)
		}
		sources = append(sources, given[i])
	}
	return sources, nil
}
