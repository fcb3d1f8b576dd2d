package target

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// A sample is one stored trigger value: the literal to insert and the instant it denotes; nil when it denotes none.
type sample struct {
	lit string
	at  *time.Time
}

// A declaration is a column type with what the policy says of it, and how to write an instant in it.
type declaration struct {
	name    string
	engines []Engine
	typ     string
	tr      policy.Trigger
	write   func(e Engine, t time.Time, loc *time.Location) (lit string, denotes time.Time)
	extra   func(e Engine) []sample // values that time.Time does not reach, and values that are no instant
}

func quote(s string) string { return "'" + s + "'" }

func civil(layout string) func(Engine, time.Time, *time.Location) (string, time.Time) {
	return func(_ Engine, t time.Time, loc *time.Location) (string, time.Time) {
		text := policy.WallOf(t, loc).UTC().Format(layout)
		back, err := time.Parse(layout, text) // what the layout keeps of it
		if err != nil {
			panic(err)
		}
		return quote(text), policy.WallFromUTC(back).Instant(loc)
	}
}

func number(unit time.Duration) func(Engine, time.Time, *time.Location) (string, time.Time) {
	return func(_ Engine, t time.Time, _ *time.Location) (string, time.Time) {
		n := t.UnixNano() / int64(unit)
		return strconv.FormatInt(n, 10), time.Unix(0, n*int64(unit)).UTC()
	}
}

func ancient() *time.Time { t := time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC); return &t }

