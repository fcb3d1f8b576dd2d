package api

import "time"

// Approval is what a run that is out of the ordinary was found to be about to do, and who let it.
type Approval struct {
	AskedAt time.Time `json:"asked_at"`
	ApprovalPlan
	ApprovedAt *time.Time `json:"approved_at"` // null: nobody has
	ApprovedBy string     `json:"approved_by"`
	Reason     string     `json:"reason"`
}

// ApprovalPlan is what was counted when a run was to begin. Rows that a guard, a hold or rows that reference them keep are not in
// it.
type ApprovalPlan struct {
	Due      *int64    `json:"due"`      // rows the run would change; null: they could not be counted
	InScope  *int64    `json:"in_scope"` // rows the policy is about, due or not; null: not counted
	Exceeded []Limit   `json:"exceeded"` // why it waits
	History  *History  `json:"history"`  // null: there is none, or it does not matter
	Change   *Revision `json:"change"`   // null: the policy is the one of the run before, as far as rows go
}

// The limits at which a run waits for approval.
const (
	LimitMaxRows       = "max_rows"
	LimitMaxShare      = "max_share"
	LimitSpike         = "spike"
	LimitPolicyChanged = "policy_changed"
)

// Limit is one that a run is beyond.
type Limit struct {
	Limit   string `json:"limit"`
	Setting string `json:"setting"` // as the file has it; "" for policy_changed
	Allowed int64  `json:"allowed"` // rows
	Counted int64  `json:"counted"` // rows
	Message string `json:"message"`
}

// History is what the policy's runs usually change.
type History struct {
	Runs      int     `json:"runs"`      // that succeeded, the last ten at most
	Usual     float64 `json:"usual"`     // rows an interval: their median
	Intervals int64   `json:"intervals"` // that the run covers: since the run before it
}

// Revision is a policy's text that removes other rows than the one before it.
type Revision struct {
	Was   string `json:"was"`   // the revision of the run before
	WasID string `json:"run"`   // that run
	Old   *int64 `json:"old"`   // rows that the old text would remove at the same as_of; null: it could not be asked
	Extra *int64 `json:"extra"` // rows that go and that the old text would not have removed; null: it could not be asked
	Fault string `json:"fault"` // why it could not be asked; ""
}

// Adoption is what adopt found of a database, which is from now on the one that the ledger knows.
type Adoption struct {
	Database string            `json:"database"`
	Differs  []string          `json:"differs"`  // from what was on record
	Identity map[string]string `json:"identity"` // what it is told from its copies by
	Claimed  bool              `json:"claimed"`  // the database keeps whose it is
}
