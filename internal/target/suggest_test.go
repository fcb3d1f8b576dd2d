package target

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

// short is a suggestion in a line: what the CLI would write, without its reasons.
func short(s Suggestion) string {
	kind := "since"
	if s.Until {
		kind = "until"
	}
	line := fmt.Sprintf("%s: %s %s", s.Table, kind, s.Column)
	for _, o := range []struct{ name, value string }{{"zone", s.Zone}, {"unit", string(s.Unit)}, {"format", string(s.Format)}, {"null", string(s.Null)},
		{"keep", s.Keep}, {"subject", s.Subject}, {"cascade", strings.Join(s.Cascade, " ")}} {
		if o.value != "" {
			line += " " + o.name + "=" + o.value
		}
	}
	if len(s.Key) == 0 {
		line += " (no key)"
	}
	return line
}

func suggestions(t *testing.T, d *DB) (lines []string, all []Suggestion) {
	t.Helper()
	all, err := d.Suggest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		lines = append(lines, short(s))
	}
	return lines, all
}

func TestSuggestFixtures(t *testing.T) {
	const iso = `'2026-03-29T01:00:00.000Z'`
	cases := []struct {
		name string
		e    Engine
		rows []string
		want []string
	}{
		{"django_sessions", Postgres, nil, []string{"django_session: until expire_date"}},
		{"gotrue_auth", Postgres, nil, []string{
			"auth.sessions: until not_after null=never subject=user_id cascade=auth.mfa_amr_claims auth.refresh_tokens",
			"auth.users: since deleted_at null=never keep=30d subject=id cascade=auth.identities auth.mfa_factors auth.one_time_tokens auth.sessions auth.mfa_challenges auth.mfa_amr_claims auth.refresh_tokens",
			"auth.audit_log_entries: since created_at null=never keep=1y",
			"auth.flow_state: since created_at null=never keep=1y subject=user_id",
			"auth.mfa_challenges: since created_at keep=1y",
			"auth.one_time_tokens: since created_at zone=UTC keep=1y subject=user_id",
			"auth.refresh_tokens: since created_at null=never keep=1y subject=user_id",
		}},
		{"zulip_demo_orgs", Postgres, nil, []string{
			"zerver_realm: until scheduled_deletion_date null=never",
			"zerver_message: since date_sent keep=1y",
			"zerver_realmauditlog: since event_time keep=1y",
		}},
		{"koha_circ", MySQL, []string{`INSERT INTO oauth_access_tokens VALUES ('a', 'b', UNIX_TIMESTAMP())`}, []string{
			"borrower_debarments: until expiration zone=UTC null=never subject=borrowernumber",
			"oauth_access_tokens: until expires unit=s",
			"borrowers: until dateexpiry zone=UTC null=never subject=borrowernumber cascade=accountlines borrower_debarments issues message_queue old_issues old_reserves",
			"old_issues: since returndate zone=UTC null=never keep=2y subject=borrowernumber",
			"old_reserves: since cancellationdate zone=UTC null=never keep=2y subject=borrowernumber",
			"message_queue: since time_queued null=never keep=1y subject=borrowernumber",
			"issues: since returndate zone=UTC null=never keep=2y subject=borrowernumber",
			"action_logs: since timestamp keep=1y subject=user",
			"statistics: since datetime zone=UTC null=never keep=1y subject=borrowernumber (no key)",
		}},
		{"laravel_sessions", MySQL, []string{`INSERT INTO sessions (id, payload, last_activity) SELECT seq, '', UNIX_TIMESTAMP() - seq FROM seq_1_to_50`},
			[]string{"sessions: since last_activity unit=s keep=90d subject=user_id"}},
		{"better_auth", SQLite, []string{
			`INSERT INTO "user" VALUES ('u', 'n', 'e', 1, NULL, ` + iso + `, ` + iso + `)`,
			`INSERT INTO "session" VALUES ('s', ` + iso + `, 't', ` + iso + `, ` + iso + `, NULL, NULL, 'u')`,
			`INSERT INTO "account" VALUES ('a', 'x', 'p', 'u', 'at', 'rt', ` + iso + `, ` + iso + `, NULL, ` + iso + `, ` + iso + `)`,
		}, []string{
			"session: until expiresAt format=iso8601 subject=userId",
			"verification: until expiresAt zone=UTC format=iso8601", // empty: by its declared type
			// and no account: it is its tokens that expire
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			schema, err := os.ReadFile("../../testdata/fixtures/" + c.name + "/schema.sql")
			if err != nil {
				t.Fatal(err)
			}
			d := arrange(t, c.e, append([]string{string(schema)}, c.rows...)...)
			got, all := suggestions(t, d)
			// Equal scores are ordered by size, which for fresh tables is an estimate.
			same(t, "suggestions", slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(c.want)))
			for _, s := range all {
				p := s.Policy("db")
				p.Cascade, p.Triggers = s.Cascade, s.Triggers
				if refused := Refused(Judge(p, inspect(t, d, s.Table), d.server)); (refused != nil) != (len(s.Refusals) > 0) || (refused != nil) != (len(s.Key) == 0) {
					t.Errorf("%s: refused %v, told %q", s.Table, refused, s.Refusals)
				}
				if len(s.Why) == 0 || s.Name == "" {
					t.Errorf("%s: nothing speaks for it: %+v", s.Table, s)
				}
			}
			if c.name == "koha_circ" && (all[0].score < all[len(all)-1].score || all[len(all)-1].score >= 60) {
				t.Errorf("not the surest first: %v", got)
			}
		})
	}
}

