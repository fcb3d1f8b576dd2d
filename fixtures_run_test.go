package curfew_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/mailtest"
)

// asOf is the fixtures' instant as the command line takes it.
const asOf = "2026-03-29T01:00:00Z"

// program builds the command once, as it is shipped, and returns its path.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(scratch, "curfew")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	track(t, "cmd/curfew/*.go")
	if err := once(path, func() error {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", path, "./cmd/curfew")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatalf("build the command: %v", err)
	}
	return path
}

// command prepares the program to run in a directory with a curfew.yaml.
func command(t *testing.T, ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, program(t), args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "CURFEW_") }), env...)
	return cmd
}

// curfew runs the program to its end.
func curfew(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := command(t, t.Context(), dir, env, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("curfew %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// A schedule is what curfew does in a fixture.
type schedule struct {
	database string
	policies []string // in the order of policy.md
	// sets names, for the policies whose rows go for one reason only, the set
	// that holds them; and blocked the one with the rows that cannot go.
	sets, blocked map[string]string
	// cascaded names, for the policies that take rows of other tables along, the
	// sets that hold them.
	cascaded map[string][]string
	// actions are those of the policies that do not delete.
	actions map[string]string
	// prelude picks the lines of reference.sql that do what no policy can.
	prelude []string
	// reminders names, for the stages of the policy of that name, the sets of those
	// who are reminded.
	reminders map[string]string
}

var schedules = map[string]schedule{
	"django_sessions": {
		database: "site", policies: []string{"sessions"},
		sets: map[string]string{"sessions": "session.delete"},
	},
	"laravel_sessions": {
		database: "app", policies: []string{"sessions"},
		sets: map[string]string{"sessions": "sessions.delete"},
	},
	"better_auth": {
		database: "auth", policies: []string{"sessions", "verifications", "unverified_users"},
		sets: map[string]string{"verifications": "verification.delete", "unverified_users": "user.delete"},
	},
	"koha_circ": {
		database: "koha", policies: []string{"old_issues", "old_reserves", "action_logs", "message_queue", "oauth_access_tokens", "borrowers"},
		sets: map[string]string{
			"old_issues": "old_issues.anonymise", "old_reserves": "old_reserves.delete", "action_logs": "action_logs.delete",
			"oauth_access_tokens": "oauth_access_tokens.delete", "borrowers": "borrowers.delete",
		},
		blocked: map[string]string{"borrowers": "borrowers.blocked"},
		actions: map[string]string{"old_issues": "anonymised"},
		prelude: []string{"SET ", "DELETE FROM statistics "}, // which has no key
	},
	"gotrue_auth": {
		database: "auth", policies: []string{"refresh_tokens", "sessions", "flow_state", "mfa_challenges", "anonymous_users", "audit_log_entries"},
		sets: map[string]string{
			"flow_state": "flow_state.delete", "anonymous_users": "users.delete", "audit_log_entries": "audit_log_entries.delete",
		},
	},
	"zulip_demo_orgs": {
		database: "zulip", policies: []string{"pause", "teardown"}, // an organisation that is paused now is not torn down now
		sets:      map[string]string{"pause": "realm.pause", "teardown": "realm.delete"},
		actions:   map[string]string{"pause": "set"},
		reminders: map[string]string{"week": "remind.7d", "days": "remind.3d", "day": "remind.1d"},
		blocked:   map[string]string{"teardown": "realm.blocked"},
		cascaded: map[string][]string{"teardown": {"usermessage.delete", "reaction.delete", "message.delete", "subscription.delete", "realmauditlog.delete",
			"stream.delete", "userprofile.delete", "recipient.delete"}},
	},
}

// settle writes the fixture's policy file, with batches of that many rows (0 for
// the default), beside a ledger of its own, and installs what curfew needs.
func (w *world) settle(t *testing.T, rows int, env ...string) (dir string, fullEnv []string) {
	t.Helper()
	dir = t.TempDir()
	text := readFile(t, w.path("curfew.yaml"))
	if rows > 0 {
		const mode = "    mode: enforce\n"
		if !strings.Contains(text, mode) {
			t.Fatalf("%s has no line %q to put the batch size after", w.path("curfew.yaml"), mode)
		}
		text = strings.ReplaceAll(text, mode, mode+fmt.Sprintf("    batch: {rows: %d, pace: none}\n", rows))
	}
	if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	fullEnv = append([]string{"FIXTURE_URL=" + w.target, "FIXTURE_MAIL=127.0.0.1:1"}, env...) // where nobody takes mail, unless env says otherwise
	if out, errs, code := curfew(t, dir, fullEnv, "install", schedules[w.name].database); code != 0 {
		t.Fatalf("install: exit code %d\n%s%s", code, out, errs)
	}
	return dir, fullEnv
}

// run runs one policy at the fixtures' instant and expects it to succeed.
func run(t *testing.T, dir string, env []string, policy string, more ...string) api.Run {
	t.Helper()
	args := append([]string{"run", policy, "--as-of", asOf, "--output", "json"}, more...)
	out, errs, code := curfew(t, dir, env, args...)
	if code != 0 {
		t.Fatalf("run %s: exit code %d\n%s%s", policy, code, out, errs)
	}
	return parseRun(t, policy, out)
}

func parseRun(t *testing.T, policy, out string) api.Run {
	t.Helper()
	var r api.Run
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("run %s: its answer is not a run: %v\n%s", policy, err, out)
	}
	if r.State != api.StateSucceeded {
		t.Fatalf("run %s is %s: %s %s", policy, r.State, r.WhyEnded, r.Detail)
	}
	if r.Planned != r.Outcomes.Sum() {
		t.Errorf("run %s: planned %d, outcomes %v add up to %d", policy, r.Planned, r.Outcomes, r.Outcomes.Sum())
	}
	return r
}

// TestFixtures runs the program on every fixture: exactly the expected rows stay
// and go, whatever the size of a batch and whatever zone server and client think
// they are in; and a second time nothing happens.
func TestFixtures(t *testing.T) {
	batches := []struct {
		rows  int // 0: the default
		scale string
	}{{0, "1"}, {7, "0.2"}, {1, "0.1"}}
	zones := []struct{ client, postgres, mariadb string }{
		{"UTC", "UTC", "+00:00"},
		{"America/New_York", "America/New_York", "-04:00"},
		{"Asia/Tokyo", "Asia/Tokyo", "+09:00"},
	}
	program(t)
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for _, b := range batches {
				for _, z := range zones {
					name := fmt.Sprintf("rows=%d/%s", b.rows, strings.ReplaceAll(z.client, "/", "_"))
					if b.rows == 0 {
						name = "rows=default/" + strings.ReplaceAll(z.client, "/", "_")
					}
					t.Run(name, func(t *testing.T) {
						zone := z.postgres
						if f.engine == "maria" {
							zone = z.mariadb
						}
						f.try(t, b.scale, zone, b.rows, "TZ="+z.client)
					})
				}
			}
		})
	}
}

