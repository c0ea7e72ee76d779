// Package download fetches the files of a catalog's source into a folder, from the
// first of several origins that has them.
//
//	catalog.Source ─┐
//	origins ────────┴─> Fetch ─> folder of verified files + what was learnt about them
//
// An [Origin] hands out one file at a time: [Embedded] and [FS] from memory, [Dir]
// from a folder, [HubCache] from the cache that the hub's own tools keep, and [Hub]
// over HTTP. [StandardOrigins] lists them in the usual order.
//
// [Fetch] does everything that must not depend on the origin. It writes to a part
// file beside the target and resumes it, checks size and sha256 while the bytes
// stream, retries what may pass, gives up on what will not, and lets a file appear
// under its own name only when it is complete and right. Where the catalog does not
// know a file's sha256, Fetch returns what it found, for the caller to record: from
// then on it binds.
//
// Fetch takes no lock. Two calls at once for one folder would write to one part
// file, so the caller holds a lock for each folder (internal/filelock).
package download
