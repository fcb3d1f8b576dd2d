package policy_test

import (
	"testing"
	"time"

	"curfew.dev/curfew/policy"
)

// TestJudge: what is recorded decides, besides the due instant.
func TestJudge(t *testing.T) {
	p := trials(t) // week −7d, days −3d, pause 0d at nine in Berlin, tell 1d, end 14d
	p.Stages[4].MinNotice = 48 * time.Hour
	at := func(text string) time.Time { return instant(t, text) }
	due := at("2026-05-10T06:00:00Z") // the pause comes at 07:00
	const day = 24 * time.Hour
	rec := func(stage string, due time.Time, asOf time.Time) policy.Passed {
		return policy.Passed{Stage: stage, Due: due.UnixMicro(), AsOf: asOf}
	}
	nine := at("2026-05-10T07:00:00Z")
	pause, tell := rec("pause", due, nine), rec("tell", due, nine.Add(day))
	days := rec("days", due, due.Add(-2*day))
	for name, c := range map[string]struct {
		stage  string
		due    time.Time
		passed []policy.Passed
		asOf   time.Time
		want   policy.Turn
		by     string
		from   time.Time
	}{
		"reminded":                           {"days", due, []policy.Passed{days}, due.Add(-day), policy.TurnPassed, "days", time.Time{}},
		"reminded for another instant":       {"days", due.Add(time.Microsecond), []policy.Passed{days}, due.Add(-day), policy.TurnNow, "", time.Time{}},
		"a nearer reminder":                  {"week", due, nil, due.Add(-3*day + 1000), policy.TurnOver, "days", time.Time{}},
		"not yet a nearer one":               {"week", due, nil, due.Add(-3 * day), policy.TurnNow, "", time.Time{}},
		"over":                               {"days", due, nil, due.Add(1000), policy.TurnOver, "", time.Time{}},
		"at the end":                         {"days", due, nil, due, policy.TurnNow, "", time.Time{}},
		"nothing before the pause":           {"pause", due, nil, nine, policy.TurnNow, "", time.Time{}},
		"paused":                             {"pause", due, []policy.Passed{pause}, nine.Add(day), policy.TurnPassed, "pause", time.Time{}},
		"paused, moved back":                 {"pause", due.Add(-9 * day), []policy.Passed{pause}, nine.Add(day), policy.TurnPassed, "pause", time.Time{}},
		"paused, moved up to nine":           {"pause", nine, []policy.Passed{pause}, nine.Add(day), policy.TurnPassed, "pause", time.Time{}},
		"paused, moved beyond nine":          {"pause", nine.Add(1000), []policy.Passed{pause}, nine.Add(2 * day), policy.TurnNow, "", time.Time{}},
		"tell without the pause":             {"tell", due, nil, nine.Add(2 * day), policy.TurnOrder, "pause", time.Time{}},
		"tell, a day after the pause":        {"tell", due, []policy.Passed{pause}, nine.Add(day), policy.TurnNow, "", nine.Add(day)},
		"tell, too early":                    {"tell", due, []policy.Passed{pause}, nine.Add(day - 1000), policy.TurnLater, "pause", nine.Add(day)},
		"the pause of another instant":       {"tell", due.Add(9 * day), []policy.Passed{pause}, due.Add(20 * day), policy.TurnOrder, "pause", time.Time{}},
		"of two pauses the later counts":     {"tell", due, []policy.Passed{rec("pause", due.Add(2*day), nine.Add(2*day)), pause}, nine.Add(3*day - 1000), policy.TurnLater, "pause", nine.Add(3 * day)},
		"in whatever order":                  {"tell", due, []policy.Passed{pause, rec("pause", due.Add(2*day), nine.Add(2*day))}, nine.Add(3*day - 1000), policy.TurnLater, "pause", nine.Add(3 * day)},
		"the end, tell missing":              {"end", due, []policy.Passed{days, pause}, nine.Add(20 * day), policy.TurnOrder, "tell", time.Time{}},
		"the end":                            {"end", due, []policy.Passed{days, pause, tell}, nine.Add(14 * day), policy.TurnNow, "", nine.Add(14 * day)},
		"the end counts from a late one too": {"end", due, []policy.Passed{days, pause, rec("tell", due, nine.Add(5*day))}, nine.Add(18*day - 1000), policy.TurnLater, "tell", nine.Add(18 * day)},
	} {
		got := narrow(t, p, c.stage).Judge(c.due.UnixMicro(), c.passed, c.asOf)
		if got.Turn != c.want || got.Stage != c.by && c.want != policy.TurnNow || !got.From.Equal(c.from) {
			t.Errorf("%s: %+v (%s), want %s by %q from %s", name, got, got.Why(), c.want, c.by, c.from)
		}
		if (got.Why() == "") != (c.want == policy.TurnNow) {
			t.Errorf("%s: why %q", name, got.Why())
		}
	}
}