func declarations() []declaration {
	everywhere := []Engine{Postgres, MySQL, SQLite}
	iso := func(layout string) func(Engine, time.Time, *time.Location) (string, time.Time) {
		return func(_ Engine, t time.Time, _ *time.Location) (string, time.Time) {
			t = t.Truncate(time.Microsecond)
			return quote(t.In(time.FixedZone("", 7*3600)).Format(layout)), t
		}
	}
	junk := func(e Engine) []sample {
		out := []sample{}
		for _, s := range []string{"", "soon", "2026-02-30T00:00:00Z", "20260101", "0000-00-00 00:00:00", "2024-13-01", "1999-01-01T00:00:00Zx", "2024-01-01 24:00:00Z", "-infinity", "now"} {
			out = append(out, sample{quote(s), nil})
		}
		return out
	}
	return []declaration{
		{"timestamptz", []Engine{Postgres}, "timestamptz", policy.Trigger{},
			func(_ Engine, t time.Time, _ *time.Location) (string, time.Time) {
				t = t.Truncate(time.Microsecond)
				return quote(t.UTC().Format("2006-01-02 15:04:05.000000") + "+00"), t
			},
			func(Engine) []sample {
				return []sample{{quote("-infinity"), ancient()}, {quote("infinity"), future()}, {quote("0044-03-15 BC"), ancient()}, {quote("epoch"), epoch()}}
			}},
		{"timestamp", []Engine{MySQL}, "timestamp(6) NULL", policy.Trigger{},
			func(_ Engine, t time.Time, _ *time.Location) (string, time.Time) {
				t = t.Truncate(time.Microsecond)
				return quote(t.UTC().Format("2006-01-02 15:04:05.000000")), t
			},
			func(Engine) []sample { return []sample{{quote("0000-00-00 00:00:00"), nil}} }},
		{"wall", []Engine{Postgres}, "timestamp", policy.Trigger{Zone: "Europe/Zurich"}, civil("2006-01-02 15:04:05.000000"),
			func(Engine) []sample {
				return []sample{{quote("-infinity"), ancient()}, {quote("0001-01-01"), ancient()}}
			}},
		{"wall", []Engine{MySQL}, "datetime(6)", policy.Trigger{Zone: "Europe/Zurich"}, civil("2006-01-02 15:04:05.000000"),
			func(Engine) []sample {
				return []sample{{quote("0000-00-00 00:00:00"), nil}, {quote("2024-00-00 00:00:00"), nil}, {quote("0001-01-01 00:00:00"), ancient()}}
			}},
		{"wall in New York", []Engine{Postgres}, "timestamp", policy.Trigger{Zone: "America/New_York"}, civil("2006-01-02 15:04:05.000000"), nil},
		{"date", []Engine{Postgres, MySQL}, "date", policy.Trigger{Zone: "Europe/Zurich"},
			func(_ Engine, t time.Time, loc *time.Location) (string, time.Time) {
				d := policy.DateOf(t, loc)
				return quote(d.String()), policy.DayOver(d, loc)
			},
			func(e Engine) []sample {
				if e == MySQL {
					return []sample{{quote("0000-00-00"), nil}, {quote("2024-01-00"), nil}}
				}
				return []sample{{quote("-infinity"), ancient()}}
			}},
		{"seconds", everywhere, "int", policy.Trigger{Unit: policy.Seconds}, number(time.Second),
			func(Engine) []sample {
				return []sample{{"0", epoch()}, {"-7", ancient()}, {"2147483647", future()}, {"-2147483648", ancient()}}
			}},
		{"milliseconds", everywhere, "bigint", policy.Trigger{Unit: policy.Milliseconds}, number(time.Millisecond),
			func(Engine) []sample {
				return []sample{{"0", epoch()}, {strconv.Itoa(math.MinInt64), ancient()}, {strconv.Itoa(math.MaxInt64), future()}}
			}},
		{"microseconds", everywhere, "bigint", policy.Trigger{Unit: policy.Microseconds}, number(time.Microsecond), nil},
		{"nanoseconds", everywhere, "bigint", policy.Trigger{Unit: policy.Nanoseconds}, number(time.Nanosecond), nil},
		{"unsigned seconds", []Engine{MySQL}, "bigint unsigned", policy.Trigger{Unit: policy.Seconds}, number(time.Second),
			func(Engine) []sample { return []sample{{"0", epoch()}, {"18446744073709551615", future()}} }},
		{"decimal seconds", everywhere, "decimal(20,6)", policy.Trigger{Unit: policy.Seconds},
			func(_ Engine, t time.Time, _ *time.Location) (string, time.Time) {
				t = t.Truncate(time.Microsecond)
				return fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000), t
			}, nil},
		{"julian days", []Engine{SQLite}, "real", policy.Trigger{Unit: policy.JulianDay},
			func(_ Engine, t time.Time, _ *time.Location) (string, time.Time) {
				t = t.Truncate(time.Second) // a double of that size tells about 40 µs apart
				return strconv.FormatFloat(2440587.5+float64(t.Unix())/86400, 'f', -1, 64), t
			}, nil},
		{"iso8601 with offsets", everywhere, "varchar(40)", policy.Trigger{Format: policy.ISO8601}, iso("2006-01-02T15:04:05.000000Z07:00"),
			func(e Engine) []sample {
				return append(junk(e), sample{quote("2020-01-01T00:00:00"), nil}, sample{quote("2020-01-01"), nil})
			}},
		{"iso8601 compact offsets", everywhere, "varchar(40)", policy.Trigger{Format: policy.ISO8601}, iso("2006-01-02 15:04:05.000000-0700"), nil},
		{"iso8601 without offsets", everywhere, "varchar(40)", policy.Trigger{Format: policy.ISO8601, Zone: "Europe/Zurich"}, civil("2006-01-02T15:04:05.000000"), junk},
		{"iso8601 of minutes", everywhere, "varchar(40)", policy.Trigger{Format: policy.ISO8601, Zone: "Europe/Zurich"}, civil("2006-01-02 15:04"), nil},
		{"iso8601 of days", everywhere, "varchar(40)", policy.Trigger{Format: policy.ISO8601, Zone: "Europe/Zurich"},
			func(_ Engine, t time.Time, loc *time.Location) (string, time.Time) {
				d := policy.DateOf(t, loc)
				return quote(d.String()), policy.DayOver(d, loc)
			}, nil},
		{"fourteen digits", everywhere, "varchar(14)", policy.Trigger{Format: policy.Compact, Zone: "Europe/Zurich"}, civil("20060102150405"),
			func(Engine) []sample {
				return []sample{{quote(""), nil}, {quote("infinity"), nil}, {quote("20240230000000"), nil}, {quote("00000000000000"), nil}, {quote("2024010100000"), nil}}
			}},
		{"fourteen bytes", []Engine{Postgres, MySQL}, "", policy.Trigger{Format: policy.Compact, Zone: "UTC"},
			func(e Engine, t time.Time, loc *time.Location) (string, time.Time) {
				text, denotes := civil("20060102150405")(e, t, loc)
				text = hex.EncodeToString([]byte(strings.Trim(text, "'")))
				if e == Postgres {
					return `'\x` + text + `'`, denotes
				}
				return "UNHEX('" + text + "')", denotes
			}, nil},
	}
}

func epoch() *time.Time  { t := time.Unix(0, 0).UTC(); return &t }
func future() *time.Time { t := time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC); return &t }

