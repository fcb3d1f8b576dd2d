package target

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// An Identity is what a database is told from its copies by: names of signals and what they say. A signal that cannot be had is
// left out, and then tells nothing.
//
// PostgreSQL: the cluster's system identifier, which every copy made by dump and restore changes, and every copy of the files
// keeps, a standby too: a failover is no other database. The database's oid, which CREATE DATABASE … TEMPLATE changes.
// MySQL: the server's uuid, kept in its data directory, and the schema's name. MariaDB has no such uuid: its server_uid is made
// of the network card's address and the port, which a container gets anew each time it is made, so that it would cry wolf.
// SQLite: the file's inode and its path. A copy has another inode, and mostly another path; a file at its old path is taken for
// what it was, because many file systems give inodes anew when they are mounted. So one of the two is not enough to differ.
// All: the id that the installation of curfew's tables was given, which goes along with every copy and tells a new installation.
type Identity map[string]string

// The signals.
const (
	signalSystem       = "system"
	signalServer       = "server"
	signalDatabase     = "database"
	signalInstallation = "installation"
	signalFile         = "file"
	signalPath         = "path"
)

// Identity asks the database who it is. Curfew's tables need not be there.
func (db *DB) Identity(ctx context.Context) (Identity, error) {
	id := Identity{}
	var err error
	switch db.Engine {
	case Postgres:
		err = db.ask(ctx, id, signalDatabase, `SELECT oid::text FROM pg_database WHERE datname = current_database()`)
		if err == nil {
			err = db.ask(ctx, id, signalSystem, `SELECT system_identifier::text FROM pg_control_system()`)
		}
	case MySQL:
		err = db.ask(ctx, id, signalDatabase, `SELECT DATABASE()`)
		if err == nil && !db.server.MariaDB {
			err = db.ask(ctx, id, signalServer, `SELECT @@server_uuid`)
		}
	case SQLite:
		if file := fileIdentity(db.path); strings.HasPrefix(file, "file:") {
			id[signalFile] = file[strings.LastIndexByte(file, ':')+1:] // without the device, whose number a restart may change
		}
		path, perr := filepath.Abs(db.path)
		if real, rerr := filepath.EvalSymlinks(path); rerr == nil {
			path = real
		}
		if perr == nil {
			id[signalPath] = path
		}
	}
	if err == nil {
		err = db.ask(ctx, id, signalInstallation, "SELECT installation FROM "+dialectFor(db.server).own("layout"))
	}
	if err != nil {
		return nil, redact(err)
	}
	return id, nil
}

// ask reads one signal. What our role may not read, or is not there, tells nothing.
func (db *DB) ask(ctx context.Context, id Identity, signal, query string) error {
	var text sql.NullString
	err := db.SQL.QueryRowContext(ctx, query).Scan(&text)
	if class := classify(err); class == classPermission || class == classUndefined || errors.Is(err, sql.ErrNoRows) || hasCode(err, "1193") {
		return nil
	}
	if err == nil && text.String != "" {
		id[signal] = text.String
	}
	return err
}

// String is the identity as it is kept.
func (id Identity) String() string {
	b, err := json.Marshal(map[string]string(id))
	if err != nil {
		panic("target: " + err.Error()) // strings
	}
	return string(b)
}

// ParseIdentity reads what String wrote.
func ParseIdentity(text string) (Identity, error) {
	var id Identity
	if err := json.Unmarshal([]byte(text), &id); err != nil {
		return nil, fmt.Errorf("the identity of a database cannot be read: %w", err)
	}
	return id, nil
}

// signalWords say what a signal is of.
var signalWords = []struct{ signal, words string }{
	{signalSystem, "the cluster's system identifier"},
	{signalServer, "the server's uuid"},
	{signalDatabase, "the database"},
	{signalInstallation, "the installation of curfew's tables"},
}

