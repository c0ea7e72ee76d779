package download

import (
	"context"
	"errors"
)

// Fetch brings the files of a request into its folder and returns what it learnt
// about them. Files that are there already and right (by sha256, or by
// [Request.Trust]) stay; a part of an earlier, interrupted call is resumed. Files of
// local origins are hard-linked when that works, which shares them with their owner,
// else copied; what is copied or downloaded is read-only.
//
// On error the files that are complete stay, so do part files worth resuming, and
// nothing incomplete bears a file's own name. Errors are [*DigestError],
// [*SizeError], [*RevisionError], [*MissingError], [*AccessError], [*NetworkError],
// those of package internal/atomicfile for the disk, and the cause of ctx.
//
// The caller holds a lock for the folder; see the package comment.
func Fetch(ctx context.Context, req Request) (*Result, error) {
	return nil, errors.ErrUnsupported
}
