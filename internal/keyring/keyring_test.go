package keyring

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

const testSecret = "6c1d3b0a8f5e2497c0ffee00112233445566778899aabbccddeeff0123456789"

func testRing(t testing.TB) *Keyring {
	t.Helper()
	k, err := New([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNewForms(t *testing.T) {
	raw, _ := hex.DecodeString(testSecret)
	want := testRing(t).ID()
	for name, form := range map[string]string{
		"hex":               testSecret,
		"hex upper":         strings.ToUpper(testSecret),
		"hex with newline":  testSecret + "\n",
		"hex with spaces":   "  " + testSecret + "\r\n",
		"base64":            base64.StdEncoding.EncodeToString(raw),
		"base64 no padding": base64.RawStdEncoding.EncodeToString(raw),
		"base64 url":        base64.URLEncoding.EncodeToString(raw) + "\n",
		"raw":               string(raw),
	} {
		k, err := New([]byte(form))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if k.ID() != want {
			t.Errorf("%s: id %s, want %s", name, k.ID(), want)
		}
	}
	// Raw bytes are not trimmed: the newline is part of the secret.
	k, err := New(append(raw, '\n'))
	if err != nil || k.ID() == want {
		t.Errorf("raw bytes with a trailing newline: id %s, err %v: was trimmed", k.ID(), err)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, secret := range map[string]string{
		"empty":                   "",
		"white space":             strings.Repeat(" \n", 40),
		"short raw":               "correct horse battery staple",
		"31 raw bytes":            "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x20\x21\x22\x23\x24\x25\x26\x27\x28\x29\x30\x31",
		"32 hex digits":           "00112233445566778899aabbccddeeff",
		"openssl rand -base64 24": "k3Jx0Zt8Q5m1Vb7Yw2Lr9Nc4Hd6Pf0Sa",
		"zeroes":                  strings.Repeat("00", 32),
		"repeated word":           strings.Repeat("changeme-", 8),
	} {
		if _, err := New([]byte(secret)); !errors.Is(err, ErrWeakSecret) {
			t.Errorf("%s: err = %v, want ErrWeakSecret", name, err)
		} else if secret != "" && strings.Contains(err.Error(), strings.TrimSpace(secret)) && strings.TrimSpace(secret) != "" {
			t.Errorf("%s: the message repeats the secret: %v", name, err)
		}
	}
}

func TestSealRoundTrip(t *testing.T) {
	k := testRing(t)
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		context := rapid.SliceOf(rapid.Byte()).Draw(t, "context")
		sealed := k.Seal(plain, context)
		got, err := k.Open(sealed, context)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("open: %x, %v; want %x", got, err, plain)
		}
		if bytes.Equal(sealed, k.Seal(plain, context)) {
			t.Fatal("two seals of one text are equal")
		}
		if _, err := k.Open(sealed, append(context, 0)); !errors.Is(err, ErrSeal) {
			t.Fatalf("opened in another context: %v", err)
		}
		i := rapid.IntRange(0, len(sealed)-1).Draw(t, "flip")
		sealed[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := k.Open(sealed, context); err == nil {
			t.Fatalf("opened with byte %d flipped", i)
		}
		n := rapid.IntRange(0, len(sealed)-1).Draw(t, "cut")
		if _, err := k.Open(sealed[:n], context); err == nil {
			t.Fatalf("opened cut to %d bytes", n)
		}
	})
}

func TestOpenOtherKey(t *testing.T) {
	var secret [32]byte
	rand.Read(secret[:])
	other, err := New(secret[:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testRing(t).Open(other.Seal([]byte("x"), nil), nil); !errors.Is(err, ErrOtherKey) {
		t.Fatalf("err = %v, want ErrOtherKey", err)
	}
}

func TestSealHidesTheText(t *testing.T) {
	plain := bytes.Repeat([]byte("session-4711"), 100)
	if bytes.Contains(testRing(t).Seal(plain, nil), []byte("4711")) {
		t.Fatal("the sealed bytes contain the text")
	}
}

// TestMACParts: moving a border between parts, or the label into a part, gives
// another MAC.
func TestMACParts(t *testing.T) {
	k := testRing(t)
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "a")
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "b")
		sum := k.MAC("batch", a, b)
		if sum != k.MAC("batch", a, b) {
			t.Fatal("not deterministic")
		}
		cut := len(a) - 1
		for name, other := range map[string][32]byte{
			"border moved": k.MAC("batch", a[:cut], append(a[cut:len(a):len(a)], b...)),
			"joined":       k.MAC("batch", append(a[:len(a):len(a)], b...)),
			"empty part":   k.MAC("batch", a, b, nil),
			"label":        k.MAC("batch"+string(a), b),
		} {
			if other == sum {
				t.Fatalf("%s: same MAC", name)
			}
		}
	})
}

