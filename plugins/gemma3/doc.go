// Package gemma3 is the plugin for the text models of the Gemma 3 family, such as those of
// 270M and 1B parameters. It uses nothing but exported packages of this module, so that it
// is what a plugin in a module of its own looks like.
//
//	model.safetensors + config.json ... -\
//	                                      > Convert -> pack -> Record -> program
//	model.gguf -> config.json ... -------/
//
// # Checkpoints
//
// A checkpoint is a folder of safetensors with bfloat16 weights and the small files that
// belong to them, as Hugging Face's tools write it, or one GGUF file as llama.cpp's converter
// writes it, with numbers of any type that package gguf decodes. Of a GGUF file everything
// is taken: the configuration, generation defaults, tokenizer and chat template become the
// small files of the pack in Hugging Face's terms ([Describe]), so that one description of
// the forward pass serves both. Codes stay as they are. Norms have 1 added to their weights in
// GGUF files and in packs, and not in safetensors.
//
// # Forward pass
//
// The embedding of a token times the square root of its width. Then, in each layer, attention
// and a gated feed-forward network, each between two RMS norms and added to the hidden state.
// Queries and keys are normed head by head and rotated; scores are divided by the square root
// of query_pre_attn_scalar. Layers see the latest sliding_window positions, and every sixth,
// as a rule, all of them; the two kinds differ in the base of their rotation. The head is the
// embedding, unless the checkpoint has its own.
//
// The factor of the embedding is a float32, as in llama.cpp and in Hugging Face's float32;
// where all is bfloat16 there, it is rounded as well, to 25.25 from 25.298 for 270M. As the
// hidden state is normed before each use, that is no more than a slightly other weight of the
// embedding against what layers add; the activations of this module are finer than bfloat16.
package gemma3
