package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Revision returns the canonical text of a policy and its id, the hex SHA-256
// of that text. The text is JSON in the order of the fields of [Policy],
// without spaces and without fields that are at their zero value, so a field
// that a later version adds leaves the ids of policies that do not use it as
// they were. Durations are whole nanoseconds (their names end in _ns); periods,
// dates and enumerations are the text of the file.
func (p *Policy) Revision() (id string, canonical []byte) {
	return canonicalOf(p.Whole())
}

// canonicalOf is the settings of something as canonical JSON, and the hex SHA-256 of it.
func canonicalOf(v any) (id string, canonical []byte) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // texts are full of < and >, and people read this
	if err := enc.Encode(v); err != nil {
		panic("policy: settings are always representable: " + err.Error())
	}
	canonical = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), canonical
}

// FromRevision reads the text that [Policy.Revision] wrote. A text that this
// version does not understand in full, such as one of a later version that
// uses a new setting, is refused: executing the half of it could delete what
// the other half protects.
func FromRevision(canonical []byte) (*Policy, error) {
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.DisallowUnknownFields()
	p := new(Policy)
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("this version of curfew cannot read the stored policy revision: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("the stored policy revision of %q has trailing data", p.Name)
	}
	if err := p.understood(); err != nil {
		return nil, fmt.Errorf("this version of curfew cannot execute the stored revision of policy %q: %w", p.Name, err)
	}
	if _, again := p.Revision(); !bytes.Equal(again, canonical) {
		return nil, fmt.Errorf("the stored revision of policy %q is not in its canonical form", p.Name)
	}
	return p, nil
}

// understood reports what of a revision this version cannot execute. The SQL
// texts passed [CheckSQL] when the revision was made and are not judged again:
// a stricter check of a later version must not strand a run under way.
func (p *Policy) understood() error {
	t := p.Trigger
	switch {
	case p.Name == "" || p.Database == "" || p.Table == "":
		return fmt.Errorf("it has no name, database or table")
	case p.Action.IsZero() == (len(p.Stages) == 0):
		return fmt.Errorf("it needs an action or stages")
	case p.Mode != Shadow && p.Mode != Enforce:
		return fmt.Errorf("mode %q", p.Mode)
	case p.AtCutoff != StaysAtCutoff && p.AtCutoff != DueAtCutoff:
		return fmt.Errorf("at_cutoff %q", p.AtCutoff)
	case (t.Column == "") == (t.Expr == ""):
		return fmt.Errorf("its trigger needs a column or an expression")
	case !t.Until && p.Keep.IsZero():
		return fmt.Errorf("it has no period to keep")
	case p.Batch.Rows < 1 || p.Batch.InFlight < 1 || p.Batch.Target <= 0 || p.Batch.Pace < 0:
		return fmt.Errorf("batch %+v", p.Batch)
	case p.Retry.Attempts < 1 || p.Retry.Backoff < 0 || p.Retry.Factor < 1:
		return fmt.Errorf("retry %+v", p.Retry)
	case p.Limits.MaxRows < 0:
		return fmt.Errorf("max_rows %d", p.Limits.MaxRows)
	}
	if err := errors.Join(p.actions(), p.KeepLast.understood(), p.Privacy.understood()); err != nil {
		return err
	}
	for _, known := range []struct {
		name, value string
		ok          bool
	}{
		{"type", string(t.Type), oneOf(t.Type, "", TimestampTZ, Timestamp, DateType)},
		{"unit", string(t.Unit), oneOf(t.Unit, "", Seconds, Milliseconds, Microseconds, Nanoseconds, JulianDay)},
		{"format", string(t.Format), oneOf(t.Format, "", ISO8601, Compact)},
		{"null", string(t.Null), oneOf(t.Null, NullUnset, NullNever, NullDue)},
	} {
		if !known.ok {
			return fmt.Errorf("trigger %s %q", known.name, known.value)
		}
	}
	if _, err := loadLocation(p.Timezone); err != nil {
		return err
	}
	if t.Zone != "" {
		if _, err := loadLocation(t.Zone); err != nil {
			return err
		}
	}
	return nil
}

// actions reports which of the policy's actions this version cannot execute.
func (p *Policy) actions() error {
	if !p.Action.IsZero() {
		return p.Action.understood()
	}
	for i, s := range p.Stages {
		if err := s.Action.understood(); err != nil {
			return fmt.Errorf("stage %q: %w", s.Name, err)
		}
		if s.Name == "" || i > 0 && s.At.compare(p.Stages[i-1].At) < 0 || s.MinNotice < 0 {
			return fmt.Errorf("stage %q is not in its place", s.Name)
		}
	}
	return nil
}

func oneOf[T comparable](v T, all ...T) bool {
	for _, a := range all {
		if v == a {
			return true
		}
	}
	return false
}
