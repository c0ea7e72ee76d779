// Package atomicfile is the one way in which files and folders come into being:
// a reader sees the old content or the new, never a half.
//
// A file is written beside its target under a name that starts with [TempPrefix],
// synced, closed, renamed over the target, and the folder is synced; a folder is
// filled under such a name and moved into place as a whole by [CommitDir]. What a
// killed process leaves behind has a recognisable name and is swept by
// [CleanTemps].
//
// Errors of the file system are classified by [MapError], here and by other
// packages, so that a full device is fault.ErrNoSpace and a refused operation
// fault.ErrNotPermitted on every system.
package atomicfile