// instantsAround are instants near the cutoff, at every scale, and near the changes of the clock around it.
func instantsAround(c time.Time, rng *rand.Rand) []time.Time {
	out := []time.Time{c}
	for _, d := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 12 * time.Hour, 24 * time.Hour, 25 * time.Hour, 48 * time.Hour} {
		out = append(out, c.Add(d), c.Add(-d), c.Add(time.Duration(rng.Int64N(int64(d)))), c.Add(-time.Duration(rng.Int64N(int64(d)))))
	}
	for range 10 {
		out = append(out, c.Add(-time.Duration(rng.Int64N(int64(20*365*24*time.Hour)))))
	}
	return out
}

// Every kind of trigger, on every engine, at cutoffs around both changes of the clock: exactly the rows whose instant is
// before the cutoff go (or up to it, where the policy says so), and what is no instant stays and is counted.
func TestTriggers(t *testing.T) {
	cutoffs := []time.Time{
		asOf,                       // the end of the gap in Zurich
		asOf.Add(23 * time.Minute), // just after it
		time.Date(2025, 10, 26, 0, 40, 0, 0, time.UTC), // the first time through the repeated hour
		time.Date(2025, 10, 26, 1, 20, 0, 0, time.UTC), // the second
		time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC),  // midnight in Zurich
		time.Date(2026, 1, 31, 12, 0, 0, 500_000_000, time.UTC),
	}
	for _, e := range []Engine{Postgres, MySQL, SQLite} {
		t.Run(string(e), func(t *testing.T) {
			l := newLab(t, e)
			for _, d := range declarations() {
				if !slices.Contains(d.engines, e) {
					continue
				}
				for i, c := range cutoffs {
					for _, at := range []policy.AtCutoff{policy.StaysAtCutoff, policy.DueAtCutoff} {
						t.Run(fmt.Sprintf("%s/%d%s", d.name, i, at), func(t *testing.T) {
							l := &lab{T: t, engine: l.engine, db: l.db, other: l.other, keys: l.keys, url: l.url}
							l.checkTrigger(d, c, at, i%2 == 0)
						})
					}
				}
			}
		})
	}
}

func (l *lab) checkTrigger(d declaration, c time.Time, at policy.AtCutoff, index bool) {
	typ := d.typ
	if typ == "" {
		typ = map[Engine]string{Postgres: "bytea", MySQL: "varbinary(14)"}[l.engine]
	}
	loc := time.UTC
	if d.tr.Zone != "" {
		loc, _ = time.LoadLocation(d.tr.Zone)
	}
	var samples []sample
	for _, t := range instantsAround(c, rand.New(rand.NewPCG(1, 2))) {
		lit, denotes := d.write(l.engine, t, loc)
		samples = append(samples, sample{lit, &denotes})
	}
	plain := len(samples)
	if d.extra != nil {
		samples = append(samples, d.extra(l.engine)...)
	}
	l.exec("DROP TABLE IF EXISTS trig")
	l.exec("CREATE TABLE trig (id int NOT NULL PRIMARY KEY, at " + typ + ")")
	if index {
		l.exec("CREATE INDEX trig_at ON trig (at)")
	}
	stay, unreadable, rows := []int{}, int64(0), []string{}
	for id, s := range samples {
		rows = append(rows, fmt.Sprintf("(%d, %s)", id, s.lit))
		switch {
		case s.at == nil:
			unreadable++
			stay = append(stay, id)
		case s.at.Before(c) || at == policy.DueAtCutoff && s.at.Equal(c):
		default:
			stay = append(stay, id)
		}
	}
	l.exec(fmt.Sprintf("INSERT INTO trig VALUES %s, (%d, NULL)", strings.Join(rows, ", "), len(samples)))
	stay = append(stay, len(samples))
	tr := d.tr
	tr.Column, tr.Until, tr.Null = "at", true, policy.NullNever
	p := l.policy("trig", func(p *policy.Policy) { p.Trigger = tr; p.AtCutoff = at; p.Name = l.Name() })
	tab, err := l.db.Inspect(l.Context(), "trig")
	if err != nil {
		l.Fatal(err)
	}
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: c, Cutoff: c, Run: l.Name(), Keys: l.keys})
	if err != nil {
		l.Fatal(err)
	}
	l.exec("DELETE FROM " + j.d.own("receipt"))
	l.checkDueInstants(j, samples, plain)
	got := l.drain(j, 13)
	if diff := cmp.Diff(stay, l.ids("SELECT id FROM trig ORDER BY id")); diff != "" {
		l.Errorf("rows that stay (-want +got):\n%s", diff)
		for _, id := range stay[:min(3, len(stay)-1)] {
			l.Logf("%d: %s %v", id, samples[id].lit, samples[id].at)
		}
	}
	if got.outcomes["unreadable"] != unreadable {
		l.Errorf("unreadable: %d, want %d", got.outcomes["unreadable"], unreadable)
	}
}
