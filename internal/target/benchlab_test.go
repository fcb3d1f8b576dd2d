package target

import (
	"testing"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/keyring"
)

type benchLab struct {
	lab
}

func newBenchLab(b *testing.B) *benchLab {
	b.Helper()
	db, err := Open(b.Context(), "lab", dbtest.Postgres(b), OpenOptions{MaxConns: 8})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	if err := db.Install(b.Context()); err != nil {
		b.Fatal(err)
	}
	keys, err := keyring.New([]byte("7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f"))
	if err != nil {
		b.Fatal(err)
	}
	return &benchLab{lab{engine: Postgres, db: db, keys: keys}}
}

func (l *benchLab) exec(b *testing.B, stmt string) {
	b.Helper()
	if _, err := l.db.SQL.ExecContext(b.Context(), stmt); err != nil {
		b.Fatalf("%s: %v", stmt, err)
	}
}
