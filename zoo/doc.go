// Package zoo defines what the rest of the module is built around: the plugin
// interface, packs, receipts and the store that keeps them.
//
// A [Plugin] turns a checkpoint into a pack, with a [PackWriter], and a pack into a
// program. A [Registry] is a list of plugins. A [Pack] is a folder that is mapped
// and read in place:
//
//	pack.json            the manifest: files, tensors, constants, sources
//	pack.digest          "sha256:", the digest of pack.json, and a newline
//	weights.safetensors  the tensors
//	config.json, …       further files, all listed in the manifest
//	gate.json            the receipt; no part of the pack
//
// The sha256 of pack.json is the pack's digest. Equal sources, recipe and plugin
// version give equal bytes on every machine.
//
// # The weights file
//
// The file is safetensors as package checkpoint lays it out: the tensors of the
// manifest in its order, each as U8 with its size in bytes as its shape, at
// multiples of 64 bytes; tensors of zeros, named "__padding__.N", between them where
// that needs any, and at the end up to a multiple of 16 KiB; the data starts at such
// a multiple as well. So the header follows from the manifest, to the byte.
//
// # The store
//
// A [Store] is a folder (ZOO_HOME):
//
//	packs/HEX/                        a pack by its digest, read-only files
//	models/NAME/VERSION.json          what is installed: a Record
//	checkpoints/NAME/VERSION/         source files, whole or in part
//	references/NAME/VERSION/          adopted reference values: reference.json and the folder that it names
//	plugins/NAME/VERSION/             a plugin: plugin.json, a PluginRecord, and its program, read-only
//	plugins/NAME/.fetched/VERSION/    its program, whole or in part, before it is installed
//	synthetic/NAME/                   a pack of random weights in a model's shapes, which the sdk makes
//	state/stamps/HEX.json             which packs have been verified, and how their files looked
//	state/receipts/HEX.json           receipts of packs in folders that cannot be written
//	state/receipt.key                 the key that authenticates this machine's receipts
//	locks/NAME@VERSION.lock           held by whoever fetches, converts or removes a release
//	locks/.plugin-NAME.lock           held by whoever installs or removes a version of a plugin
//	locks/.packs.lock                 held while packs and records appear or disappear
//	tmp/                              what is not complete yet, or being deleted
//
// Everything appears by renaming something complete, and a record is written after
// its pack and removed before it. So a process that is killed leaves the old state
// or the new one, and at worst a pack or reference values without a record or a
// folder in tmp, which the next one that takes a lock sweeps.
package zoo
