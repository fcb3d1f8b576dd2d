package target

import (
	"context"
	"fmt"
)

// A finding is the rows of a batch as it begins.
type finding struct {
	span
	keys []tuple
	// rest is set instead of keys when the batch is not to be done as it is: its range, to be cut smaller.
	rest *span
	rows int // with rest: about how many rows it stands for
}

// tally is the whole answer of a batch that hands its range on; nil for any other.
func (f *finding) tally() *tally {
	if f.rest == nil {
		return nil
	}
	t := newTally()
	t.rest, t.restRows = f.rest, f.rows
	return t
}

// find reads which rows a batch is about: the keys it was made with or, when it is a range of addresses, what is due in it now.
func (x *execution) find(ctx context.Context, w Work) (*finding, error) {
	s, err := decodeSpan(w.Bounds)
	if err != nil {
		return nil, err
	}
	f := &finding{span: s}
	if len(w.Keys) > 0 {
		f.keys, err = decodeTuples(w.Keys)
		return f, err
	}
	most := 2*w.Rows + 64
	var heap string
	if f.keys, f.horizon, heap, err = x.j.spanKeys(ctx, x.c, w.Phase, s.lo, s.hi, most+1); err != nil {
		return nil, err
	}
	if heap == s.heap && len(f.keys) <= most {
		return f, nil
	}
	if heap != s.heap {
		// The rows of this range are anywhere now: whatever is due in the table is looked for, in as many steps as it takes.
		s = span{lo: place(address{}), heap: heap}
	}
	if len(s.hi) == 0 {
		var blocks int64
		err = x.c.QueryRowContext(ctx, "SELECT pg_relation_size("+x.j.regclass()+") / current_setting('block_size')::bigint").Scan(&blocks)
		s.hi = place(address{blocks, 0})
	}
	s.from = fmt.Sprint(w.Seq)
	return &finding{rest: &s, rows: max(w.Rows, len(f.keys))}, err
}

// What a batch hands on is a list of keys or a range.
const (
	handedKeys  = 'k'
	handedRange = 'r'
)

func (t *tally) handOn() (b []byte, rows int) {
	switch {
	case t.rest != nil:
		return append([]byte{handedRange}, t.rest.encode()...), t.restRows
	case len(t.deferred) > 0:
		return append([]byte{handedKeys}, encodeTuples(t.deferred)...), len(t.deferred)
	}
	return nil, 0
}

// Split makes batches of about n rows of what another handed on.
func Split(handedOn []byte, n int) ([]Batch, error) {
	if len(handedOn) == 0 {
		return nil, errBadTuples
	}
	kind, rest := handedOn[0], handedOn[1:]
	switch kind {
	case handedKeys:
		return splitKeys(rest, n)
	case handedRange:
		s, err := decodeSpan(rest)
		if err != nil {
			return nil, err
		}
		parts, err := splitPlace(s)
		var out []Batch
		for _, p := range parts {
			out = append(out, Batch{Phase: phaseMain, Rows: max(1, n), Bounds: p.encode()})
		}
		return out, err
	}
	return nil, errBadTuples
}
