package target

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// errFull says that as many batches are at work in the database as may be. Nothing was begun.
var errFull = errors.New("as many batches as max_workers allows are at work in the database")

// seatLock is the class of the advisory locks that are the seats (PostgreSQL).
const seatLock = "1668244083" // "curs"

// begin opens the transaction of a batch, in one of the database's seats: it has as many as the policy file's max_workers, for all
// processes together. A seat is a lock of the server's that lives as long as the transaction (PostgreSQL) or the session (MySQL): no
// process that was frozen or taken for dead loses it while its batch may still commit, and none that died keeps it. SQLite has one
// writer. The function it returns is to be called after the transaction's end, and may be called again.
func (j *Job) begin(ctx context.Context) (*sql.Tx, func(), error) {
	if j.db.Engine == MySQL && j.db.seats > 0 {
		return j.beginMySQL(ctx)
	}
	tx, err := j.db.SQL.BeginTx(ctx, nil)
	if err != nil || j.db.seats == 0 {
		return tx, func() {}, err
	}
	var seat int
	err = tx.QueryRowContext(ctx, "SELECT COALESCE((SELECT s FROM generate_series(1, "+itoa(j.db.seats)+") AS s WHERE pg_try_advisory_xact_lock("+seatLock+", s) LIMIT 1), 0)").Scan(&seat)
	if err == nil && seat == 0 {
		err = errFull
	}
	if err != nil {
		_ = tx.Rollback()
		return nil, nil, err
	}
	return tx, func() {}, nil
}

// beginMySQL keeps the session until the seat is free again: it is the session's, and not the transaction's.
func (j *Job) beginMySQL(ctx context.Context) (*sql.Tx, func(), error) {
	conn, err := j.db.SQL.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	leave := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if _, err := conn.ExecContext(ctx, "DO RELEASE_ALL_LOCKS()"); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the session ends, and the seat with it
		}
		conn.Close()
	})
	var q strings.Builder
	q.WriteString("SELECT CASE")
	for n := range j.db.seats {
		fmt.Fprintf(&q, " WHEN GET_LOCK(CONCAT('curfew_', CRC32(DATABASE()), '_%d'), 0) = 1 THEN %d", n+1, n+1)
	}
	var seat int
	var tx *sql.Tx
	if err = conn.QueryRowContext(ctx, q.String()+" ELSE 0 END").Scan(&seat); err == nil && seat == 0 {
		err = errFull
	}
	if err == nil {
		tx, err = conn.BeginTx(ctx, nil)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return tx, leave, nil
}

// untilSeat is how long to wait before asking for a seat again. Batches are short, and there is no line to stand in.
func untilSeat() time.Duration { return time.Duration(20+rand.IntN(40)) * time.Millisecond }