// TestJudgeNotice: whoever notified first, before the stage and for this instant, counts.
func TestJudgeNotice(t *testing.T) {
	p := trials(t)
	p.Stages = append(p.Stages[:2:2], policy.Stage{Name: "end", MinNotice: 72 * time.Hour, Action: policy.Action{Kind: policy.Delete}})
	end := narrow(t, p, "end")
	due := instant(t, "2026-05-10T06:00:00Z")
	week := policy.Passed{Stage: "week", Due: due.UnixMicro(), AsOf: due.Add(-70 * time.Hour)}
	days := policy.Passed{Stage: "days", Due: due.UnixMicro(), AsOf: due.Add(-time.Hour)}
	for i, c := range []struct {
		passed []policy.Passed
		asOf   time.Time
		want   policy.Turn
		by     string
	}{
		{nil, due.Add(time.Hour), policy.TurnNotice, ""},
		{[]policy.Passed{{Stage: "week", Due: due.UnixMicro() + 1, AsOf: week.AsOf}}, due.Add(99 * time.Hour), policy.TurnNotice, ""},
		{[]policy.Passed{days, week}, due.Add(2*time.Hour - time.Microsecond), policy.TurnNotice, "week"},
		{[]policy.Passed{days, week}, due.Add(2 * time.Hour), policy.TurnNow, ""},
		{[]policy.Passed{week, days}, due.Add(2 * time.Hour), policy.TurnNow, ""},
		{[]policy.Passed{days}, due.Add(71*time.Hour - time.Microsecond), policy.TurnNotice, "days"},
		{[]policy.Passed{days}, due.Add(71 * time.Hour), policy.TurnNow, ""},
	} {
		if got := end.Judge(due.UnixMicro(), c.passed, c.asOf); got.Turn != c.want || got.Stage != c.by {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

// TestJudgeAlwaysDue: a row that is due whatever the time has passed what it has passed, whatever instant it had.
func TestJudgeAlwaysDue(t *testing.T) {
	p := trials(t)
	nine := instant(t, "2026-05-10T07:00:00Z")
	pause := policy.Passed{Stage: "pause", Due: policy.AlwaysDue, AsOf: nine}
	for name, c := range map[string]struct {
		stage string
		due   int64
		want  policy.Turn
	}{
		"no reminder":        {"days", policy.AlwaysDue, policy.TurnOver},
		"paused":             {"pause", policy.AlwaysDue, policy.TurnPassed},
		"given a past one":   {"pause", nine.Add(-time.Hour).UnixMicro(), policy.TurnPassed},
		"given a future one": {"pause", nine.Add(time.Hour).UnixMicro(), policy.TurnNow},
		"never":              {"pause", policy.NeverDue, policy.TurnNow},
		"tell":               {"tell", policy.AlwaysDue, policy.TurnLater},
	} {
		if got := narrow(t, p, c.stage).Judge(c.due, []policy.Passed{pause}, nine.Add(time.Hour)); got.Turn != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := narrow(t, p, "pause").Judge(policy.AlwaysDue, []policy.Passed{{Stage: "pause", Due: nine.UnixMicro(), AsOf: nine}}, nine); got.Turn != policy.TurnPassed {
		t.Errorf("an instant taken away: %+v", got)
	}
	whole := &policy.Policy{}
	if got := whole.Judge(0, nil, nine); got.Turn != policy.TurnNow {
		t.Errorf("a policy without stages: %+v", got)
	}
}
