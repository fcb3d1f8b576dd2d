//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestDatabaseGoesAway cuts all sessions of the governed database (and of the ledger, where that is there too) while a run is
// in the middle of something. The run goes on, or stops with exit code 3 and is resumed.
func TestDatabaseGoesAway(t *testing.T) {
	for _, kind := range []struct{ engine, ledger string }{{postgres, ledgerWithin}, {postgres, ledgerFile}, {mariadb, ledgerFile}} {
		t.Run(kind.engine+"/ledger="+kind.ledger, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, twoPolicies, twoTables...)
			for i, point := range []string{"started", "paging", "paged", "stepping", "executing", "begun", "claimed", "changed", "completed", "executed", "ending"} {
				k := s.fill([]string{"plain", "rich"}[i%2], 200)
				s.exact(k, s.answer(s.cutting(k, point)))
			}
		})
	}
}

// cutting runs to the end, with three cuts: the first at the point, the others wherever a process that resumes the run is.
func (s *site) cutting(k *stock, point string) *process {
	s.Helper()
	for _, at := range []string{point + ":1:stop", "any:3:stop", "any:4:stop", ""} {
		p := s.start(at, runArgs(k.policy, k.asOf)...)
		if at != "" {
			p.stopped("")
			s.cut()
			p.signal(syscall.SIGCONT)
		}
		if s.ended(p) == exitDone {
			return p
		}
		s.refused(p, exitFailed, "curfew: hint: ")
	}
	s.Fatalf("a run that was cut at %s is not to be resumed", point)
	return nil
}

// cut ends every session of the governed database but our own.
func (s *site) cut() {
	s.Helper()
	if s.engine == postgres {
		s.column(s.db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		return
	}
	for _, id := range s.column(s.db, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()") {
		s.exec("KILL " + id)
	}
}

// TestAnswerToCommitLost: the connection breaks after the server was told to commit and before it could say that it did. What
// happened is in the receipt.
func TestAnswerToCommitLost(t *testing.T) {
	for _, engine := range []string{postgres, mariadb} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, engine, ledgerFile, twoPolicies, twoTables...)
			u, err := url.Parse(s.url)
			if err != nil {
				t.Fatal(err)
			}
			p := newProxy(t, u.Host)
			u.Host = p.listener.Addr().String()
			if engine == postgres {
				u.RawQuery = "sslmode=disable"
			}
			s.url = u.String()
			s.configure(s.dir, twoPolicies)
			for _, policy := range []string{"plain", "rich"} {
				k := s.fill(policy, 300)
				before := p.lost.Load()
				s.finish(k)
				if n := p.lost.Load() - before; n < 2 {
					t.Errorf("%d answers were lost: the test shows nothing", n)
				}
			}
		})
	}
}

// A proxy stands between the program and a server and loses the answer to every third commit.
type proxy struct {
	listener net.Listener
	commits  atomic.Int64
	lost     atomic.Int64
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l}
	var open sync.WaitGroup
	t.Cleanup(func() { l.Close(); open.Wait() })
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.serve(client, server) })
		}
	})
	return p
}

func (p *proxy) serve(client net.Conn, server string) {
	defer client.Close()
	conn, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(client, conn)
		client.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		// Both drivers send a commit as a text of its own.
		if lower := bytes.ToLower(buf[:n]); n < 32 && bytes.Contains(lower, []byte("commit")) && p.commits.Add(1)%3 == 0 {
			client.Close() // before the server can answer
			p.lost.Add(1)
			_, _ = conn.Write(buf[:n])
			// Once the server has closed too, it has done what it was told.
			if c, ok := conn.(*net.TCPConn); ok {
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			}
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}
