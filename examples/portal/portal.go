package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"curfew.dev/curfew"
	"curfew.dev/curfew/task"
)

// Portal is the application: organisations on trial, and the sessions of their people. Its tables and curfew's are in one
// database, so that what a request writes and what it defers commit together.
type Portal struct {
	db   *sql.DB
	jobs *curfew.Curfew
	now  func() time.Time
	send func(ctx context.Context, to, text string) error // an e-mail
	t    tasks
}

// Instants are seconds since 1970: PostgreSQL and SQLite read the same statements.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS organization (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner_email TEXT NOT NULL,
		state TEXT NOT NULL DEFAULT 'active', trial_ends_at BIGINT NOT NULL, reminded_for BIGINT, paused_at BIGINT)`,
	`CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, organization_id BIGINT NOT NULL REFERENCES organization (id) ON DELETE CASCADE,
		expires_at BIGINT NOT NULL)`,
	`CREATE INDEX IF NOT EXISTS session_expires ON session (expires_at)`,
	`CREATE TABLE IF NOT EXISTS letter (id TEXT PRIMARY KEY, recipient TEXT NOT NULL, body TEXT NOT NULL, sent_at BIGINT NOT NULL)`,
}

const (
	trial        = 30 * 24 * time.Hour
	remindBefore = 7 * 24 * time.Hour
	keepPaused   = 14 * 24 * time.Hour
)

// migrate makes the portal's tables.
func (p *Portal) migrate(ctx context.Context) error {
	for _, text := range schema {
		if _, err := p.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// inTx commits what fn did, all or nothing.
func (p *Portal) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// SignUp makes an organisation on trial. Its welcome is deferred in the same transaction: no organisation without one, and none
// without an organisation.
func (p *Portal) SignUp(ctx context.Context, name, email string) (id int64, err error) {
	err = p.inTx(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) + 1 FROM organization`).Scan(&id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO organization (id, name, owner_email, trial_ends_at) VALUES ($1, $2, $3, $4)`,
			id, name, email, p.now().Add(trial).Unix()); err != nil {
			return err
		}
		_, err := p.jobs.DeferTx(ctx, tx, p.t.welcome, Letter{Organization: id})
		return err
	})
	return id, err
}

// Extend moves the end of a trial.
func (p *Portal) Extend(ctx context.Context, id int64, by time.Duration) error {
	_, err := p.db.ExecContext(ctx, `UPDATE organization SET trial_ends_at = trial_ends_at + $1, state = 'active', paused_at = NULL WHERE id = $2`,
		int64(by/time.Second), id)
	return err
}

// Handler answers requests: POST /signup {"name", "email"}; curfew's own interface is below /v1/, and says at /readyz whether the
// background work is well.
func (p *Portal) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /signup", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Name, Email string }
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&body); err != nil || body.Name == "" || !strings.Contains(body.Email, "@") {
			http.Error(w, `send {"name": "…", "email": "…"}`, http.StatusBadRequest)
			return
		}
		id, err := p.SignUp(r.Context(), body.Name, body.Email)
		if err != nil {
			http.Error(w, "it could not be done", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "{\"organization\": %d}\n", id)
	})
	mux.Handle("/v1/", p.jobs.Handler())
	mux.Handle("/readyz", p.jobs.Handler())
	return mux
}

// tasks is the portal's background work.
type tasks struct {
	clearSessions, sendReminders, cleanup, welcome, remind *task.Task
}

// Letter names whom to write to. What is written is looked up when that is done.
type Letter struct {
	Organization int64 `json:"organization"`
	For          int64 `json:"for,omitempty"` // the end of the trial that a reminder is about
}

// define makes the tasks. Their crons may come from PORTAL_TASK_CORE_CLEAR_SESSIONS_CRON and so on.
func (p *Portal) define() []*task.Task {
	p.t = tasks{
		clearSessions: task.New("core.clear_sessions", p.clearSessions, task.Options{Description: "Expired sessions go, weekly", Cron: "42 2 * * 1"}),
		sendReminders: task.New("core.send_expiration_reminders", p.sendReminders, task.Options{Description: "Trials that end within a week are reminded, once", Cron: "42 6 * * *"}),
		cleanup: task.New("core.cleanup_expired_organizations", p.cleanup,
			task.Options{Description: "Trials that have ended are paused, and torn down two weeks later", Cron: "0 * * * *"}),
		welcome: task.New("core.welcome", p.welcome, task.Options{Priority: 1}),
		remind:  task.New("core.remind", p.remind, task.Options{Priority: 2}),
	}
	return []*task.Task{p.t.clearSessions, p.t.sendReminders, p.t.cleanup, p.t.welcome, p.t.remind}
}

type none = struct{}

// clearSessions removes expired sessions, a thousand at a time so that nobody waits for long.
func (p *Portal) clearSessions(ctx context.Context, c task.Call[none]) error {
	var total int64
	for {
		res, err := p.db.ExecContext(ctx, `DELETE FROM session WHERE id IN (SELECT id FROM session WHERE expires_at < $1 ORDER BY expires_at LIMIT 1000) AND expires_at < $1`, p.now().Unix())
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if total += n; n == 0 {
			return c.SetResult(map[string]int64{"sessions": total})
		}
	}
}

// sendReminders defers a reminder for each trial that ends soon: which trials were taken and their reminders commit together.
func (p *Portal) sendReminders(ctx context.Context, _ task.Call[none]) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id, trial_ends_at FROM organization WHERE state = 'active' AND trial_ends_at > $1 AND trial_ends_at <= $2
			AND (reminded_for IS NULL OR reminded_for <> trial_ends_at) ORDER BY id`, p.now().Unix(), p.now().Add(remindBefore).Unix())
		if err != nil {
			return err
		}
		var due []Letter
		for rows.Next() {
			var l Letter
			if err := rows.Scan(&l.Organization, &l.For); err != nil {
				return err
			}
			due = append(due, l)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, l := range due {
			if _, err := tx.ExecContext(ctx, `UPDATE organization SET reminded_for = trial_ends_at WHERE id = $1`, l.Organization); err != nil {
				return err
			}
			if _, err := p.jobs.DeferTx(ctx, tx, p.t.remind, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// cleanup pauses organisations whose trial has ended, and tears those down that were paused for two weeks.
func (p *Portal) cleanup(ctx context.Context, _ task.Call[none]) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE organization SET state = 'paused', paused_at = $1 WHERE state = 'active' AND trial_ends_at <= $1`, p.now().Unix()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM organization WHERE state = 'paused' AND paused_at <= $1`, p.now().Add(-keepPaused).Unix())
		return err
	})
}

