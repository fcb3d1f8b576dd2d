package curfew

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// A governed database that accepts connections and never answers keeps nobody from the others.
func TestServeBesideASilentDatabase(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn)
		}
	}()
	d := newDaemon(t, night, nightly)
	d.more = "hole: {url: \"postgres://nobody@" + ln.Addr().String() + "/nothing?sslmode=disable\"}, "
	d.file += strings.Replace(strings.Replace(nightly, "sessions:", "silent:", 1), "database: app", "database: hole", 1)
	d.sessions(10, night.Add(-time.Hour))
	d.start()
	c := d.open()
	d.eventually("both schedules are seen", func() bool { s, err := mustLedger(d, c).Schedules(t.Context()); return err == nil && len(s) == 2 })
	d.clock.set(night.Add(11 * time.Second))
	d.eventually("the other policy's occurrence is ok", func() bool { return d.states(c)["ok"] == 1 })
	if n := d.rows(); n != 0 {
		t.Errorf("%d rows left", n)
	}
}

// What leaves the file while no service runs is ended by the next one that reads the file.
func TestServePolicyGoneMeanwhile(t *testing.T) {
	d := newDaemon(t, night, nightly+strings.Replace(nightly, "sessions:", "going:", 1))
	d.sessions(10, night.Add(-time.Hour))
	d.start()
	c := d.open()
	d.eventually("both schedules are seen", func() bool { s, err := mustLedger(d, c).Schedules(t.Context()); return err == nil && len(s) == 2 })
	d.halt()
	l := mustLedger(d, c)
	p, err := c.policy("going")
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.accept(t.Context(), l, p, RunRequest{Policy: "going"})
	if err != nil {
		t.Fatal(err)
	}
	d.file = nightly
	d.start()
	d.eventually("its run is cancelled", func() bool { r, err := l.Get(t.Context(), run.ID); return err == nil && r.State == ledger.Cancelled })
	if s, err := l.Schedules(t.Context()); err != nil || len(s) != 1 || s[0].Policy != "sessions" {
		t.Errorf("schedules %+v, %v", s, err)
	}
	if n := d.rows(); n != 10 {
		t.Errorf("%d rows left", n)
	}
}

// A policy whose database has another name after a restart: an open run under the old name, which nobody can work on, does not stay in
// the way of the next ones.
func TestServeDatabaseRenamed(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.sessions(10, night.Add(-time.Hour))
	c := d.open()
	l := mustLedger(d, c)
	p, err := c.policy("sessions")
	if err != nil {
		t.Fatal(err)
	}
	d.start()
	d.seen(c)
	d.halt()
	run, err := c.accept(t.Context(), l, p, RunRequest{Policy: "sessions"})
	if err != nil {
		t.Fatal(err)
	}
	d.name = "portal"
	d.file = strings.Replace(nightly, "database: app", "database: portal", 1)
	d.start()
	d.eventually("the old run is cancelled", func() bool { r, err := l.Get(t.Context(), run.ID); return err == nil && r.WhyEnded == "database_gone" })
	d.clock.set(night.Add(11 * time.Second))
	d.eventually("the next one does the work", func() bool { return d.states(c)["ok"] == 1 })
	if n := d.rows(); n != 0 {
		t.Errorf("%d rows left", n)
	}
}

// Processes that cannot do a run's work leave it to the one that can: one whose file has another database only, and one with
// another key.
func TestServeBesideOthers(t *testing.T) {
	d := newDaemon(t, night, strings.Replace(nightly, "rows: 100", "rows: 10", 1))
	d.sessions(100, night.Add(-time.Hour))
	other := func(text, key string) {
		t.Helper()
		file, err := policy.Parse([]byte("version: 1\nledger: sqlite:"+filepath.Join(d.dir, "curfew.db")+"\n"+key+text), policy.Options{Path: filepath.Join(t.TempDir(), "curfew.yaml")})
		if err != nil {
			t.Fatal(err)
		}
		opts := d.options()
		opts.Config, opts.Logger = file, slog.New(slog.DiscardHandler)
		stop, done := make(chan struct{}), make(chan error, 1)
		ready := make(chan string, 1)
		go func() {
			done <- Serve(context.WithoutCancel(t.Context()), opts, ServeOptions{WorkersOnly: key != "", Listen: "127.0.0.1:0", Stop: stop, Listening: func(a string) { ready <- a }})
		}()
		select {
		case <-ready:
		case err := <-done:
			t.Fatal(err)
		}
		t.Cleanup(func() {
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	d.start()
	if err := os.WriteFile(filepath.Join(d.dir, "else.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(filepath.Join(d.dir, "curfew.key"))
	if err != nil {
		t.Fatal(err)
	}
	other("databases: {elsewhere: {url: \"sqlite:"+filepath.Join(d.dir, "else.db")+"\"}}\npolicies: {}\n", "key: "+strings.TrimSpace(string(own))+"\n")
	other("databases: {app: {url: \"sqlite:"+filepath.Join(d.dir, "app.db")+"\"}}\npolicies: {}\n", "key: 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f1\n")
	c := d.open()
	d.seen(c)
	d.clock.set(night.Add(11 * time.Second))
	d.eventually("the occurrence is ok", func() bool { return d.states(c)["ok"] == 1 })
	if n := d.rows(); n != 0 {
		t.Errorf("%d rows left", n)
	}
}
