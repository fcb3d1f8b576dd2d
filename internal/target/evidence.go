package target

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// A Fate is what a receipt tells of a row that is not there any more.
type Fate struct {
	Run    string
	Policy string
	At     time.Time // when the batch was completed
	Was    string    // deleted or archived
}

// evidenceChunk is how many receipts are searched by one statement.
const evidenceChunk = 200

// explainGone names a row that is not there, and looks for the run that deleted it.
func (j *Job) explainGone(ctx context.Context, keys []tuple, a *Answers) error {
	var hashes [][16]byte
	for _, k := range keys {
		k, err := j.canonical(ctx, k)
		if err != nil {
			return err
		}
		hashes = append(hashes, j.rowHash(k))
	}
	a.Row = fmt.Sprintf("%x", hashes[0][:])
	fate, hash, err := j.fate(ctx, hashes)
	switch classify(err) {
	case classNone:
	case classUndefined, classPermission: // no receipts here, or none for us to read: then they tell nothing
		return nil
	default:
		return err
	}
	if fate != nil {
		a.Fate, a.Row = fate, fmt.Sprintf("%x", hash[:])
	}
	return nil
}

// canonical writes a key as the database would: an upper-case uuid is the same row, and would have another hash.
func (j *Job) canonical(ctx context.Context, k tuple) (tuple, error) {
	if j.db.Engine != Postgres {
		return k, nil
	}
	q := newQuery(j.d).add("SELECT ")
	text, dest := make([]string, len(k)), make([]any, len(k))
	for i, c := range j.key {
		if i > 0 {
			q.add(", ")
		}
		q.add("(")
		j.d.bind(q, c, k[i])
		q.add(")::text")
		dest[i] = &text[i]
	}
	if err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(dest...); err != nil {
		return nil, err
	}
	out := make(tuple, len(k))
	for i := range k {
		out[i] = value{textValue, text[i]}
	}
	return out, nil
}

// fate searches the receipts of the table for a deleted row with one of the hashes, the newest first. The database looks
// through the evidence, so that only receipts with a hit are sent.
func (j *Job) fate(ctx context.Context, hashes [][16]byte) (*Fate, [16]byte, error) {
	keys, err := j.receiptsOfTable(ctx)
	if err != nil {
		return nil, [16]byte{}, err
	}
	for chunk := range slices.Chunk(keys, evidenceChunk) {
		found, hash, err := j.searchReceipts(ctx, chunk, hashes)
		if found != nil || err != nil {
			return found, hash, err
		}
	}
	return nil, [16]byte{}, nil
}

func (j *Job) receiptsOfTable(ctx context.Context) ([][]byte, error) {
	q := newQuery(j.d).add("SELECT batch_key FROM ", j.d.own("receipt"), " WHERE relation = ").arg(j.p.Table).add(" AND key_id = ").arg(j.keys.ID()).
		add(" AND completed_at IS NOT NULL ORDER BY completed_at DESC, seq DESC")
	rows, err := j.db.SQL.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys [][]byte
	for rows.Next() {
		var k []byte
		if err := rows.Scan(&k); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// searchReceipts answers the newest hit among these receipts.
func (j *Job) searchReceipts(ctx context.Context, keys [][]byte, hashes [][16]byte) (*Fate, [16]byte, error) {
	at := map[Engine]string{
		Postgres: "to_char(completed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')", MySQL: "CAST(completed_at AS CHAR)", SQLite: "+completed_at",
	}[j.db.Engine]
	q := newQuery(j.d).add("SELECT run, policy, ", at, ", evidence FROM ", j.d.own("receipt"), " WHERE batch_key IN (")
	for i, k := range keys {
		if i > 0 {
			q.add(", ")
		}
		q.arg(k)
	}
	q.add(") AND (")
	for i, h := range hashes {
		if i > 0 {
			q.add(" OR ")
		}
		switch j.db.Engine {
		case Postgres:
			q.add("position(").arg(h[:]).add("::bytea IN evidence) > 0")
		case MySQL:
			q.add("LOCATE(").arg(h[:]).add(", evidence) > 0")
		default:
			q.add("instr(evidence, ").arg(h[:]).add(") > 0")
		}
	}
	rows, err := j.db.SQL.QueryContext(ctx, q.add(") ORDER BY completed_at DESC, seq DESC").String(), q.args...)
	if err != nil {
		return nil, [16]byte{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var f Fate
		var when string
		var evidence sql.RawBytes
		if err := rows.Scan(&f.Run, &f.Policy, &when, &evidence); err != nil {
			return nil, [16]byte{}, err
		}
		hash, was := removedIn(evidence, hashes)
		if was == "" {
			continue
		}
		f.Was = was
		if f.At, err = time.Parse("2006-01-02 15:04:05.999999", when); err != nil {
			return nil, hash, fmt.Errorf("a receipt of run %.12s was completed at %q", f.Run, when)
		}
		return &f, hash, nil
	}
	return nil, [16]byte{}, rows.Err()
}

// removedIn reads evidence, as Job.evidence writes it, and says which of the hashes is there as a row that was deleted or archived,
// and which it was. Evidence that ends too early is read as far as it goes.
func removedIn(evidence []byte, hashes [][16]byte) (hash [16]byte, was string) {
	for len(evidence) >= 5 {
		code, n := int(evidence[0]), int64(binary.BigEndian.Uint32(evidence[1:]))
		evidence = evidence[5:]
		for ; n > 0 && len(evidence) >= len(hash); n-- {
			copy(hash[:], evidence)
			if code < len(outcomeCodes) && (outcomeCodes[code] == "deleted" || outcomeCodes[code] == "archived") && slices.Contains(hashes, hash) {
				return hash, outcomeCodes[code]
			}
			evidence = evidence[len(hash):]
		}
	}
	return [16]byte{}, ""
}
