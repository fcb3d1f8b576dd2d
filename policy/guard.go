package policy

import "fmt"

// KeepLast keeps, of all rows with the same value of Per, the N whose trigger
// is the latest, however old they are.
type KeepLast struct {
	N   int    `json:"n"`
	Per string `json:"per"` // a column
}

// Privacy is the data subject's own choice of how long, as library systems
// offer it. A value that no choice lists is [PrivacyDefault] when Default is
// empty, and keeps the row when it is not; NULL keeps the row.
type Privacy struct {
	Column  string  `json:"column,omitempty"`
	Expr    string  `json:"expr,omitempty"` // SQL instead of a column of the table, such as a sub-select
	Never   []Value `json:"never,omitempty"`
	Default []Value `json:"default,omitempty"`
	Forever []Value `json:"forever,omitempty"`
}

// The choices of a data subject.
const (
	PrivacyNever   = "never"   // nothing is kept: the row is due at once
	PrivacyDefault = "default" // the policy's period
	PrivacyForever = "forever" // the row stays
)

func (k *KeepLast) understood() error {
	if k != nil && (k.N < 1 || k.Per == "") {
		return fmt.Errorf("keep_last %+v", *k)
	}
	return nil
}

func (p *Privacy) understood() error {
	if p != nil && ((p.Column == "") == (p.Expr == "") || len(p.Never)+len(p.Default)+len(p.Forever) == 0) {
		return fmt.Errorf("privacy without a column or without choices")
	}
	return nil
}
