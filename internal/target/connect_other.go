//go:build !unix

package target

import "path/filepath"

// fileIdentity is the best that can be said portably: where the file is.
func fileIdentity(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return "path:" + abs
}
