// Package tokenizer turns text into the token ids of a model and back, by the
// byte-fallback BPE of the Gemma family, with the very ids of the Hugging Face
// tokenizers library or, for a vocabulary of SentencePiece, of that.
//
// # Data flow
//
//	tokenizer.json --Compile-------> compiled bytes --Open--> Tokenizer
//	vocabulary     --CompilePieces-/
//	text, Markers  --Encode---> ids
//	ids            --Decode, Stream--> text
//
// Compile is done once, when a checkpoint is converted. It refuses every
// tokenizer.json whose pipeline is not exactly the one below, as CompilePieces refuses
// a vocabulary that would need another, and its result is
// the same on every machine. Open uses that result in place, typically as a
// memory-mapped file: no JSON is parsed and no table is built.
//
// # Encoding
//
// Added tokens (<bos>, <|turn>, runs of newlines) are cut out of the raw text,
// the longest of the leftmost first. In what lies between them every space
// becomes "▁", every character becomes its piece or, for want of one, the
// pieces of its UTF-8 bytes, and pairs of neighbours are merged by the rules of
// the vocabulary, the lowest rank first, leftmost first.
//
// The rules apply to the whole stretch of text, not word by word. Encode still
// goes word by word, as Compile notes which two characters a rule may join at
// all: where no rule can, no merge can ever cross, and the text may be cut. A
// word that is a piece into which its own characters merge is looked up; short
// words are merged by search, long ones with a heap.
//
// # Markers
//
// Text that people write must not turn into control tokens. Encode therefore
// takes a Markers value: with MarkersAreText no added token comes out, neither
// because its spelling is recognised nor as the outcome of merges, except for
// those that consist of white space: the runs of newlines and tabs are how the
// model knows plain text. SentencePiece tells both kinds apart itself: its control
// pieces are markers, and its user-defined ones, among which may be tags such as
// <b>, belong to every text. EncodeParts does the same for text that is composed
// of parts of both kinds, without leaving a trace where they meet.
//
// # llama.cpp
//
// llama.cpp reads SentencePiece's vocabularies, too, and gives the same ids but for
// two things, in which this package is with SentencePiece: where a text itself has
// "▁", it takes a run of them for no spaces, and some user-defined pieces that look like
// the end of a text, such as </s>, count as control pieces there. Of bytes that are
// not valid UTF-8 it keeps the bytes; SentencePiece makes one U+FFFD of each, where
// Encode makes one of several that begin a character.
package tokenizer
