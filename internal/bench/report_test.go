package main

import (
	"strings"
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	ms := func(n ...int) (d []time.Duration) {
		for _, v := range n {
			d = append(d, time.Duration(v)*time.Millisecond)
		}
		return d
	}
	hundred := ms()
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i)*time.Millisecond)
	}
	for _, tc := range []struct {
		name      string
		got, want float64
	}{
		{"median of none", median(nil), 0},
		{"median of three", median([]float64{3, 1, 2}), 2},
		{"median of four", median([]float64{4, 1, 3, 2}), 2.5},
		{"p99 of none", quantile(nil, 0.99), 0},
		{"p99 of one", quantile(ms(7), 0.99), 7},
		{"p99 of a hundred", quantile(hundred, 0.99), 99},
		{"p50 of a hundred", quantile(hundred, 0.5), 50},
		{"p99 of two", quantile(ms(1, 9), 0.99), 9},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.got, tc.want)
		}
	}
	v := make([]float64, 40)
	for i := range v {
		v[i] = float64(i)
	}
	if first, last := ends(v); first != 1.5 || last != 37.5 {
		t.Errorf("the ends of 0…39 have medians %v and %v, want 1.5 and 37.5", first, last)
	}
	if first, last := ends(nil); first != 0 || last != 0 {
		t.Errorf("the ends of nothing: %v, %v", first, last)
	}
}

func TestWords(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(-1234567), "-1,234,567"},
		{thousands(-100), "-100"},
		{span([]float64{1, 1, 1}), "1.00"},
		{span([]float64{0.5, 2, 1}), "1.00 (0.50–2.00)"},
		{span(nil), "–"},
		{orDash("%.1f", 0), "–"},
		{reproducing([]string{"--curfew", ".build/curfew", "--rows", "5000", "-out=x.md", "--idle"}), "--rows 5000 --idle"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

// TestSpeed compares within a round only: the second round is ten times as slow for everybody, and no ratio may show it.
func TestSpeed(t *testing.T) {
	took := func(wall time.Duration) sample { return sample{rows: 1000, wall: wall} }
	samples := [][]sample{{took(time.Second), took(10 * time.Second)}, {took(2 * time.Second), took(20 * time.Second)}}
	r := newReport(&settings{}, "a database")
	r.speed(newTable("t", "Title", 2500), []contender{{name: "one"}, {name: "two"}}, samples)
	for _, want := range []string{"**Title**: 1,000 of 2,500 rows are due", "| one | 550 | 1.00 |", "| two | 275 | 0.50 |"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in\n%s", want, r)
		}
	}
}

func TestSpliced(t *testing.T) {
	const doc = "# T\n<!-- bench a -->\nold\n<!-- end a -->\ntail\n<!-- bench b -->\n<!-- end b -->\n"
	got, err := spliced(doc, "a", "new\n\n")
	if want := strings.Replace(doc, "old", "new", 1); err != nil || got != want {
		t.Errorf("spliced %q, %v, want %q", got, err, want)
	}
	got, err = spliced(doc, "b", "fresh\n")
	if err != nil || !strings.Contains(got, "old") || !strings.Contains(got, "<!-- bench b -->\nfresh\n<!-- end b -->") {
		t.Errorf("spliced %q, %v", got, err)
	}
	for _, bad := range []string{"c", ""} {
		if got, err := spliced(doc, bad, "x"); err == nil {
			t.Errorf("part %q has no place, and was put into %q", bad, got)
		}
	}
}

func TestForegroundBetween(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	f := &foreground{}
	for i := range 10 {
		f.ops = append(f.ops, operation{due: at(i), took: time.Duration(i)})
	}
	got := f.between(at(2), at(5))
	if len(got) != 3 || got[0] != 2 || got[2] != 4 {
		t.Errorf("between 2 and 5 there were %v, want 2, 3 and 4", got)
	}
}

func TestCutoff(t *testing.T) {
	tab := newTable("t", "", 10)
	a := &arena{table: tab}
	if tab.due != 4 || a.cutoff() != "2020-01-01 00:00:04.500000" {
		t.Errorf("%d due before %s", tab.due, a.cutoff())
	}
	if a.postgres = true; a.cutoff() != "2020-01-01 00:00:04.500000+00" {
		t.Errorf("PostgreSQL's cutoff is %s: it must carry its zone", a.cutoff())
	}
}

func TestArguments(t *testing.T) {
	for _, bad := range [][]string{{"--rows", "10"}, {"--only", "postgres,oracle"}, {"--in-flight", "4,x"}, {"--in-flight", "0"}, {"--curfew", "/nonexistent/curfew"}} {
		var out, errs strings.Builder
		if err := run(t.Context(), bad, &out, &errs); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
