package target

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// A valueKind says how a value came from the driver and goes back to it.
type valueKind byte

const (
	nullValue  valueKind = 'n'
	textValue  valueKind = 't' // goes back as text, cast to the column's type by the dialect
	intValue   valueKind = 'i' // decimal text of a whole number
	floatValue valueKind = 'f' // SQLite only: shortest text that round trips
	bytesValue valueKind = 'b' // raw bytes
)

// A value is one column of one row on its way out of the database and back into it: never compared here, only carried.
type value struct {
	kind valueKind
	s    string
}

// A tuple is a key, or a trigger value followed by a key.
type tuple []value

// appendCanonical appends an unambiguous encoding of the tuple: what a row's keyed hash and a batch key are computed over.
func (t tuple) appendCanonical(b []byte) []byte {
	for _, v := range t {
		b = append(b, byte(v.kind))
		b = binary.AppendUvarint(b, uint64(len(v.s)))
		b = append(b, v.s...)
	}
	return b
}

// id is the tuple as a map key.
func (t tuple) id() string { return string(t.appendCanonical(nil)) }

// encodeTuples writes tuples so that decodeTuples reads them back. The text is sealed before it leaves the process.
func encodeTuples(ts []tuple) []byte {
	b := binary.AppendUvarint(nil, uint64(len(ts)))
	for _, t := range ts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = t.appendCanonical(b)
	}
	return b
}

var errBadTuples = errors.New("stored key list cannot be read")

func decodeTuples(b []byte) ([]tuple, error) {
	all := string(b) // one copy, which the values share
	next := func() (int, error) {
		n, used := binary.Uvarint(b)
		// A length is never larger than what follows it: each element takes at least one byte.
		if used <= 0 || n > uint64(len(b)-used) {
			return 0, errBadTuples
		}
		b = b[used:]
		return int(n), nil
	}
	if len(b) == 0 {
		return nil, nil
	}
	n, err := next()
	if err != nil {
		return nil, err
	}
	ts := make([]tuple, 0, n)
	slab := []value{}
	for i := range n {
		width, err := next()
		if err != nil {
			return nil, err
		}
		if len(slab)+width > cap(slab) {
			slab = make([]value, 0, max(width, min(width*(n-i), len(b))))
		}
		slab = slab[:len(slab)+width]
		t := tuple(slab[len(slab)-width : len(slab) : len(slab)])
		for i := range t {
			if len(b) == 0 {
				return nil, errBadTuples
			}
			t[i].kind = valueKind(b[0])
			b = b[1:]
			size, err := next()
			if err != nil {
				return nil, err
			}
			t[i].s, b = all[len(all)-len(b):len(all)-len(b)+size], b[size:]
		}
		ts = append(ts, t)
	}
	if len(b) != 0 {
		return nil, errBadTuples
	}
	return ts, nil
}

// A query is SQL text under construction together with the parameters bound so far, in the order of their places.
type query struct {
	d    dialect
	sb   strings.Builder
	args []any
}

func newQuery(d dialect) *query { return &query{d: d} }

func (q *query) add(parts ...string) *query {
	for _, p := range parts {
		q.sb.WriteString(p)
	}
	return q
}

// arg binds v and writes its placeholder.
func (q *query) arg(v any) *query {
	q.args = append(q.args, v)
	q.sb.WriteString(q.d.placeholder(len(q.args)))
	return q
}

// operator writes SQL that came from the policy file: on lines of its own, in parentheses, so that no comment or quote
// in it can reach past its end.
func (q *query) operator(sql string) *query { return q.add("(\n", sql, "\n)") }

func (q *query) String() string { return q.sb.String() }

// splitKeys cuts a list of keys into batches of at most n rows.
func splitKeys(keys []byte, n int) ([]Batch, error) {
	all, err := decodeTuples(keys)
	if err != nil {
		return nil, err
	}
	var out []Batch
	for part := range slices.Chunk(all, max(1, n)) {
		out = append(out, Batch{Phase: phaseRetry, Rows: len(part), Keys: encodeTuples(part)})
	}
	return out, nil
}
