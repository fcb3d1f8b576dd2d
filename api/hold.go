package api

import "time"

// The states of a hold. Only in HoldReleased may its rows go.
const (
	HoldPlacing   = "placing"   // recorded, and not yet in force in the databases of Pending; there nothing is changed meanwhile
	HoldInForce   = "in_force"  // in force everywhere
	HoldReleasing = "releasing" // its release is not done in the databases of Pending; there nothing is changed meanwhile
	HoldReleased  = "released"
)

// Hold is a legal hold. It is on the rows of one table or on a data subject. Values are shown to who may see them: on the command
// line, and over HTTP to a token with the scope admin; otherwise the columns alone are named.
type Hold struct {
	Name      string   `json:"name"`
	State     string   `json:"state"`
	Reason    string   `json:"reason"`
	Database  string   `json:"database"`  // "" for a data subject
	Table     string   `json:"table"`     // "" for a data subject
	Where     []string `json:"where"`     // column=value, or the column alone; empty for a data subject
	Subject   string   `json:"subject"`   // "" for rows of a table, or where values are not shown
	Databases []string `json:"databases"` // where it is, or is to be
	Pending   []string `json:"pending"`   // where it is not yet in force, or not yet released

	AskedBy       string     `json:"asked_by"`
	AskedAt       time.Time  `json:"asked_at"`
	PlacedAt      *time.Time `json:"placed_at"` // in force everywhere since
	ReleasedBy    string     `json:"released_by"`
	ReleasedAt    *time.Time `json:"released_at"` // when its release was asked for
	ReleaseReason string     `json:"release_reason"`
}

// HoldReplay is what was done to bring a database to the holds of the ledger. Holds are told by name.
type HoldReplay struct {
	Database string   `json:"database"`
	Placed   []string `json:"placed"`
	Removed  []string `json:"removed"`
	Adopted  []string `json:"adopted"` // taken from the database into the ledger
}
