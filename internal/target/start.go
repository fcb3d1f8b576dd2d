package target

import "context"

// A Start is what the first process to begin a run fixes for all that work on it.
type Start struct {
	Strategy    Strategy `json:"strategy"`
	Fingerprint string   `json:"fingerprint"` // of the table
	// ByPlace: the oldest transaction that was under way, and how many updates of the table the server had counted.
	Horizon string `json:"horizon,omitempty"`
	Updates int64  `json:"updates,omitempty"`
}

// Begin looks at the table as it is now and chooses how a run over it pages.
func (j *Job) Begin(ctx context.Context) (Start, error) {
	var s Start
	var err error
	if s.Fingerprint, err = j.FingerprintNow(ctx); err != nil {
		return s, err
	}
	if err := j.ChooseStrategy(ctx); err != nil {
		return s, err
	}
	if s.Strategy = j.strategy; s.Strategy == ByPlace {
		err = j.db.SQL.QueryRowContext(ctx, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, "+j.updates()).Scan(&s.Horizon, &s.Updates)
	}
	return s, redact(err)
}

// Adopt makes the job one of a run that began so. Every batch from now on that finds another table is refused. It is
// ErrSchemaChanged when the table is not the same any more, as now, or offers that way of paging no more.
func (j *Job) Adopt(began, now Start) error {
	if err := j.SetStrategy(began.Strategy); err != nil {
		return err
	}
	if began.Fingerprint != now.Fingerprint {
		return ErrSchemaChanged
	}
	j.fingerprint, j.began = began.Fingerprint, began
	return nil
}