// try loads the fixture and runs its whole schedule, twice.
func (f fixture) try(t *testing.T, scale, zone string, rows int, env ...string) {
	s := schedules[f.name]
	if len(s.policies) == 0 {
		t.Fatalf("no schedule for fixture %s", f.name)
	}
	w := f.load(t, scale, zone)
	before := w.ask(t, "expect.sql")
	if len(s.prelude) > 0 {
		w.execute(t, pick(t, readFile(t, f.path("reference.sql")), s.prelude))
	}
	box := &mailtest.Server{}
	if len(s.reminders) > 0 {
		box.Start(t)
		env = append(env, "FIXTURE_MAIL="+box.Addr)
	}
	dir, env := w.settle(t, rows, env...)
	w.remind(t, dir, env, box, before)
	runs := map[string]api.Run{}
	for _, policy := range s.policies {
		r := run(t, dir, env, policy)
		runs[policy] = r
		did := cmp.Or(s.actions[policy], "deleted")
		expectOutcome(t, r, did, before, s.sets[policy])
		expectOutcome(t, r, "blocked", before, s.blocked[policy])
		if names := s.cascaded[policy]; len(names) > 0 {
			var want int64
			for _, name := range names {
				want += before[name].rows
			}
			if want == 0 || r.Cascaded != want {
				t.Errorf("run %s: %d rows went along, want %d", policy, r.Cascaded, want)
			}
		}
		// A batch in physical order is of about that size, and never of more than twice.
		if rows > 0 && 2*int64(rows)*r.Batches.Total < r.Outcomes[did] {
			t.Errorf("%s: %d rows %s in %d batches of %d", policy, r.Outcomes[did], did, r.Batches.Total, rows)
		}
	}
	bad, advisory := before.differences(w.ask(t, "after.sql"))
	for _, d := range append(bad, advisory...) {
		t.Errorf("after the run: %s", d)
	}

	// Asked for again, the runs are shown, not run; and a run of its own finds nothing.
	for _, policy := range s.policies {
		did := cmp.Or(s.actions[policy], "deleted")
		if again := run(t, dir, env, policy); again.ID != runs[policy].ID || again.Outcomes[did] != runs[policy].Outcomes[did] {
			t.Errorf("%s: run %s with %v, asked for again %s with %v", policy, runs[policy].ID, runs[policy].Outcomes, again.ID, again.Outcomes)
		}
		other := run(t, dir, env, policy, "--operation", "again")
		if other.ID == runs[policy].ID || other.Outcomes[did] != 0 || other.Cascaded != 0 {
			t.Errorf("%s: a second run: %s with %v, %d cascaded", policy, other.ID, other.Outcomes, other.Cascaded)
		}
		expectOutcome(t, other, "blocked", before, s.blocked[policy])
	}
	w.remind(t, dir, env, box, before, "--operation", "again")
	bad, advisory = before.differences(w.ask(t, "after.sql"))
	for _, d := range append(bad, advisory...) {
		t.Errorf("after the second run: %s", d)
	}
}

