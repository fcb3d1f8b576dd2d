package riverq

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// River alone would leave the jobs of a killed process alone until their timeout
// is over, and its leader throws away what it does not know. So each process says in
// a table of ours, beside River's, that it lives, and takes the jobs of those that do
// not say so any more, whatever tasks it knows itself. The attempt counts: it may be
// the batch, or the call, that kills. A call that has used up its attempts that way
// has failed for good; a batch comes back until somebody has said so in the ledger.
//
// A process that was only frozen may still hold what is taken from it, and wake.
// Two attempts at one batch are for its receipt to tell apart; for calls, see
// overtaken.

// text is a statement on PostgreSQL and on SQLite. % before a table's name is the
// schema, on SQLite the prefix of ours. @now is the clock's time. Who lives is told
// by the database's own clock in any case: a test's clock that leaps kills nobody.
type text struct{ postgres, sqlite string }

var (
	makeAlive = text{
		`CREATE TABLE IF NOT EXISTS %queue_client (id text COLLATE "C" PRIMARY KEY, seen timestamptz NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS %queue_client (id TEXT PRIMARY KEY, seen TEXT NOT NULL)`,
	}
	sayAlive = text{
		`INSERT INTO %queue_client (id, seen) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen = now()`,
		`INSERT INTO %queue_client (id, seen) VALUES ($1, datetime('now', 'subsec')) ON CONFLICT (id) DO UPDATE SET seen = datetime('now', 'subsec')`,
	}
	// A job that was taken just now is left alone too: its process may be new.
	ofTheDead = text{
		`SELECT id, attempt, max_attempts, kind, (args - 'args' - 'argv')::text FROM %river_job AS j
			WHERE state = 'running' AND (kind = 'curfew_batch' OR kind LIKE 'task:%') AND attempted_at < @now - make_interval(secs => $1)
			AND NOT EXISTS (SELECT 1 FROM %queue_client AS c
				WHERE c.id = j.attempted_by[cardinality(j.attempted_by)] AND c.seen >= now() - make_interval(secs => $1)) LIMIT 1000`,
		`SELECT id, attempt, max_attempts, kind, json_remove(args, '$.args', '$.argv') FROM %river_job AS j
			WHERE state = 'running' AND (kind = 'curfew_batch' OR kind LIKE 'task:%') AND attempted_at < datetime(@at, 'subsec', -$1 || ' seconds')
			AND NOT EXISTS (SELECT 1 FROM %queue_client AS c
				WHERE c.id = json_extract(j.attempted_by, '$[#-1]') AND c.seen >= datetime('now', 'subsec', -$1 || ' seconds')) LIMIT 1000`,
	}
	// A job that counts as this process's and is not in its hand: the answer to a
	// fetch was lost with its connection, or River could not write down a result
	// and gave up, which takes it seconds.
	lost = text{
		`SELECT id, attempt, max_attempts, kind, (args - 'args' - 'argv')::text FROM %river_job
			WHERE state = 'running' AND (kind = 'curfew_batch' OR kind LIKE 'task:%') AND attempted_at < @now - make_interval(secs => $1)
			AND attempted_by[cardinality(attempted_by)] = $2 AND id NOT IN (SELECT value::bigint FROM json_array_elements_text($3::json)) LIMIT 1000`,
		`SELECT id, attempt, max_attempts, kind, json_remove(args, '$.args', '$.argv') FROM %river_job
			WHERE state = 'running' AND (kind = 'curfew_batch' OR kind LIKE 'task:%') AND attempted_at < datetime(@at, 'subsec', -$1 || ' seconds')
			AND json_extract(attempted_by, '$[#-1]') = $2 AND id NOT IN (SELECT value FROM json_each($3)) LIMIT 1000`,
	}
	oneJob = text{
		`SELECT id, attempt, max_attempts, kind, (args - 'args' - 'argv')::text FROM %river_job WHERE id = $1 AND attempt = $2 AND state = 'running'`,
		`SELECT id, attempt, max_attempts, kind, json_remove(args, '$.args', '$.argv') FROM %river_job WHERE id = $1 AND attempt = $2 AND state = 'running'`,
	}
	// Each of these two only while the job is where it was found.
	comeBack = text{
		`UPDATE %river_job SET state = $3::%river_job_state, scheduled_at = @now + make_interval(secs => $4), errors = array_append(errors, $5::jsonb)
			WHERE id = $1 AND attempt = $2 AND state = 'running'`,
		`UPDATE %river_job SET state = $3, scheduled_at = datetime(@at, 'subsec', $4 || ' seconds'), errors = jsonb_insert(coalesce(errors, jsonb('[]')), '$[#]', jsonb($5))
			WHERE id = $1 AND attempt = $2 AND state = 'running'`,
	}
	endFailed = text{
		`UPDATE %river_job SET state = 'discarded', finalized_at = @now, errors = array_append(errors, $3::jsonb)
			WHERE id = $1 AND attempt = $2 AND state = 'running'`,
		`UPDATE %river_job SET state = 'discarded', finalized_at = @now, errors = jsonb_insert(coalesce(errors, jsonb('[]')), '$[#]', jsonb($3))
			WHERE id = $1 AND attempt = $2 AND state = 'running'`,
	}
	// What is due again. River's leader does that too, but a leader may be dead,
	// or alive and unable to, and nobody would notice.
	wake = text{
		`WITH due AS MATERIALIZED (SELECT id FROM %river_job
			WHERE state IN ('retryable', 'scheduled') AND (kind = 'curfew_batch' OR kind LIKE 'task:%') AND scheduled_at <= @now LIMIT 10000 FOR UPDATE SKIP LOCKED)
			UPDATE %river_job AS j SET state = 'available' FROM due WHERE j.id = due.id AND j.state IN ('retryable', 'scheduled')`,
		`UPDATE %river_job SET state = 'available' WHERE id IN (SELECT id FROM %river_job
			WHERE state IN ('retryable', 'scheduled') AND (kind = 'curfew_batch' OR kind LIKE 'task:%') AND scheduled_at <= @now LIMIT 10000)`,
	}
	forgetDead = text{
		`DELETE FROM %queue_client WHERE seen < now() - interval '1 day'`,
		`DELETE FROM %queue_client WHERE seen < datetime('now', 'subsec', '-1 day')`,
	}
)

