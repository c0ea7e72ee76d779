// Package catalog says which models exist, in which versions, and from which
// files each version is made.
//
// A catalog is a YAML document. [Parse] reads one strictly: an unknown field, a
// path that leaves its folder or a version that is not semantic is an error, and
// so is a document that uses anchors or is absurdly large or deep. [Builtin] is
// the catalog that is embedded in the binary. The way of a name is
//
//	"gemma-4-e2b@^1.2" -> ParseRef -> Catalog.Resolve -> Release -> Release.Source.Files
//
// A release pins its files by size and sha256 where they are known. Where only
// the server knows them, the values seen at the first download are recorded by
// the caller and bind from then on.
//
// The checkpoint of the model "demo" is embedded as well: [Embedded] opens it, so
// that it takes the same road as every other model without a network.
package catalog
