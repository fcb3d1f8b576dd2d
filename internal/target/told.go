package target

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mostAddresses is how many addresses of one row are read: one more than an e-mail may have.
const mostAddresses = 21

func itoa64(n int64) string { return strconv.FormatInt(n, 10) }

// Values are what a message shows of a row.
type Values struct {
	Columns map[string]any // by the name that was asked for: text, whole numbers and booleans; NULL is ""
	To      []string       // the addresses, as stored; "" for NULL
}

// Values reads rows for their messages. One that is not there is nil; columns are by name.
func (j *Job) Values(ctx context.Context, rows []Row, columns []string) ([]*Values, error) {
	var shown []Column
	for _, name := range columns {
		c, ok := j.t.Column(name)
		if !ok {
			return nil, fmt.Errorf("%w: table %s has no column %q, which a text of the message shows", ErrSchemaChanged, j.p.Table, name)
		}
		shown = append(shown, c)
	}
	out := make([]*Values, len(rows))
	at := map[string]int{}
	var keys []tuple
	for i, r := range rows {
		at[r.key.id()] = i
		keys = append(keys, r.key)
	}
	for chunk := range slices.Chunk(keys, j.d.maxKeys()) {
		q := newQuery(j.d).add("SELECT ", list(j.key, func(c Column) string {
			if j.db.Engine == Postgres { // one way of printing for all types, the one that keys come back in elsewhere
				return j.d.ident(c.Name) + "::text"
			}
			return j.d.read(c)
		}))
		for i, c := range shown {
			q.add(", ", j.shown(c), " AS curfew_shown_", itoa(i))
		}
		emails := j.addresses(q)
		q.add(" FROM ", j.d.rows(j.t), " WHERE ")
		j.d.keyIn(q, j.key, chunk)
		err := j.eachRow(ctx, q, len(shown)+emails, func(key tuple, texts []sql.NullString) error {
			i, ok := at[key.id()]
			if !ok {
				return fmt.Errorf("a row was read under another key than it was asked for by")
			}
			v := &Values{Columns: map[string]any{}}
			for n, c := range shown {
				v.Columns[columns[n]] = j.inWords(c, texts[n])
			}
			for _, t := range texts[len(shown):] {
				if t.Valid || j.p.Action.Message.Email != "" {
					v.To = append(v.To, t.String)
				}
			}
			out[i] = v
			return nil
		})
		if err != nil {
			return nil, redact(err)
		}
	}
	return out, nil
}

// KeyOf is the key of a row, for JSON: by column, whole numbers as such, bytes in hex, all else as text.
func (j *Job) KeyOf(r Row) map[string]any {
	out := map[string]any{}
	for i, c := range j.key {
		out[c.Name] = jsonValue(c, r.key[i])
	}
	return out
}

// eachRow reads the key, and more columns as text.
func (j *Job) eachRow(ctx context.Context, q *query, more int, do func(tuple, []sql.NullString) error) error {
	rows, err := j.db.SQL.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	raw, texts := make([]any, len(j.key)), make([]sql.NullString, more)
	var dest []any
	for i := range raw {
		dest = append(dest, &raw[i])
	}
	for i := range texts {
		dest = append(dest, &texts[i])
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		key := make(tuple, len(j.key))
		for i, c := range j.key {
			if key[i], err = j.d.scan(c, raw[i]); err != nil {
				return fmt.Errorf("column %s: %w", c.Name, err)
			}
		}
		if err := do(key, texts); err != nil {
			return err
		}
	}
	return rows.Err()
}

// shown reads a column as text.
func (j *Job) shown(c Column) string {
	if j.isTrigger(c) {
		return j.printed()
	}
	id := j.d.ident(c.Name)
	switch j.db.Engine {
	case Postgres:
		return id + "::text"
	case MySQL:
		return "CAST(" + id + " AS CHAR)"
	}
	return "CAST(" + id + " AS TEXT)"
}

func (j *Job) isTrigger(c Column) bool { return j.trig.column != nil && j.trig.column.Name == c.Name }

