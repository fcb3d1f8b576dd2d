package keyring

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// maxKeyFile bounds what is read as a key file: a wrong path should not pull a
// database into memory.
const maxKeyFile = 4096

// LoadOrCreate reads the key file at path, or makes one with 256 random bits,
// readable by its owner alone, and reports whether it did. A file that others
// may read or its group may write is refused: such a key is nobody's secret.
// Processes that start at once agree on one key.
func LoadOrCreate(path string) (k *Keyring, created bool, err error) {
	k, err = load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	if err := create(path); err == nil {
		created = true
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, false, fmt.Errorf("make the key file %s: %w", path, err)
	}
	// Ours or a rival's: what is on the disk now is the key.
	k, err = load(path)
	return k, created, err
}

func load(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the key file %s is not a regular file", path)
	}
	if perm := info.Mode().Perm(); runtime.GOOS != "windows" && perm&0o027 != 0 {
		return nil, fmt.Errorf("the key file %s has mode %04o: others could read or change it; run `chmod 600 %s`, and make a new key if they may have",
			path, perm, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the key file: %w", err)
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("%s is no key file: more than %d bytes", path, maxKeyFile)
	}
	k, err := New(text)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return k, nil
}

// create writes the key under a temporary name and links it into place: the
// link fails when path exists, and nobody ever reads half a key. A crash before
// the link leaves a stray temporary file and no key; after it, the key is whole
// and on the disk.
func create(path string) error {
	var secret [MinSecret]byte
	rand.Read(secret[:])
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	tmp, err := os.CreateTemp(dir, base+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(hex.EncodeToString(secret[:]) + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		return createInPlace(path, secret[:]) // a file system without hard links
	}
	return syncDir(dir)
}

// createInPlace is create for file systems without hard links. A rival that
// reads too early finds a short key and refuses to start; it does not make a
// second one.
func createInPlace(path string, secret []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(hex.EncodeToString(secret) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the new name durable. Windows cannot sync a directory and does
// not need to.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
