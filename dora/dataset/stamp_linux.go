package dataset

import (
	"os"
	"syscall"
)

// changeOf returns a file's ctime in ns and its inode.
func changeOf(st os.FileInfo) (changed int64, inode uint64) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return sys.Ctim.Nano(), sys.Ino
}
