//go:build unix

package target

import (
	"fmt"
	"os"
	"syscall"
)

// fileIdentity tells one file from another that took its name. A copy put in its place has another inode.
func fileIdentity(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("file:%d:%d", st.Dev, st.Ino)
}
