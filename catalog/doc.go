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
// A release names a plugin with a version constraint. Plugins that are not built in
// stand in the catalog, too: a program for each kind of machine, one file on a hub
// whose size and sha256 are pinned. The versions of the protocol and of the operations
// are those of the zoo that it was built with (rpc.Protocol and program.Version), so that
// a host knows without fetching it whether it can be used.
//
//	plugins:
//	  - name: acme
//	    title: Models of a family
//	    licence: {spdx: Apache-2.0, url: "https://example.org/licence"}
//	    versions:
//	      - version: 1.0.0
//	        protocol: 1
//	        operations: 1
//	        binaries:
//	          - os: linux
//	            arch: amd64
//	            source:
//	              kind: hub
//	              repository: owner/name
//	              revision: 0123456789abcdef0123456789abcdef01234567
//	              files:
//	                - path: linux-amd64/acme
//	                  size: 15000000
//	                  sha256: …
//
// Whose catalog it is, a signature says: [ParseSigned] takes a catalog with the
// signature that minisign has made of its bytes, and the keys that the user trusts.
// The plugins of a catalog are programs, which run with the user's rights, so only
// those that are [Plugin].Signed should be installed. What [Builtin] has is.
//
// The checkpoint of the model "demo" is embedded as well: [Embedded] opens it, so
// that it takes the same road as every other model without a network.
package catalog
