package gguf

import (
	"fmt"
	"math"

	"github.com/zoo-sdk/zoo/internal/fault"
	"github.com/zoo-sdk/zoo/tokenizer"
)

// Keys of the vocabulary.
const (
	vocabularyKey  = "tokenizer.ggml.model"
	textsKey       = "tokenizer.ggml.tokens"
	scoresKey      = "tokenizer.ggml.scores"
	typesKey       = "tokenizer.ggml.token_type"
	spacePrefixKey = "tokenizer.ggml.add_space_prefix"
	addBOSKey      = "tokenizer.ggml.add_bos_token"
	addEOSKey      = "tokenizer.ggml.add_eos_token"
	bosKey         = "tokenizer.ggml.bos_token_id"
	eosKey         = "tokenizer.ggml.eos_token_id"
	eotKey         = "tokenizer.ggml.eot_token_id"
	eomKey         = "tokenizer.ggml.eom_token_id"
	unknownKey     = "tokenizer.ggml.unknown_token_id"
	paddingKey     = "tokenizer.ggml.padding_token_id"
	// sentencePiece is the kind of vocabulary that is read, by the name it has in files.
	sentencePiece = "llama"
)

// Vocabulary is the vocabulary of a model, and what its tokenizer does around a text.
type Vocabulary struct {
	// Pieces is what [tokenizer.CompilePieces] takes.
	Pieces tokenizer.Pieces
	// BOS and EOS are the ids of the pieces that begin and end a text, 1 and 2 where the
	// file names none.
	BOS, EOS int32
	// EOT and EOM are those that end a turn and a message, Unknown that of the piece for
	// what has none, and Padding that of the one that fills up, -1 where there is none.
	EOT, EOM, Unknown, Padding int32
	// AddBOS and AddEOS say that a text is to begin and to end with those.
	AddBOS, AddEOS bool
}

// Vocabulary reads the vocabulary, which must be of SentencePiece's kind: another one
// matches fault.ErrUsage. What a file leaves out is as llama.cpp takes it. A key that is
// missing or has a value of another kind is a *KeyError. The pieces themselves, and
// whether there are as many scores and types, are not checked.
func (f *File) Vocabulary() (*Vocabulary, error) {
	kind, err := f.Text(vocabularyKey)
	if err != nil {
		return nil, err
	}
	if kind != sentencePiece {
		return nil, fault.WithHint(fmt.Errorf("%q: key %q: a vocabulary of the kind %q is not supported, only %q: %w", f.Name, vocabularyKey, fault.Shorten(kind), sentencePiece, fault.ErrUsage), "choose a model whose tokenizer is SentencePiece's BPE")
	}
	v := &Vocabulary{}
	if v.Pieces.Texts, err = f.Texts(textsKey); err != nil {
		return nil, err
	}
	if v.Pieces.Scores, err = get(f, scoresKey, "an array of float32", func(v Value) ([]float32, bool) {
		return list(v, func(v Value) (float32, bool) {
			x, ok := v.Float()
			return float32(x), ok && v.Type() == Float32
		})
	}); err != nil {
		return nil, err
	}
	if v.Pieces.Types, err = get(f, typesKey, "an array of integers from 1 to 6", func(v Value) ([]tokenizer.PieceType, bool) {
		return list(v, func(v Value) (tokenizer.PieceType, bool) {
			n, ok := v.Int()
			return tokenizer.PieceType(n), ok && n >= int64(tokenizer.NormalPiece) && n <= int64(tokenizer.BytePiece)
		})
	}); err != nil {
		return nil, err
	}
	for _, flag := range []struct {
		key     string
		to      *bool
		missing bool
	}{{spacePrefixKey, &v.Pieces.SpacePrefix, true}, {addBOSKey, &v.AddBOS, true}, {addEOSKey, &v.AddEOS, false}} {
		*flag.to = flag.missing
		if _, ok := f.values[flag.key]; ok {
			if *flag.to, err = f.Bool(flag.key); err != nil {
				return nil, err
			}
		}
	}
	for _, id := range []struct {
		key     string
		to      *int32
		missing int32
	}{{bosKey, &v.BOS, 1}, {eosKey, &v.EOS, 2}, {eotKey, &v.EOT, -1}, {eomKey, &v.EOM, -1}, {unknownKey, &v.Unknown, -1}, {paddingKey, &v.Padding, -1}} {
		if *id.to, err = f.pieceID(id.key, id.missing, len(v.Pieces.Texts)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// pieceID returns the id that a key gives, or that it has where the key is missing or -1,
// which writers that know no negative numbers have as the largest of 32 bits.
func (f *File) pieceID(key string, missing int32, pieces int) (int32, error) {
	v, ok := f.values[key]
	if !ok {
		return missing, nil
	}
	if n, isInt := v.Int(); isInt && (n == -1 || n == math.MaxUint32) {
		return missing, nil
	}
	id, err := f.Uint(key)
	if err != nil {
		return 0, err
	}
	if id >= uint64(pieces) {
		return 0, &KeyError{File: f.Name, Key: key, Problem: fmt.Sprintf("it is %d, and there are %d pieces", id, pieces)}
	}
	return int32(id), nil
}