func (p *Portal) welcome(ctx context.Context, c task.Call[Letter]) error {
	return p.write(ctx, fmt.Sprintf("welcome-%d", c.Args.Organization), c.Args.Organization, "Welcome!")
}

// remind does nothing when the trial was extended since.
func (p *Portal) remind(ctx context.Context, c task.Call[Letter]) error {
	var ends int64
	err := p.db.QueryRowContext(ctx, `SELECT trial_ends_at FROM organization WHERE id = $1 AND state = 'active'`, c.Args.Organization).Scan(&ends)
	if err == sql.ErrNoRows || err == nil && ends != c.Args.For {
		return nil
	}
	if err != nil {
		return err
	}
	return p.write(ctx, fmt.Sprintf("remind-%d-%d", c.Args.Organization, ends), c.Args.Organization, "Your trial ends on "+time.Unix(ends, 0).UTC().Format("2 January 2006")+".")
}

// write sends a letter to an organisation's owner and files it. A call is done again when its process died before it could say that it was
// done: then the letter is filed already.
func (p *Portal) write(ctx context.Context, id string, organization int64, text string) error {
	var to string
	err := p.db.QueryRowContext(ctx, `SELECT owner_email FROM organization WHERE id = $1`, organization).Scan(&to)
	if err == sql.ErrNoRows {
		return task.Fail(fmt.Errorf("organisation %d is gone", organization))
	}
	if err != nil {
		return err
	}
	var filed int
	if err := p.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM letter WHERE id = $1`, id).Scan(&filed); err != nil || filed > 0 {
		return err
	}
	if err := p.send(ctx, to, text); err != nil {
		return err
	}
	_, err = p.db.ExecContext(ctx, `INSERT INTO letter (id, recipient, body, sent_at) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING`, id, to, text, p.now().Unix())
	return err
}
