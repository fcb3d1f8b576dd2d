package keyring

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// RowHasher names the rows of one table: HMAC-SHA-256 under the table's own
// key, truncated to 16 bytes. Whoever holds the installation's key can try all
// small integers; nobody else learns anything from a hash, and the same key
// value in two tables has two names.
//
// A RowHasher keeps its state between rows and allocates nothing per row. It
// belongs to one goroutine.
type RowHasher struct {
	mac hash.Hash
	sum [sha256.Size]byte // Sum's target: a local one would escape through the interface
}

// RowHasher returns a hasher for a table of a configured database. The names
// are part of the key, so renaming either renames every row.
func (k *Keyring) RowHasher(database, table string) *RowHasher {
	info := []byte("curfew row hash v1")
	for _, s := range []string{database, table} {
		info = binary.BigEndian.AppendUint64(info, uint64(len(s)))
		info = append(info, s...)
	}
	key, err := k.derive(string(info), sha256.Size)
	if err != nil {
		// hkdf fails only for lengths beyond 255 hashes, or in a FIPS mode that
		// forbids secrets shorter than New accepts.
		panic("keyring: " + err.Error())
	}
	h := &RowHasher{mac: hmac.New(sha256.New, key)}
	// The first Reset makes hmac keep its padded states; from then on a short
	// row costs two SHA-256 blocks.
	h.mac.Reset()
	return h
}

// Sum writes the hash of a row's canonical key into dst.
func (h *RowHasher) Sum(dst *[16]byte, canonical []byte) {
	h.mac.Reset()
	h.mac.Write(canonical)
	h.mac.Sum(h.sum[:0])
	copy(dst[:], h.sum[:])
}