// What the rows hold decides, not what the column is called.
func TestSuggestFromValues(t *testing.T) {
	cases := []struct {
		name, column, value string
		engines             []Engine
		want                string
	}{
		{"seconds", "bigint", "1700000000", engines, "until expires_at unit=s"},
		{"milliseconds", "bigint", "1700000000000", engines, "until expires_at unit=ms"},
		{"microseconds", "bigint", "1700000000000000", engines, "until expires_at unit=us"},
		{"a fraction", "double precision", "1700000000.5", engines, "until expires_at unit=s"},
		{"Julian days", "real", "2460000.5", []Engine{SQLite}, "until expires_at unit=julian_day"},
		{"a length", "bigint", "3600", engines, ""},
		{"zoned text", "varchar(40)", "'2024-01-01T00:00:00+02:00'", engines, "until expires_at format=iso8601"},
		{"plain text", "varchar(40)", "'2024-01-01 00:00:00'", engines, "until expires_at zone=UTC format=iso8601"},
		{"compact text", "varchar(40)", "'20240101000000'", engines, "until expires_at zone=UTC format=yyyymmddhhmmss"},
		{"compact bytes", "binary(14)", "'20240101000000'", []Engine{MySQL}, "until expires_at zone=UTC format=yyyymmddhhmmss"},
		{"other text", "varchar(40)", "'next week'", engines, ""},
		{"a flag", "boolean", "true", []Engine{Postgres}, ""},
		{"declared a date, holds numbers", "date", "1700000000", []Engine{SQLite}, "until expires_at unit=s"},
		{"declared a date, holds text", "date", "'2024-01-01T00:00:00Z'", []Engine{SQLite}, "until expires_at format=iso8601"},
	}
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e)
		for i, c := range cases {
			if !strings.Contains(fmt.Sprint(c.engines), string(e)) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				table := fmt.Sprintf("thing%d", i)
				for _, s := range []string{
					fmt.Sprintf("CREATE TABLE %s (id integer NOT NULL PRIMARY KEY, expires_at %s NOT NULL)", table, c.column),
					fmt.Sprintf("INSERT INTO %s VALUES (1, %s)", table, c.value),
				} {
					if _, err := d.SQL.Exec(s); err != nil {
						t.Fatal(err)
					}
				}
				got, _ := suggestions(t, d)
				want := []string{}
				if c.want != "" {
					want = []string{table + ": " + c.want}
				}
				same(t, "suggestions", got, want)
				if _, err := d.SQL.Exec("DROP TABLE " + table); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

func TestSuggestLeavesOut(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e,
			`CREATE TABLE curfew_receipt (id integer NOT NULL PRIMARY KEY, expires_at bigint NOT NULL)`,
			`CREATE TABLE django_migrations (id integer NOT NULL PRIMARY KEY, expires_at bigint NOT NULL)`,
			`CREATE TABLE customer (id integer NOT NULL PRIMARY KEY, created_at bigint NOT NULL)`,
			`CREATE TABLE thing (id integer NOT NULL PRIMARY KEY, expires_in bigint NOT NULL)`,
			`CREATE TABLE sess_base (id integer NOT NULL PRIMARY KEY, expires_at bigint NOT NULL)`,
			`CREATE VIEW sess AS SELECT * FROM sess_base`,
		)
		got, all := suggestions(t, d)
		same(t, "suggestions", got, []string{"sess_base: until expires_at unit=s"})
		if !strings.Contains(strings.Join(all[0].Caveats, "\n"), "is a guess") {
			t.Errorf("caveats of an empty table: %q", all[0].Caveats)
		}
	})
}

// A role sees what it may see, and the rest is left out without an error.
func TestSuggestRights(t *testing.T) {
	url := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, url)
	execAll(t, url, `CREATE TABLE session (id int PRIMARY KEY, expires_at bigint NOT NULL)`, `CREATE TABLE token (id int PRIMARY KEY, expires_at bigint NOT NULL)`,
		`GRANT SELECT ON token TO `+role)
	got, _ := suggestions(t, openDB(t, asRole))
	same(t, "suggestions", got, []string{"token: until expires_at unit=s"})
}

func TestReadName(t *testing.T) {
	for _, c := range []struct {
		table, column string
		propose       bool
		until         bool
	}{
		{"session", "expiresAt", true, true}, {"session", "EXPIRES", true, true}, {"session", "session_expires_at", true, true},
		{"access_codes", "code_valid_until_utc", true, true}, {"account", "accessTokenExpiresAt", false, true}, {"user", "createdAt", false, false},
		{"log", "created_at", true, false}, {"log", "recreated", false, false}, {"user", "password_expires_at", false, true}, {"thing", "expires_in", false, false},
		{"thing", "attl", false, false},
		{"django_admin_log", "action_time", true, false}, {"audit", "at", true, false}, {"thing", "that", false, false}, {"audit_log", "logged_at", true, false},
		{"log", "created", true, false}, {"log", "modified", true, false}, {"device", "last_seen", true, false}, {"mail", "date_sent", true, false}, {"users", "deleted_at", true, false}, {"loans", "returndate", true, false}, {"thing", "name", false, false},
	} {
		r := readName(c.table, c.column)
		if got := r.score >= leastScore; got != c.propose || r.until != c.until {
			t.Errorf("%s.%s: %+v", c.table, c.column, r)
		}
	}
	// The expiry of something in the row counts for less than that of the row.
	if a, b := readName("account", "accessTokenExpiresAt"), readName("session", "expiresAt"); a.score >= b.score-50 {
		t.Errorf("%d, %d", a.score, b.score)
	}
}

func TestPolicyName(t *testing.T) {
	for in, want := range map[string]string{
		"auth.sessions": "sessions", "LoanEvents": "loan_events", `we"ird name`: "we_ird_name", "2fa": "table_2fa", "été": "t", "_x_": "x", "": "table",
		strings.Repeat("a", 100): strings.Repeat("a", 60),
	} {
		if got := policyName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