// pick returns the lines of a script that begin with one of the prefixes, each of
// which must be there.
func pick(t *testing.T, script string, prefixes []string) string {
	t.Helper()
	var picked strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(script) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				picked.WriteString(line)
				seen[p] = true
			}
		}
	}
	for _, p := range prefixes {
		if !seen[p] {
			t.Fatalf("reference.sql has no line that begins with %q", p)
		}
	}
	return picked.String()
}

// expectOutcome compares what a run counted with a set. Without a set only
// "blocked" is known: none.
func expectOutcome(t *testing.T, r api.Run, outcome string, before sets, name string) {
	t.Helper()
	want := int64(0)
	if name != "" {
		s, ok := before[name]
		if !ok {
			t.Fatalf("there is no set %s", name)
		}
		want = s.rows
	} else if outcome != "blocked" {
		return
	}
	if got := r.Outcomes[outcome]; got != want {
		t.Errorf("run %s: %d rows %s, want %d (%s); all outcomes: %v", r.Policy, got, outcome, want, name, r.Outcomes)
	}
}

// TestFixturesRace renews expired rows under a lock while a run is under way and
// commits when the run has nothing left to do but to wait for them: all renewed
// rows must survive, and all others go.
func TestFixturesRace(t *testing.T) {
	const n = 40
	program(t)
	cut := "'" + fixtureAsOf + "+00'::timestamptz"
	for _, tc := range []struct {
		name, policy, table, key, old, renew string
		kept, did                            string // what a renewed row still is, and what happens to the others
	}{
		{"django_sessions", "sessions", "django_session", "session_key", "expire_date < " + cut, "expire_date = '2026-04-12 00:00:00+00'", "true", "deleted"},
		{"gotrue_auth", "sessions", "auth.sessions", "id", "not_after < " + cut + " - interval '72 hours'", "not_after = '2026-04-12 00:00:00+00'", "true", "deleted"},
		{"laravel_sessions", "sessions", "sessions", "id", "last_activity < 1774746000 - 7200", "last_activity = 1774746000", "true", "deleted"},
		{"koha_circ", "old_issues", "old_issues", "issue_id", "returndate < '2026-03-29 03:00:00' - INTERVAL 700 DAY AND borrowernumber IN (SELECT borrowernumber FROM borrowers WHERE privacy <> 0 AND borrowernumber <> 1)",
			"returndate = '2026-03-28 12:00:00'", "borrowernumber <> 1", "anonymised"},
		{"zulip_demo_orgs", "pause", "zerver_realm", "id", "NOT deactivated AND demo_organization_scheduled_deletion_date <= " + cut,
			"demo_organization_scheduled_deletion_date = '2026-04-12 00:00:00+00'", "NOT deactivated AND scheduled_deletion_date IS NULL", "set"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := fixtureNamed(t, tc.name).load(t, "1", "")
			db := dbtest.Open(t, w.target)
			count := func(where string) (n int) {
				t.Helper()
				if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+tc.table+" WHERE "+where).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			expired := count(tc.old)
			w.execute(t, fmt.Sprintf("CREATE TABLE renewed AS SELECT %s AS k FROM %s WHERE %s ORDER BY %s LIMIT %d", tc.key, tc.table, tc.old, tc.key, n))
			renewed := tc.key + " IN (SELECT k FROM renewed)"
			dir, env := w.settle(t, 0)

			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if res, err := tx.ExecContext(t.Context(), "UPDATE "+tc.table+" SET "+tc.renew+" WHERE "+renewed+" AND "+tc.old); err != nil {
				t.Fatal(err)
			} else if got, _ := res.RowsAffected(); got != n {
				t.Fatalf("renewed %d rows, want %d", got, n)
			}

			// The whole may take a minute; that it waits for the lock for ever would be a failure too.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out, errs bytes.Buffer
			cmd := command(t, ctx, dir, env, "run", tc.policy, "--as-of", asOf, "--output", "json")
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { err = cmd.Wait(); close(ended) }()
			w.untilStuck(t, ended, func() bool { return count(tc.old) == n })
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			<-ended
			if err != nil {
				t.Fatalf("run: %v\n%s%s", err, out.String(), errs.String())
			}

			if got := count(renewed + " AND " + tc.kept); got != n {
				t.Errorf("%d of %d renewed rows are as they were", got, n)
			}
			if got := count(tc.old); got != 0 {
				t.Errorf("%d expired rows are left", got)
			}
			r := parseRun(t, tc.policy, out.String())
			if got := r.Outcomes[tc.did]; got != int64(expired-n) {
				t.Errorf("%d rows %s, want %d; all outcomes: %v", got, tc.did, expired-n, r.Outcomes)
			}
		})
	}
}

// untilStuck returns when the command can do no more while the rows are locked: it
// has ended, nothing else is left to do, or it waits for a lock. It looks at the
// database, again and again, because the command has nothing to tell us by.
func (w *world) untilStuck(t *testing.T, ended <-chan struct{}, nothingLeft func() bool) {
	t.Helper()
	db := dbtest.Open(t, w.target)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if w.waits(t, db) || nothingLeft() {
			return
		}
	}
}

// lockWaits finds the sessions that wait for a row in InnoDB's own report. The
// view INNODB_TRX says the same, but out of a cache that is only refreshed when
// nobody on the whole server has looked at it for a while.
var lockWaits = regexp.MustCompile(`(?s)\nLOCK WAIT .*?thread id (\d+)`)

// waits reports whether a session of the world's database waits for a lock.
func (w *world) waits(t *testing.T, db *sql.DB) bool {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	if w.engine == "maria" {
		var kind, name, report string
		if err := db.QueryRowContext(t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &report); err != nil {
			t.Fatal(err)
		}
		ids := "0"
		for _, m := range lockWaits.FindAllStringSubmatch(report, -1) {
			ids += ", " + m[1]
		}
		query = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID IN (" + ids + ")"
	}
	var n int
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}
