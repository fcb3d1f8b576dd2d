package target

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
)

// The time zone that the server, the database or the role has as its default is nobody's business: each kind of trigger gives
// the same answer, also when the zone changes while a run is under way and connections are made anew.
func TestServerTimeZones(t *testing.T) {
	cutoff := time.Date(2025, 10, 26, 0, 40, 0, 0, time.UTC) // the repeated hour in Zurich
	zones := map[Engine][]string{Postgres: {"UTC", "America/New_York", "Asia/Tokyo"}, MySQL: {"+00:00", "-05:00", "+09:00"}}
	for _, e := range []Engine{Postgres, MySQL} {
		for i, zone := range zones[e] {
			t.Run(string(e)+"/"+zone, func(t *testing.T) {
				l := newLab(t, e)
				l.zone(zone, i%2 == 0)
				for _, d := range declarations() {
					if slices.Contains(d.engines, e) {
						l.Run(d.name, func(t *testing.T) { l.at(t).checkTrigger(d, cutoff, policy.StaysAtCutoff, true) })
					}
				}
				l.checkZoneChange(zones[e][(i+1)%3])
			})
		}
	}
}

// zone makes the zone the default of new sessions, and our sessions new.
func (l *lab) zone(zone string, ofRole bool) {
	l.Helper()
	switch {
	case l.engine == MySQL:
		dbtest.MariaDBTimeZone(l.T, zone)
	case ofRole:
		l.exec(`DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET timezone = ''` + zone + `''', current_user, current_database()); END $$`)
	default:
		l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''` + zone + `''', current_database()); END $$`)
	}
	l.db.SQL.SetMaxIdleConns(0)
	l.db.SQL.SetMaxIdleConns(8)
}

func (l *lab) checkZoneChange(zone string) {
	l.exec("DROP TABLE IF EXISTS session")
	typ := map[Engine]string{Postgres: "timestamp", MySQL: "timestamp(6) NULL"}[l.engine]
	tr := map[Engine]policy.Trigger{Postgres: {Column: "at", Zone: "Europe/Zurich", Until: true}, MySQL: {Column: "at", Until: true, Null: policy.NullNever}}[l.engine]
	l.exec("CREATE TABLE session (id int NOT NULL PRIMARY KEY, at " + typ + ")")
	l.exec("CREATE INDEX session_at ON session (at)")
	var rows []string
	zurich, err := time.LoadLocation("Europe/Zurich")
	if err != nil {
		l.Fatal(err)
	}
	for i := range 24 { // an hour apart, twelve of them due, in the column's own zone
		at := asOf.Add(time.Duration(i-12) * time.Hour)
		if l.engine == Postgres {
			at = at.In(zurich)
		}
		rows = append(rows, fmt.Sprintf("(%d, '%s')", i, at.Format("2006-01-02 15:04:05")))
	}
	l.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
	p := l.policy("session", func(p *policy.Policy) { p.Trigger = tr })
	tab, err := l.db.Inspect(l.Context(), "session")
	if err != nil {
		l.Fatal(err)
	}
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: fmt.Sprintf("%x", sha256.Sum256([]byte(l.Name()))), Keys: l.keys})
	if err != nil {
		l.Fatal(err)
	}
	pages := l.pages(j, 5)
	l.exec("UPDATE session SET at = '" + asOf.Add(4*time.Hour).Format("2006-01-02 15:04:05") + "' WHERE id = 3") // renewed by four hours
	if l.engine == Postgres {
		l.zone(zone, true)
	} else {
		l.exec("SET GLOBAL time_zone = '" + zone + "'") // put back by the test's own change
		l.db.SQL.SetMaxIdleConns(0)
		l.db.SQL.SetMaxIdleConns(8)
	}
	got := l.execute(j, pages)
	if diff := cmp.Diff(map[string]int64{"deleted": 11, "no_longer_due": 1}, got.outcomes); diff != "" {
		l.Error(diff)
	}
	want := []int{3}
	for i := 12; i < 24; i++ {
		want = append(want, i)
	}
	if diff := cmp.Diff(want, l.ids("SELECT id FROM session ORDER BY id")); diff != "" {
		l.Error(diff)
	}
}
