package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/curfewtest"
)

const day = 24 * time.Hour

// lab is the portal under test: the real tasks and the real engine, a clock that the test moves.
type lab struct {
	*Portal
	k    *curfewtest.Kit
	test *testing.T
	sent []string
	down error // of the mail server
}

func newLab(t *testing.T) *lab {
	l := &lab{Portal: &Portal{}, test: t}
	l.send = func(_ context.Context, to, text string) error {
		if l.down != nil {
			return l.down
		}
		l.sent = append(l.sent, to+": "+text)
		return nil
	}
	// Hourly in earnest; four times a day is enough to see it, and 45 days pass sooner.
	env := map[string]string{"CURFEW_TASK_CORE_CLEANUP_EXPIRED_ORGANIZATIONS_CRON": "0 */6 * * *"}
	l.k = curfewtest.New(t, curfewtest.Options{Tasks: l.define(), Env: env, Start: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}) // a Monday
	l.jobs, l.now, l.db = l.k.App(), l.k.Now, l.k.DB()
	if err := l.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) count(query string, args ...any) (n int) {
	l.test.Helper()
	if err := l.db.QueryRowContext(l.test.Context(), query, args...).Scan(&n); err != nil {
		l.test.Fatal(err)
	}
	return n
}

func (l *lab) signUp(name string) int64 {
	l.test.Helper()
	id, err := l.SignUp(l.test.Context(), name, name+"@example.org")
	if err != nil {
		l.test.Fatal(err)
	}
	return id
}

func TestSignUpDefersAWelcome(t *testing.T) {
	l := newLab(t)
	w := httptest.NewRecorder()
	l.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/signup", strings.NewReader(`{"name": "ada", "email": "ada@example.org"}`)))
	if w.Code != http.StatusCreated {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	l.k.RequireDeferred(l.t.welcome, Letter{Organization: 1})
	l.k.Drain()
	if len(l.sent) != 1 || l.sent[0] != "ada@example.org: Welcome!" {
		t.Errorf("letters: %q", l.sent)
	}
}

// No organisation, no welcome: they commit together.
func TestSignUpTwice(t *testing.T) {
	l := newLab(t)
	l.signUp("ada")
	if _, err := l.SignUp(t.Context(), "ada", "other@example.org"); err == nil {
		t.Fatal("the same name again")
	}
	l.k.Drain()
	if n := len(l.k.Calls(l.t.welcome)); n != 1 || len(l.sent) != 1 {
		t.Errorf("%d calls, letters %q", n, l.sent)
	}
}

func TestTrial(t *testing.T) {
	l := newLab(t)
	ada, grace := l.signUp("ada"), l.signUp("grace")
	l.k.Advance(24 * day)
	reminders := func() (n int) {
		for _, s := range l.sent {
			if strings.Contains(s, "Your trial ends on 1 April 2026") {
				n++
			}
		}
		return n
	}
	if n := reminders(); n != 2 {
		t.Fatalf("%d reminders after 24 days: %q", n, l.sent)
	}
	if err := l.Extend(t.Context(), grace, 10*day); err != nil {
		t.Fatal(err)
	}
	l.k.Advance(7 * day)
	if n := l.count(`SELECT COUNT(*) FROM organization WHERE state = 'paused' AND id = $1`, ada); n != 1 || reminders() != 2 {
		t.Errorf("ada is paused: %d; reminders: %q", n, l.sent)
	}
	if n := l.count(`SELECT COUNT(*) FROM organization WHERE state = 'active' AND id = $1`, grace); n != 1 {
		t.Error("grace, whose trial was extended, is not active")
	}
	l.k.Advance(14 * day)
	if n := l.count(`SELECT COUNT(*) FROM organization WHERE id = $1`, ada); n != 0 {
		t.Error("ada was not torn down")
	}
	if n := l.count(`SELECT COUNT(*) FROM organization WHERE id = $1 AND state = 'paused'`, grace); n != 1 {
		t.Error("grace was not paused ten days later")
	}
	if !strings.Contains(strings.Join(l.sent, "\n"), "grace@example.org: Your trial ends on 11 April 2026.") {
		t.Errorf("no second reminder: %q", l.sent)
	}
	l.k.RequireWell()
}

func TestSessions(t *testing.T) {
	l := newLab(t)
	id := l.signUp("ada")
	for i := range 2500 {
		expires := l.now().Add(time.Hour)
		if i < 50 {
			expires = l.now().Add(30 * day)
		}
		if _, err := l.db.ExecContext(t.Context(), `INSERT INTO session (id, organization_id, expires_at) VALUES ($1, $2, $3)`, fmt.Sprint(i), id, expires.Unix()); err != nil {
			t.Fatal(err)
		}
	}
	l.k.Advance(7 * day) // the next Monday, 02:42
	if n := l.count(`SELECT COUNT(*) FROM session`); n != 50 {
		t.Errorf("%d sessions are left", n)
	}
	calls := l.k.Calls(l.t.clearSessions)
	if len(calls) != 1 || string(calls[0].Result) != `{"sessions":2450}` || calls[0].ScheduledAt == nil || !calls[0].ScheduledAt.Equal(time.Date(2026, 3, 9, 2, 42, 0, 0, time.UTC)) {
		t.Errorf("calls: %+v", calls)
	}
}

// The mail server is down for an hour: the welcome comes when it is back, and comes once.
func TestMailServerDown(t *testing.T) {
	l := newLab(t)
	l.down = errors.New("connection refused")
	l.signUp("ada")
	l.k.Advance(time.Hour)
	if c := l.k.Calls(l.t.welcome)[0]; c.State != api.CallRetrying || c.Attempt != 4 || c.Error != "connection refused" {
		t.Errorf("the welcome: %+v", c)
	}
	l.down = nil
	l.k.Advance(10000 * time.Second)
	if len(l.sent) != 1 {
		t.Errorf("letters: %q", l.sent)
	}
}
