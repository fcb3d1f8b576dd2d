//go:build unix

package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A tap stands between the program and a server, and can be turned off: then the connections stay, new ones are accepted, and
// nothing comes through in either direction, as with a server that hangs or a network that swallows packets.
type tap struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	turned   *sync.Cond
	off      bool
	closed   bool
	held     int // pieces that wait to be passed on, or connections to be made
	conns    []net.Conn
}

func newTap(t *testing.T, server string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{listener: l, server: server}
	p.turned = sync.NewCond(&p.mu)
	var open sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.closed = true
		for _, c := range p.conns {
			c.Close()
		}
		p.turned.Broadcast()
		p.mu.Unlock()
		open.Wait()
	})
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.serve(client) })
		}
	})
	return p
}

// pass waits while the tap is off, and reports whether there is still anybody to pass anything on to.
func (p *tap) pass(opened ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, opened...)
	p.held++
	for p.off && !p.closed {
		p.turned.Wait()
	}
	p.held--
	return !p.closed
}

func (p *tap) turn(off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = off
	p.turned.Broadcast()
}

// holds is how much waits to come through.
func (p *tap) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (p *tap) serve(client net.Conn) {
	defer client.Close()
	if !p.pass(client) {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			defer way[1].Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := way[0].Read(buf)
				if err != nil || !p.pass() {
					return
				}
				if _, err := way[1].Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
	both.Wait()
}

// behindTap is a site whose ledger is reached through a tap. Its governed database is not.
func behindTap(t *testing.T, policies string) (*site, *tap) {
	t.Helper()
	s := newSite(t, postgres, ledgerPostgres, policies, twoTables...)
	u, err := url.Parse(s.ledger)
	if err != nil {
		t.Fatal(err)
	}
	p := newTap(t, u.Host)
	u.Host = p.listener.Addr().String()
	s.ledger = u.String()
	s.configure(s.dir, policies)
	return s, p
}

// TestStopsThoughTheLedgerHangs: a ledger that does not answer keeps no service from ending in time, whatever that is at.
func TestStopsThoughTheLedgerHangs(t *testing.T) {
	const within = 3 * time.Second
	env := []string{stopWithinVar + "=" + within.String()}
	for name, c := range map[string]struct {
		args   []string
		before bool // it hangs before the service comes up
		busy   bool // with runs and batches in hand
		hup    bool // the service reads its file again
		call   bool // somebody calls
	}{
		"idle":      {},
		"busy":      {busy: true},
		"called":    {call: true},
		"reloading": {hup: true},
		"starting":  {before: true},
		"worker":    {args: []string{"worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tap := behindTap(t, strings.ReplaceAll(twoPolicies, "pace: none", "pace: 200"))
			args := c.args
			if args == nil {
				args = []string{"serve", "--listen", "127.0.0.1:0"}
			}
			token := strings.TrimSpace(s.must("token", "create", "--scope", "trigger").stdout.String())
			tap.turn(c.before)
			p := s.startIn(s.dir, env, args...)
			if !c.before {
				p.says(map[bool]string{true: `"msg":"listening"`, false: `"msg":"working"`}[c.args == nil])
				s.eventually(p, "look at the ledger", func() bool { return s.count(s.led, "SELECT count(*) FROM curfew.queue_client") > 0 })
			}
			if c.busy {
				for _, policy := range []string{"plain", "rich"} {
					s.fill(policy, 2000)
					s.call(p.address(), token, policy)
				}
				s.eventually(p, "settle a batch of each", func() bool { return s.count(s.led, "SELECT count(*) FROM curfew.run WHERE batches_settled > 0") == 2 })
			}
			tap.turn(true)
			s.eventually(p, "wait for the ledger", func() bool { return tap.holds() > 0 })
			if c.call {
				go s.tryCall(p.address(), token, "plain")
			}
			if c.hup {
				p.signal(syscall.SIGHUP)
				p.says(`"msg":"reloading"`)
			}
			told := time.Now()
			p.signal(syscall.SIGTERM)
			if code := s.ended(p); code != exitDone {
				t.Errorf("it ended with exit code %d:\n%s", code, tail(p.stderr.String()))
			}
			took := time.Since(told)
			t.Logf("it took %s", took.Round(time.Millisecond))
			if took > within+time.Second {
				t.Errorf("it took %s to stop, and was given %s:\n%s", took, within, tail(p.stderr.String()))
			}
		})
	}
}

// TestStopsThoughABatchHangs: a batch that does not come to its end, as its table is locked, is undone when the time to stop in is
// nearly over, or at once by a second signal. The run is there for the next process.
func TestStopsThoughABatchHangs(t *testing.T) {
	for name, signals := range map[string]int{"in time": 1, "at once": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, postgres, ledgerFile, twoPolicies, twoTables...)
			token := strings.TrimSpace(s.must("token", "create", "--scope", "trigger").stdout.String())
			s.fill("plain", 100)
			within := 3 * time.Second
			if signals == 2 {
				within = 30 * time.Second
			}
			p := s.startIn(s.dir, []string{stopWithinVar + "=" + within.String(), atVar + "=begun:1:say"}, "serve", "--listen", "127.0.0.1:0")
			url := p.address()
			lock, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Rollback()
			if _, err := lock.Exec("LOCK TABLE " + s.inDatabase("receipt") + " IN EXCLUSIVE MODE"); err != nil {
				t.Fatal(err)
			}
			s.call(url, token, "plain")
			p.says(marker + "begun")
			s.waitsForALock(p)
			told := time.Now()
			p.signal(syscall.SIGTERM)
			p.says("finishing the batches in hand")
			if signals == 2 {
				p.signal(syscall.SIGTERM)
			}
			code := s.ended(p)
			took := time.Since(told)
			t.Logf("it took %s", took.Round(time.Millisecond))
			if code != exitDone || took > min(within, 10*time.Second)+time.Second {
				t.Errorf("it ended with exit code %d after %s:\n%s", code, took, tail(p.stderr.String()))
			}
			if err := lock.Rollback(); err != nil {
				t.Fatal(err)
			}
			if n := s.count(s.db, "SELECT count(*) FROM session"); n != 100 {
				t.Errorf("%d rows are left of 100, and no batch was finished", n)
			}
			done := s.answer(s.must("run", "plain", "--output", "json"))
			if done.Cause != "http" || done.Outcomes["deleted"] != 97 || done.Outcomes["blocked"] != 3 {
				t.Errorf("%+v, want the run that was left, with 97 rows deleted and 3 blocked", done)
			}
			s.consistent(done)
		})
	}
}

// call starts a run over HTTP.
func (s *site) call(url, token, policy string) {
	s.Helper()
	if status, err := s.tryCall(url, token, policy); err != nil || status != http.StatusAccepted {
		s.Fatalf("a call was answered with %d, %v", status, err)
	}
}

func (s *site) tryCall(url, token, policy string) (int, error) {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, url+"/v1/policies/"+policy+"/runs", strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, nil
}