// Differs says how a database that is now differs from the one on record: nothing when it is that one, as far as both tell.
func (id Identity) Differs(now Identity) []string {
	var out []string
	differs := func(signal string) bool {
		return id[signal] != "" && now[signal] != "" && id[signal] != now[signal]
	}
	for _, s := range signalWords {
		if differs(s.signal) {
			out = append(out, fmt.Sprintf("%s was %s and is %s", s.words, id[s.signal], now[s.signal]))
		}
	}
	// Where files have no inodes, the path alone has to do.
	if differs(signalPath) && (differs(signalFile) || id[signalFile] == "" || now[signalFile] == "") {
		out = append(out, fmt.Sprintf("the file was %s and is %s", id[signalPath], now[signalPath]))
	}
	return out
}

// A Claim is which ledger a database belongs to, and what the two have agreed on. It is kept on both sides.
type Claim struct {
	Ledger string // the ledger's id
	Epoch  string // random, made when the database was first seen or adopted
}

// ErrNoClaims says that there is nowhere to keep a claim: curfew was installed there before there were any, or our role may not.
var ErrNoClaims = errors.New("the database keeps no claim: curfew's table for it is missing, or our role may not use it")

// Claim reads the claim on the database; found is false when there is none yet.
func (db *DB) Claim(ctx context.Context) (c Claim, found bool, err error) {
	err = db.SQL.QueryRowContext(ctx, "SELECT ledger, epoch FROM "+dialectFor(db.server).own("claim")+" WHERE one = 1").Scan(&c.Ledger, &c.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return Claim{}, false, nil
	}
	return c, err == nil, claimError(err)
}

func claimError(err error) error {
	if class := classify(err); class == classUndefined || class == classPermission {
		return ErrNoClaims
	}
	return redact(err)
}

// TakeClaim makes the claim on the database unless there is one, and returns the one that stands.
func (db *DB) TakeClaim(ctx context.Context, c Claim) (Claim, error) {
	d := dialectFor(db.server)
	q := newQuery(d)
	if db.Engine == MySQL {
		q.add("INSERT IGNORE INTO ")
	} else {
		q.add("INSERT INTO ")
	}
	q.add(d.own("claim"), " (one, ledger, epoch, claimed_at) VALUES (1, ").arg(c.Ledger).add(", ").arg(c.Epoch).add(", ", now(db.Engine), ")")
	if db.Engine != MySQL {
		q.add(" ON CONFLICT DO NOTHING")
	}
	if _, err := db.SQL.ExecContext(ctx, q.String(), q.args...); err != nil {
		return Claim{}, claimError(err)
	}
	standing, found, err := db.Claim(ctx)
	if err == nil && !found {
		err = errors.New("the claim on the database vanished while it was made")
	}
	return standing, err
}

// ReplaceClaim makes the claim on the database, whoever has one.
func (db *DB) ReplaceClaim(ctx context.Context, c Claim) error {
	standing, err := db.TakeClaim(ctx, c)
	if err != nil || standing == c {
		return err
	}
	d := dialectFor(db.server)
	q := newQuery(d).add("UPDATE ", d.own("claim"), " SET ledger = ").arg(c.Ledger).add(", epoch = ").arg(c.Epoch).add(", claimed_at = ", now(db.Engine), " WHERE one = 1")
	_, err = db.SQL.ExecContext(ctx, q.String(), q.args...)
	return claimError(err)
}

// Receipts counts the receipts of a run; dropped says that they were many and are gone on purpose.
func (db *DB) Receipts(ctx context.Context, run string) (n int64, dropped bool, err error) {
	d := dialectFor(db.server)
	q := newQuery(d).add("SELECT (SELECT count(*) FROM ", d.own("receipt"), " WHERE run = ").arg(run).
		add("), (SELECT count(*) FROM ", d.own("tombstone"), " WHERE run = ").arg(run).add(")")
	var tombstones int64
	err = db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&n, &tombstones)
	return n, tombstones > 0, redact(err)
}

// NewestReceipt names the run of the receipt that was written last, "" when there is none.
func (db *DB) NewestReceipt(ctx context.Context) (run string, err error) {
	err = db.SQL.QueryRowContext(ctx, "SELECT run FROM "+dialectFor(db.server).own("receipt")+" ORDER BY started_at DESC LIMIT 1").Scan(&run)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return run, redact(err)
}
