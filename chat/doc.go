// Package chat renders conversations with the chat template of a checkpoint: the
// Jinja file that turns messages and tools into the text that a model was trained
// on.
//
//	source -> Parse -> Template -> Render(messages, options) -> []Segment -> tokenizer
//
// # Text from people is never a control token
//
// Rendering yields segments: single control tokens, which the template wrote,
// and runs of plain text between them. Templates are free to cut, search, join
// and escape what messages say, so where a text came from cannot be told from the
// text. Instead every string value carries, for each of its bytes, whether the
// template, a person or the engine wrote it (see text), and every operation
// passes that on. Comparing, searching and measuring see the characters alone, so
// that templates work as in Python, those included that look for control tokens
// in an assistant's message in order to take its thinking out. Only in the rendered
// text are control tokens looked for, and only where nobody but the template could
// have written them (see markerSet).
//
// # Jinja
//
// A template is lexed and split into statements by gonja. Its expressions are
// parsed, and all of it is run, by this package, because a library that works on
// plain strings cannot keep origins apart, gonja's evaluator cannot be bounded, and
// both differ from Python where templates notice: conditional expressions inside
// others, undefined against None, the order of keys, errors. What templates can
// use is what transformers gives them: Jinja2's sandbox with trim_blocks,
// lstrip_blocks, loop controls and the generation block, raise_exception,
// strftime_now and its tojson; but not the filters random, pprint, striptags,
// urlize, wordwrap and xmlattr, nor lipsum, which are for web pages.
//
// # Untrusted templates
//
// A template comes from a stranger. It can read its variables, and nothing else:
// there are no files, other templates or Go values to reach. Rendering runs in the
// goroutine of its caller; every step of it counts towards limits on time, memory,
// output and depth (see Limits), and looks at the context. Sources are limited in
// size and nesting.
package chat
