package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// rights are what a role that owns nothing needs to work with a ledger on
// PostgreSQL, beside reading all of it; the queue's tables are there, too. It is
// what docs/daemon.md grants.
var rights = []struct{ rights, tables string }{
	{"INSERT", "audit, revision"},
	{"INSERT, UPDATE", "run, batch, operation, approval, database, schedule, occurrence, token, alert, tail"},
	{"INSERT, UPDATE", "legal_hold, hold_copy, lock"},
	{"INSERT, DELETE", "call, lock_holder"},
	{"INSERT, UPDATE, DELETE", "blocked, pause, policy, task"},
	{"INSERT, UPDATE, DELETE", "river_job, river_leader, river_queue, queue_client"},
}

const queueSequence = "river_job_id_seq"

// Grants are the statements that give a role what it needs in a ledger on
// PostgreSQL, and no more. The role is written as it is given.
func Grants(role string) []string {
	grants := []string{"GRANT USAGE ON SCHEMA curfew TO " + role, "GRANT SELECT ON ALL TABLES IN SCHEMA curfew TO " + role}
	for _, r := range rights {
		grants = append(grants, "GRANT "+r.rights+" ON curfew."+strings.ReplaceAll(r.tables, ", ", ", curfew.")+" TO "+role)
	}
	return append(grants, "GRANT USAGE ON SEQUENCE curfew."+queueSequence+" TO "+role)
}

// ApplicationGrants are the statements that let the role of an application defer calls of tasks by curfew.defer on PostgreSQL. It
// needs no right in any table.
func ApplicationGrants(role string) []string {
	return []string{"GRANT USAGE ON SCHEMA curfew TO " + role,
		"GRANT EXECUTE ON FUNCTION curfew.defer(text, jsonb, timestamptz, text) TO " + role}
}

// MissingRight is a right that our role lacks in the ledger.
type MissingRight struct{ Right, Table string }

// Queue reports whether it is the queue of batches that lacks it.
func (m MissingRight) Queue() bool {
	return strings.HasPrefix(m.Table, "river_") || strings.HasPrefix(m.Table, "queue_")
}

func (m MissingRight) String() string { return m.Right + " on curfew." + m.Table }

// MissingRights says which of the rights that [Grants] gives our role does not
// have. A SQLite ledger knows no rights, and what is not there yet none that is missing.
func (l *Ledger) MissingRights(ctx context.Context) ([]MissingRight, error) {
	if l.sqlite {
		return nil, nil
	}
	var values []string
	for _, r := range rights {
		for table := range strings.SplitSeq(r.tables, ", ") {
			for right := range strings.SplitSeq("SELECT, "+r.rights, ", ") {
				values = append(values, fmt.Sprintf("('%s', '%s')", table, right))
			}
		}
	}
	rows, err := l.query(ctx, `SELECT name, needed FROM (VALUES `+strings.Join(values, ", ")+`) AS n (name, needed)
		WHERE NOT has_table_privilege(to_regclass('curfew.' || name), needed)
		UNION ALL SELECT '`+queueSequence+`', 'USAGE' WHERE NOT has_sequence_privilege(to_regclass('curfew.`+queueSequence+`'), 'USAGE')`)
	if err != nil {
		return nil, fmt.Errorf("read the rights in the ledger: %w", err)
	}
	missing, err := collect(rows, func(row scanner) (m MissingRight, err error) {
		err = row.Scan(&m.Table, &m.Right)
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the rights in the ledger: %w", err)
	}
	return missing, nil
}

// Denied reports whether our role lacks a right in the ledger.
func Denied(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}
