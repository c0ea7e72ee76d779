// Package engine turns token ids into token ids: it feeds prompts to a compiled
// program, keeps sequences and their caches, and samples.
//
// A [Model] is a program on a backend. A [Session] is one sequence: it feeds
// tokens, gives logits, and can be rewound so that a common prefix is computed
// once. Many sessions share a model from many goroutines; their steps take turns.
// A [Sampler] picks tokens. [Session.Generate] ties them together, or leaves it to
// a backend that can do so itself to take several steps and pick between them.
//
// Engine knows no text, no model family and no device.
package engine
