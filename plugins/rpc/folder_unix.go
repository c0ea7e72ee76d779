//go:build unix

package rpc

import (
	"io/fs"
	"os"
	"syscall"
)

// isOwn reports whether a file belongs to this user.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == uint32(os.Geteuid())
}
