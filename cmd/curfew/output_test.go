package main

import (
	"strings"
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 120431: "120,431", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	commands := []string{"check", "explain", "run", "runs", "show"}
	for word, want := range map[string]string{
		"rnu": "run", "chekc": "check", "shwo": "show", "exp": "explain", "zzz": "", "delete": "", "runns": "runs", "x": "",
	} {
		if got := nearest(word, commands); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	p := &printer{color: true}
	p.table([][]cell{heads("NAME", "ROWS", "NOTE"), {text("été"), number(1200), colored(good, "x")}, {text("a"), number(3)}})
	want := strings.Join([]string{
		"\x1b[2mNAME\x1b[0m   \x1b[2mROWS\x1b[0m  \x1b[2mNOTE\x1b[0m",
		"été   1,200  \x1b[32mx\x1b[0m",
		"a         3",
		"",
	}, "\n")
	if got := p.b.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestWrap(t *testing.T) {
	s := strings.Repeat("four ", 40)
	for i, line := range strings.Split(wrap(s, "    ", 100), "\n") {
		if i > 0 && !strings.HasPrefix(line, "    four") {
			t.Errorf("line %d is not indented: %q", i, line)
		}
		if len(line) > 100 {
			t.Errorf("line %d is %d wide", i, len(line))
		}
	}
}

func TestScalar(t *testing.T) {
	for s, want := range map[string]string{
		"circulation_event": "circulation_event", "auth.identities": "auth.identities", "Europe/Berlin": "Europe/Berlin",
		"no": `"no"`, "True": `"True"`, "12": `"12"`, "a b": `"a b"`, `q"t`: `"q\"t"`, "a: b": `"a: b"`, "<x>": `"<x>"`, "": `""`, "a\nb": `"a\nb"`,
	} {
		if got := scalar(s); got != want {
			t.Errorf("scalar(%q) = %s, want %s", s, got, want)
		}
	}
}

func TestNameDatabase(t *testing.T) {
	for url, want := range map[string]databaseName{
		"sqlite:library.db":                           {"library", "sqlite:library.db", ""},
		"sqlite:/var/lib/My Library.sqlite3":          {"my_library", "sqlite:/var/lib/My Library.sqlite3", ""},
		"postgres://u:secret@db.example.org/Library":  {"library", "${LIBRARY_URL}", "LIBRARY_URL"},
		"mysql://u:secret@db.example.org/7seas?tls=1": {"db_7seas", "${DB_7SEAS_URL}", "DB_7SEAS_URL"},
		"postgres://u:secret@db.example.org":          {"database", "${DATABASE_URL}", "DATABASE_URL"},
	} {
		got := nameDatabase(url, ".")
		if got != want {
			t.Errorf("%s is %+v, want %+v", url, got, want)
		}
		if strings.Contains(got.url+got.name, "secret") {
			t.Errorf("%s leaks", url)
		}
	}
}

// TestNameDatabaseElsewhere: a relative path starts from the folder of the policy file that is written.
func TestNameDatabaseElsewhere(t *testing.T) {
	for folder, want := range map[string]string{".": "sqlite:data/library.db", "etc": "sqlite:../data/library.db", "data": "sqlite:library.db"} {
		if got := nameDatabase("sqlite:data/library.db", folder).url; got != want {
			t.Errorf("for a file in %s it is %s, want %s", folder, got, want)
		}
	}
}

func TestParseInstant(t *testing.T) {
	got, err := parseInstant("2026-07-01T04:00:00.000001+02:00")
	if want := time.Date(2026, 7, 1, 2, 0, 0, 1000, time.UTC); err != nil || !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"yesterday", "2026-07-01", "2026-07-01 02:00:00", "2026-07-01T02:00:00", "2026-07-01T02:00:00.0000001Z", "2026-02-30T00:00:00Z", "1782871200"} {
		if got, err := parseInstant(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestYearsBefore(t *testing.T) {
	for from, want := range map[string]string{"2026-11-30": "2024-11-30", "2028-02-29": "2026-02-28", "2026-02-28": "2024-02-28"} {
		at, err := time.Parse(time.DateOnly, from)
		if err != nil {
			t.Fatal(err)
		}
		if got := yearsBefore(at, 2).Format(time.DateOnly); got != want {
			t.Errorf("two years before %s is %s, want %s", from, got, want)
		}
	}
}

// A list on a narrow terminal has its last column below, and one that fits or is no terminal's has it beside.
func TestList(t *testing.T) {
	rows := [][]cell{heads("RUN", "STATE", "OUTCOMES"), {text("98ccbad76efa"), text("succeeded"), text("1,158 deleted, 1 guarded, 1 blocked")}, {text("7c3c"), text("failed"), text("")}}
	beside := "RUN           STATE      OUTCOMES\n98ccbad76efa  succeeded  1,158 deleted, 1 guarded, 1 blocked\n7c3c          failed\n"
	below := "RUN           STATE\n    OUTCOMES\n98ccbad76efa  succeeded\n    1,158 deleted, 1 guarded,\n    1 blocked\n7c3c          failed\n"
	for width, want := range map[int]string{0: beside, 80: beside, 30: below} {
		p := &printer{width: width}
		p.list(rows)
		if got := p.b.String(); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}