// addresses selects who gets the e-mail, and returns how many columns that are. Every engine can select one row of a sub-select in
// the place of a value, and they share no other way to select several.
func (j *Job) addresses(q *query) int {
	m := j.p.Action.Message
	switch {
	case m == nil || m.Webhook != nil:
		return 0
	case m.Email != "":
		c, _ := j.t.Column(m.Email)
		q.add(", ", j.shown(c), " AS curfew_to_0")
		return 1
	}
	for i := range mostAddresses {
		q.add(", ")
		j.address(q, i)
		q.add(" AS curfew_to_", itoa(i))
	}
	return mostAddresses
}

// address selects the i-th address of the policy's query.
func (j *Job) address(q *query, i int) {
	q.operator(j.p.Action.Message.Query + "\nLIMIT 1 OFFSET " + itoa(i))
}

// readable is how an instant is shown to people.
const readable = "2006-01-02 15:04 MST"

// InWords shows an instant in the policy's zone.
func (j *Job) InWords(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.In(j.p.Location()).Format(readable)
}

// inWords is a stored value as a message shows it.
func (j *Job) inWords(c Column, text sql.NullString) any {
	if !text.Valid {
		return ""
	}
	if j.isTrigger(c) {
		if at := j.trig.instantOf(text.String); at != nil && j.trig.domain != dateDomain {
			return j.InWords(at)
		}
	}
	switch c.Kind {
	case KindInt:
		if n, err := strconv.ParseInt(text.String, 10, 64); err == nil {
			return n
		}
	case KindBool:
		return text.String == "true" || text.String == "t" || text.String == "1"
	case KindInstant: // every session's zone is UTC
		if t, err := time.Parse("2006-01-02 15:04:05.999999", strings.TrimSuffix(text.String, "+00")); err == nil {
			return j.InWords(&t)
		}
	case KindTime:
		if t, err := time.Parse("2006-01-02 15:04:05.999999", text.String); err == nil {
			return t.Format("2006-01-02 15:04")
		}
	}
	return text.String
}

func jsonValue(c Column, v value) any {
	switch {
	case v.kind == nullValue:
		return nil
	case v.kind == intValue || c.Kind == KindInt:
		return json.Number(v.s)
	case v.kind == bytesValue:
		return hex.EncodeToString([]byte(v.s))
	}
	return v.s
}

// untold takes rows out of a page that were told of this due instant, or of which nobody knows.
func (j *Job) untold(ctx context.Context, b *Batch) (*Batch, error) {
	if b == nil || len(b.Keys) == 0 || !j.p.Action.Kind.Tells() {
		return b, nil
	}
	keys, err := decodeTuples(b.Keys)
	if err != nil {
		return nil, err
	}
	have, err := j.passages(ctx, j.db.SQL, j.rowHashes(keys))
	if j.shadow && classify(err) == classUndefined {
		return b, nil // nothing is installed, so nothing was told
	}
	if err != nil || len(have) == 0 {
		return b, err
	}
	told := map[string]bool{}
	for chunk := range slices.Chunk(keys, j.d.maxKeys()) {
		due, err := j.readDue(ctx, j.db.SQL, chunk)
		if err != nil {
			return nil, err
		}
		for _, d := range due {
			told[d.key.id()] = slices.ContainsFunc(have[j.rowHash(d.key)], func(p Passage) bool {
				return p.Stage == j.p.StageName() && p.Due == d.due && (p.State == PassageDone || p.State == PassageUncertain)
			})
		}
	}
	keys = slices.DeleteFunc(keys, func(k tuple) bool { return told[k.id()] })
	if len(keys) == 0 {
		return nil, nil
	}
	b.Keys, b.Rows = encodeTuples(keys), len(keys)
	return b, nil
}

// message judges the columns that a message is made of; its texts are for who parses them.
func (j *judgement) message() {
	m := j.p.Action.Message
	if m == nil || m.Email == "" {
		return
	}
	c, ok := j.t.Column(m.Email)
	switch {
	case !ok:
		j.add(LevelRefuse, "email_missing", j.columns(m.Email), "email: table %s has no column %q", j.t.Label, m.Email)
	case slices.Contains([]Kind{KindInt, KindDecimal, KindFloat, KindBool, KindDate, KindTime, KindInstant, KindUUID, KindBytes}, c.Kind):
		j.add(LevelRefuse, "email_type", "name the column with the address", "email: column %s of type %s holds no addresses", m.Email, c.Declared)
	}
}
