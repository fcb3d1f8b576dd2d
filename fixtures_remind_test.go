package curfew_test

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/mailtest"
)

// remind runs the stages of a fixture's reminders, the furthest first, and holds the messages that came against the sets: whoever is in
// one is told once, by that stage and at the addresses of the owners; one without an address has failed, each time. With
// more arguments the runs are others, and tell nobody.
func (w *world) remind(t *testing.T, dir string, env []string, box *mailtest.Server, before sets, more ...string) {
	t.Helper()
	s := schedules[w.name]
	if len(s.reminders) == 0 {
		return
	}
	told := len(box.Accepted())
	owners := map[string][]string{}
	rows, err := w.query(t.Context(), "SELECT realm_id, delivery_email FROM zerver_userprofile WHERE role = 100 AND is_active")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r[1] != "" {
			owners[r[0]] = append(owners[r[0]], r[1])
		}
	}
	for _, stage := range []string{"week", "days", "day"} {
		name := s.reminders[stage]
		set := w.members(t, name)
		if len(more) == 0 && sumOf(set) != before[name] { // asked for now, and at the beginning
			t.Errorf("%s has %d rows, and had %d", name, len(set), before[name].rows)
		}
		want, silent := map[string][]string{}, int64(0)
		for _, id := range set {
			if want[id] = owners[id]; len(owners[id]) == 0 {
				delete(want, id)
				silent++
			}
		}
		r := run(t, dir, env, "reminders", append([]string{"--stage", stage}, more...)...)
		got := map[string][]string{}
		for _, m := range box.Accepted()[told:] {
			of, id, _ := strings.Cut(m.Header.Get("Subject"), " ")
			if _, twice := got[id]; twice || of != stage {
				t.Errorf("organisation %s has a message of %q, by stage %s", id, m.Header.Get("Subject"), stage)
			}
			slices.Sort(m.To)
			got[id] = m.To
		}
		told = len(box.Accepted())
		if len(more) > 0 {
			want = map[string][]string{} // they were told
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stage %s: who was told, and where (-want +got):\n%s", stage, diff)
		}
		if r.Outcomes["notified"] != int64(len(want)) || r.Outcomes["failed"] != silent || r.Planned != int64(len(want))+silent {
			t.Errorf("stage %s: planned %d, outcomes %v, want %d notified and %d failed", stage, r.Planned, r.Outcomes, len(want), silent)
		}
	}
}

// members lists the keys of a set, by its query in sets.spec.
func (w *world) members(t *testing.T, name string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^-- @expect ` + regexp.QuoteMeta(name) + `\n((?:[^-].*\n)+)`).FindStringSubmatch(readFile(t, w.path("sets.spec")))
	if m == nil {
		t.Fatalf("sets.spec has no set %s", name)
	}
	rows, err := w.query(t.Context(), m[1])
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range rows {
		keys = append(keys, r[0])
	}
	if len(keys) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return keys
}

// sumOf is what expect.sql makes of keys.
func sumOf(keys []string) set {
	s := set{rows: int64(len(keys))}
	for _, k := range keys {
		sum := md5.Sum(fmt.Append(nil, k))
		n, err := strconv.ParseInt(hex.EncodeToString(sum[:])[:11], 16, 64)
		if err != nil {
			panic(err)
		}
		s.sum += n
	}
	return s
}

// TestFixturesLeaveNothingOut: each set of rows that is expected is held against what is there afterwards, or against what a run did.
func TestFixturesLeaveNothingOut(t *testing.T) {
	elsewhere := map[string]string{
		"laravel_sessions sessions.boundary": "those in sessions.keep that are as old as the cutoff says, to be counted by hand",
		"koha_circ statistics.delete":        "the table has no key: the prelude deletes from it",
		"koha_circ statistics.keep":          "the same",
	}
	for _, f := range fixtures(t) {
		s := schedules[f.name]
		used := map[string]bool{}
		for _, names := range []map[string]string{s.sets, s.blocked, s.reminders} {
			for _, name := range names {
				used[name] = true
			}
		}
		for _, names := range s.cascaded {
			for _, name := range names {
				used[name] = true
			}
		}
		named := func(file string) map[string]bool {
			found := map[string]bool{}
			for _, m := range regexp.MustCompile(`SELECT '([a-z_0-9.]+)(?: \(advisory\))?',`).FindAllStringSubmatch(readFile(t, f.path(file)), -1) {
				found[m[1]] = true
			}
			return found
		}
		after := named("after.sql")
		expected := named("expect.sql")
		if len(expected) == 0 || len(after) == 0 {
			t.Fatalf("%s: no sets", f.name)
		}
		for name := range expected {
			table, _, _ := strings.Cut(name, ".")
			if !after[name] && !after[table+".keep"] && !used[name] && elsewhere[f.name+" "+name] == "" {
				t.Errorf("%s: nothing is held against %s", f.name, name)
			}
		}
	}
}