// TestRowHashIsHMAC compares with a plain HMAC under the derived key, and the
// reuse of state with a fresh hasher.
func TestRowHashIsHMAC(t *testing.T) {
	k := testRing(t)
	info := "curfew row hash v1" +
		"\x00\x00\x00\x00\x00\x00\x00\x07library" + "\x00\x00\x00\x00\x00\x00\x00\x04fine"
	key, err := k.derive(info, 32)
	if err != nil {
		t.Fatal(err)
	}
	reused := k.RowHasher("library", "fine")
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOf(rapid.Byte()).Draw(t, "row")
		m := hmac.New(sha256.New, key)
		m.Write(row)
		var got [16]byte
		reused.Sum(&got, row)
		if !bytes.Equal(got[:], m.Sum(nil)[:16]) {
			t.Fatalf("row %x: %x, want %x", row, got, m.Sum(nil)[:16])
		}
	})
}

func TestRowHashPerTable(t *testing.T) {
	k := testRing(t)
	seen := map[[16]byte]string{}
	for _, name := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"", "abc"}, {"a", "b"}} {
		var sum [16]byte
		k.RowHasher(name[0], name[1]).Sum(&sum, []byte("4711"))
		if was, dup := seen[sum]; dup {
			t.Errorf("%q and %s share a key", name, was)
		}
		seen[sum] = name[0] + "/" + name[1]
	}
}

func TestRowHashAllocatesNothing(t *testing.T) {
	h := testRing(t).RowHasher("library", "fine")
	row := []byte("4711")
	var sum [16]byte
	if n := testing.AllocsPerRun(100, func() { h.Sum(&sum, row) }); n != 0 {
		t.Fatalf("%v allocations a row", n)
	}
}

func TestLoadOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curfew.key")
	k, created, err := LoadOrCreate(path)
	if err != nil || !created {
		t.Fatalf("created %v, err %v", created, err)
	}
	again, created, err := LoadOrCreate(path)
	if err != nil || created || again.ID() != k.ID() {
		t.Fatalf("again: created %v, id %s, want %s, err %v", created, again.ID(), k.ID(), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, err %v", info.Mode(), err)
	}
	left, _ := filepath.Glob(path + ".new-*")
	if len(left) != 0 {
		t.Fatalf("temporary files left: %v", left)
	}
}

func TestLoadOrCreateAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curfew.key")
	ids := make([]string, 20)
	made := make([]bool, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			k, created, err := LoadOrCreate(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i], made[i] = k.ID(), created
		})
	}
	wg.Wait()
	n := 0
	for i := range ids {
		if ids[i] != ids[0] {
			t.Errorf("ids %s and %s", ids[i], ids[0])
		}
		if made[i] {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d created the key, want 1", n)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"world-readable": {testSecret, 0o644, "chmod 600"},
		"others execute": {testSecret, 0o601, ""},
		"group-writable": {testSecret, 0o660, "chmod 600"},
		"empty":          {"", 0o600, "too weak"},
		"a database":     {strings.Repeat("x", 5000), 0o600, "no key file"},
	} {
		path := filepath.Join(t.TempDir(), "k")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, created, err := LoadOrCreate(path)
		if err == nil || created || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: created %v, err %v, want %q", name, created, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), testSecret) {
			t.Errorf("%s: the message repeats the key", name)
		}
	}
	if _, _, err := LoadOrCreate(filepath.Join(t.TempDir(), "no", "such", "k")); err == nil {
		t.Error("a missing directory: no error")
	}
	if _, _, err := LoadOrCreate(t.TempDir()); err == nil {
		t.Error("a directory: no error")
	}
	group := filepath.Join(t.TempDir(), "k")
	if err := os.WriteFile(group, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(group, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadOrCreate(group); err != nil {
		t.Errorf("readable by the group of operators: %v", err)
	}
}
