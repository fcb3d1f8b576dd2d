package api

import "time"

// The states of an occurrence. It is pending until it ends as exactly one of the others.
const (
	OccurrencePending = "pending"
	OccurrenceOK      = "ok"
	OccurrenceFailed  = "failed"
	OccurrenceSkipped = "skipped"
	OccurrenceExpired = "expired"
	OccurrenceMissed  = "missed"
	OccurrenceShadow  = "shadow" // its run changed nothing, as the policy's mode asks
)

// PolicyStatus says how a policy stage is doing, and what to do when it is not well.
type PolicyStatus struct {
	Policy   string `json:"policy"`
	Stage    string `json:"stage"`
	Mode     string `json:"mode"`
	Schedule string `json:"schedule"` // in words; "" when nothing starts it
	Well     bool   `json:"well"`
	Problem  string `json:"problem"` // what is wrong; "" when it is well
	Hint     string `json:"hint"`    // what to do about it; "" when it is well

	LastOK    *time.Time `json:"last_ok"`     // the as_of of the last run that succeeded in the policy's mode
	LastOKRun string     `json:"last_ok_run"` // "" when there was none
	NextDue   *time.Time `json:"next_due"`    // the next scheduled instant; null without a schedule
	OpenRun   string     `json:"open_run"`    // id of a run that has not ended; "" when there is none
	Waiting   string     `json:"waiting"`     // what that run waits for in good order: a window; "" otherwise

	// Occurrences since the last ok run that ended as these. Missed counts those too that no process has recorded yet.
	Missed  int64 `json:"missed"`
	Failed  int64 `json:"failed"`
	Skipped int64 `json:"skipped"` // in a row, up to now
	Expired int64 `json:"expired"`

	LagSeconds  *int64     `json:"lag_seconds"` // age of the oldest due row past its due instant, as last looked up; null when unknown
	Paused      bool       `json:"paused"`
	PausedSince *time.Time `json:"paused_since"`

	Holds int64 `json:"holds"` // legal holds that are not released and concern the policy
}

// OccurrenceItem is one scheduled instant of a policy stage, and what became of it.
type OccurrenceItem struct {
	Policy    string     `json:"policy"`
	Stage     string     `json:"stage"`
	At        time.Time  `json:"at"`
	StartBy   time.Time  `json:"start_by"` // begun, or called for, later than this it would be too late
	External  bool       `json:"external"` // a call from outside is expected
	State     string     `json:"state"`
	Why       string     `json:"why"`
	Run       string     `json:"run"` // the run that stands for it; of a missed one the run that caught up; "" for none
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at"`
}

// GapMonth counts what became of the occurrences of a policy stage in a month of the policy's calendar.
type GapMonth struct {
	Policy      string `json:"policy"`
	Stage       string `json:"stage"`
	Month       string `json:"month"` // 2026-04
	Occurrences int64  `json:"occurrences"`
	OK          int64  `json:"ok"`
	Failed      int64  `json:"failed"`
	Skipped     int64  `json:"skipped"`
	Expired     int64  `json:"expired"`
	Missed      int64  `json:"missed"`
	Shadow      int64  `json:"shadow"`
	Runs        int64  `json:"runs"`    // those that were started by hand or by a call too
	Changed     int64  `json:"changed"` // rows that these runs changed
}

// Call is one request for a run over HTTP, and what the answer was.
type Call struct {
	At     time.Time `json:"at"`
	Token  string    `json:"token"` // its name
	Policy string    `json:"policy"`
	Stage  string    `json:"stage"`
	Answer int       `json:"answer"` // HTTP status
	Run    string    `json:"run"`    // "" when it was refused
	Fresh  bool      `json:"fresh"`  // the call made the run; otherwise it found one
	Detail string    `json:"detail"` // why it was refused
}

// TokenInfo is what may be known of a token.
type TokenInfo struct {
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	CreatedAt time.Time  `json:"created_at"`
	LastUsed  *time.Time `json:"last_used"` // to the minute
	RevokedAt *time.Time `json:"revoked_at"`
}

// NewToken is a token that was just made, the only time that it can be seen.
type NewToken struct {
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
	Token  string   `json:"token"`
}

// Pause is a policy that neither its schedule nor a call starts until it is resumed. It is not a legal hold.
type Pause struct {
	Policy string    `json:"policy"`
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
}