// on returns the statement for an engine.
func (t text) on(sqlite bool, schema string, at time.Time) string {
	now, base := "now()", "'now'"
	if sqlite {
		if !at.IsZero() {
			base = at.UTC().Format(`'2006-01-02 15:04:05.000'`)
		}
		return strings.NewReplacer("%river_", "river_", "%queue_", "curfew_queue_", "@now", "datetime("+base+", 'subsec')", "@at", base).Replace(t.sqlite)
	}
	if !at.IsZero() {
		now = at.UTC().Format(`'2006-01-02 15:04:05.000000+00'::timestamptz`)
	}
	if schema != "" {
		schema += "."
	}
	return strings.NewReplacer("%river_", schema+"river_", "%queue_", schema+"queue_", "@now", now).Replace(t.postgres)
}

// text is a statement as this client executes it, now.
func (c *Client) text(t text) string {
	var at time.Time
	if c.o.Clock != nil {
		at = c.o.Clock()
	}
	return t.on(c.o.SQLite, c.o.Schema, at)
}

// execer is a database or a transaction on it.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (c *Client) exec(ctx context.Context, t text, args ...any) (int64, error) {
	return c.execOn(ctx, c.o.DB, t, args...)
}

func (c *Client) execOn(ctx context.Context, on execer, t text, args ...any) (int64, error) {
	res, err := on.ExecContext(ctx, c.text(t), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c *Client) beat(ctx context.Context) error {
	if _, err := c.exec(ctx, sayAlive, c.id); err != nil {
		return err
	}
	c.pulse.beat()
	return nil
}

// stray is a job that nobody works on, though it counts as running.
type stray struct {
	hold
	most int // attempts
	kind string
	args string // JSON, without what the caller gave
}

func (c *Client) strays(ctx context.Context, t text, args ...any) (found []stray, err error) {
	rows, err := c.o.DB.QueryContext(ctx, c.text(t), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s stray
		if err := rows.Scan(&s.job, &s.attempt, &s.most, &s.kind, &s.args); err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, rows.Err()
}

// reclaim gives the jobs of dead processes, and those that this one lost or that
// hang here, back to their queues.
func (c *Client) reclaim(ctx context.Context) error {
	silence := c.pulse.silence.Seconds()
	inHand, outlived := c.pulse.jobs(time.Now())
	dead, err := c.strays(ctx, ofTheDead, silence)
	if err != nil {
		return err
	}
	strayed, err := c.strays(ctx, lost, silence, c.id, inHand)
	if err != nil {
		return err
	}
	strayed = c.suspected(strayed)
	var hanging []stray
	for _, h := range outlived {
		s, err := c.strays(ctx, oneJob, h.job, h.attempt)
		if err != nil {
			return err
		}
		hanging = append(hanging, s...)
	}
	for _, found := range []struct {
		strays []stray
		why    string
	}{
		{dead, "its process died"},
		{strayed, "its process lost it: what became of the attempt could not be written down"},
		{hanging, "it did not end, long after its timeout"},
	} {
		for _, s := range found.strays {
			if err := c.giveBack(ctx, s, found.why); err != nil {
				return err
			}
		}
	}
	if len(dead)+len(strayed)+len(hanging) > 0 {
		c.log.WarnContext(ctx, "queue_jobs_reclaimed", "of_the_dead", len(dead), "lost", len(strayed), "hanging", len(hanging))
	}
	return nil
}

// suspected are those of the lost jobs that are so indeed. By a clock that may leap,
// a job that River has just fetched looks long lost: it must do so twice.
func (c *Client) suspected(strayed []stray) []stray {
	if c.o.Clock == nil {
		return strayed
	}
	before := c.suspects
	c.suspects = map[hold]bool{}
	var sure []stray
	for _, s := range strayed {
		if before[s.hold] {
			sure = append(sure, s)
		}
		c.suspects[s.hold] = true
	}
	return sure
}

// giveBack ends an attempt that nobody will end: the job comes back after its wait,
// at once if it is a batch whose process died, or has failed for good.
func (c *Client) giveBack(ctx context.Context, s stray, why string) error {
	text, err := json.Marshal(map[string]any{"at": c.now().UTC(), "attempt": s.attempt, "error": why, "trace": ""})
	if err != nil {
		return err
	}
	batch := s.kind == batchArgs{}.Kind()
	if !batch && s.attempt >= s.most {
		// Told first: a death in between tells it twice, rather than not at all.
		if c.o.Died != nil {
			if err := c.o.Died(ctx, s.job, why); err != nil {
				return err
			}
		}
		_, err := c.exec(ctx, endFailed, s.job, s.attempt, string(text))
		return err
	}
	var a callArgs
	if err := json.Unmarshal([]byte(s.args), &a); err != nil {
		return fmt.Errorf("job %d: %w", s.job, err)
	}
	rest := wait(a.Backoff, max(1, a.Factor), s.attempt)
	if batch {
		rest = 0 // who died is not the batch's fault; if it is, its attempts are counted
	}
	state := "retryable"
	if rest <= soon {
		state = "available"
	}
	_, err = c.exec(ctx, comeBack, s.job, s.attempt, state, rest.Seconds(), string(text))
	return err
}

// MakeDue makes available what is due, retries and calls that were put off, and has
// it fetched. The client does it by itself every few seconds; whoever moves
// Options.Clock need not wait for it.
func (c *Client) MakeDue(ctx context.Context) error {
	for {
		n, err := c.exec(ctx, wake)
		if err != nil {
			return fmt.Errorf("make due: %w", err)
		}
		if n == 0 {
			return nil
		}
		c.woken.wakeAll()
	}
}

// wake makes available what is due again.
func (c *Client) wake(ctx context.Context) error {
	_, err := c.exec(ctx, wake)
	return err
}

func (c *Client) forget(ctx context.Context) error {
	_, err := c.exec(ctx, forgetDead)
	return err
}

// beatPatience is how long a beat waits for a busy database, as long as SQLite
// lets a writer wait: to give up sooner would be to look dead.
const beatPatience = 10 * time.Second

// keepBeating says every beat that the process lives, until the function that it
// returns is called.
func (c *Client) keepBeating(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(c.o.Beat)
		defer tick.Stop()
		for {
			once, cancel := context.WithTimeout(ctx, max(c.o.Beat, beatPatience))
			err := c.beat(once)
			if err == nil {
				err = errors.Join(c.reclaim(once), c.wake(once), c.forget(once), c.pruneBatches(once))
			}
			if err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "queue_beat_failed", "err", err)
			}
			cancel()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}
