package alert

import (
	"context"
	"fmt"
	"strings"

	"curfew.dev/curfew/internal/ledger"
)

// runAwaiting tells that a run waits for somebody's word. A run that asks again is told again.
func (r *reading) runAwaiting(ctx context.Context, e ledger.Entry) error {
	run, err := r.a.l.Get(ctx, e.Run)
	if err != nil {
		return err
	}
	b, err := body[struct {
		Exceeded []struct{ Message string }
	}](e)
	if err != nil {
		return err
	}
	var why []string
	for _, x := range b.Exceeded {
		why = append(why, x.Message)
	}
	d := data{Policy: run.Policy, Stage: run.Stage, Run: run.ID, Mode: run.Mode, AsOf: when(run.AsOf), Detail: strings.Join(why, "; "), Revision: run.Revision}
	d.Message = fmt.Sprintf("%s: the run %s for %s waits for approval, and nothing was changed: %s. `curfew show %s` has the plan, `curfew approve %[2]s` lets it go on, `curfew cancel %[2]s` ends it",
		name(run.Policy, run.Stage), short(run.ID), shown(run.AsOf), d.Detail, short(run.ID))
	return r.add(d, RunAwaiting, fmt.Sprintf("%s/%d", run.ID, e.Seq), e.At)
}

// runCompared tells that a changed policy keeps rows that it would have removed before: it was loosened, perhaps by mistake.
func (r *reading) runCompared(ctx context.Context, e ledger.Entry) error {
	run, err := r.a.l.Get(ctx, e.Run)
	if err != nil {
		return err
	}
	b, err := body[struct {
		Revision, Was string
		Due, Old      int64
	}](e)
	if err != nil {
		return err
	}
	fields, err := r.differ(ctx, b.Was, b.Revision)
	if err != nil {
		return err
	}
	d := data{Policy: run.Policy, Stage: run.Stage, Run: run.ID, Mode: run.Mode, AsOf: when(run.AsOf), Revision: b.Revision, Was: b.Was, Fields: fields, Count: b.Old - b.Due}
	d.Message = fmt.Sprintf("%s: the policy was changed (%s) and keeps more: run %s removes %d rows, and would have removed %d as it was before",
		name(run.Policy, run.Stage), strings.Join(fields, ", "), short(run.ID), b.Due, b.Old)
	return r.add(d, PolicyChanged, join(run.Policy, run.Stage, "compared", run.ID), e.At)
}

// databaseChanged tells that a name leads to another database than the ledger knows.
func (r *reading) databaseChanged(e ledger.Entry) error {
	b, err := body[struct{ Database, Differs string }](e)
	if err != nil {
		return err
	}
	d := data{Detail: b.Differs}
	d.Message = fmt.Sprintf("database %s is not the one that the ledger knows, and no run changes anything in it: %s. If the policies are to be kept in it all the same: `curfew adopt %[1]s`", b.Database, b.Differs)
	return r.add(d, DatabaseChanged, fmt.Sprint(e.Seq), e.At)
}
