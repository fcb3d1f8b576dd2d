//go:build unix

package dbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a PostgreSQL server that belongs to one test, which may stop and
// start it under whoever is connected. Unlike the shared one it commits
// synchronously, as a server in earnest does: what it said was committed is there
// after Stop("immediate").
type Server struct {
	URL string // as its superuser

	t    testing.TB
	bin  string
	dir  string // of the server: data, socket and log
	user *syscall.Credential
}

// PostgresServer starts a server, which is stopped and removed with the test. To
// have Postgres make its databases there:
//
//	t.Setenv(dbtest.PostgresVar, dbtest.PostgresServer(t).URL)
func PostgresServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, bin: serverPrograms(t)}
	s.become()
	var err error
	// Not t.TempDir: a socket's path must be short, and another user must reach it.
	if s.dir, err = os.MkdirTemp("/tmp", "curfew-own."); err == nil {
		err = os.Chmod(s.dir, 0o755)
	}
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	if s.user != nil {
		if err := os.Chown(s.dir, int(s.user.Uid), int(s.user.Gid)); err != nil {
			t.Fatalf("dbtest: %v", err)
		}
	}
	s.must("initdb", "-D", s.data(), "-A", "trust", "-U", "postgres", "--locale=C.UTF-8", "-E", "UTF8", "-N")
	t.Cleanup(func() {
		if s.pid() != "" {
			s.Stop("immediate")
		}
	})
	for try := 1; ; try++ {
		port := freePort()
		// fsync is for a machine that loses its power; what a server that dies had
		// written is the kernel's.
		conf := fmt.Sprintf("listen_addresses = '127.0.0.1'\nport = %d\nunix_socket_directories = '%s'\ntimezone = 'America/New_York'\n"+
			"max_connections = 100\nshared_buffers = 32MB\nfsync = off\nautovacuum = off\n", port, s.dir)
		if err := os.WriteFile(filepath.Join(s.data(), "postgresql.auto.conf"), []byte(conf), 0o644); err != nil {
			t.Fatalf("dbtest: %v", err)
		}
		out, err := s.ctl("start")
		if err == nil {
			s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
			return s
		}
		if try == 3 { // the port may have been taken meanwhile, but not every time
			t.Fatalf("dbtest: the server does not start: %v\n%s", err, out)
		}
	}
}

// serverPrograms is the folder of PostgreSQL's programs, as scripts/need.sh finds
// it, or ends the test.
func serverPrograms(t testing.TB) string {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	dirs = append(dirs, "/usr/local/pgsql/bin")
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir
		}
	}
	const msg = "dbtest: PostgreSQL's server programs (initdb, pg_ctl) are not installed: a test needs a server of its own, to stop it"
	if os.Getenv("CI") == "true" {
		t.Fatal(msg)
	}
	t.Skip(msg)
	return ""
}

// version is the 17 of /usr/lib/postgresql/17/bin.
func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

// become finds the user to run the server as: it refuses to run as root.
func (s *Server) become() {
	s.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		s.t.Fatalf("dbtest: the server does not run as root, and there is nobody else: %v", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	s.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run runs one of the server's programs to its end.
func (s *Server) run(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.user}
	cmd.WaitDelay = time.Second // for a server that kept our pipe
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *Server) must(program string, args ...string) {
	s.t.Helper()
	if out, err := s.run(program, args...); err != nil {
		s.t.Fatalf("dbtest: %s: %v\n%s", program, err, out)
	}
}

func (s *Server) ctl(command string, more ...string) (string, error) {
	return s.run("pg_ctl", append([]string{command, "-D", s.data(), "-l", filepath.Join(s.dir, "log"), "-w", "-t", "60"}, more...)...)
}

// pid is the server's process, as it says itself; "" while there is none.
func (s *Server) pid() string {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// Stop ends the server in pg_ctl's mode: "immediate" is a crash, "fast" ends the
// sessions in good order. It has ended when Stop returns.
func (s *Server) Stop(mode string) {
	s.t.Helper()
	if out, err := s.ctl("stop", "-m", mode); err != nil {
		s.t.Fatalf("dbtest: stop the server: %v\n%s", err, out)
	}
	if pid := s.pid(); pid != "" {
		s.t.Fatalf("dbtest: the server was stopped, and process %s is there", pid)
	}
}

// Start starts the server again. It answers when Start returns.
func (s *Server) Start() {
	s.t.Helper()
	if out, err := s.ctl("start"); err != nil {
		s.t.Fatalf("dbtest: start the server: %v\n%s", err, out)
	}
}

// Restart is pg_ctl restart, in the mode.
func (s *Server) Restart(mode string) {
	s.t.Helper()
	before := s.pid()
	if out, err := s.ctl("restart", "-m", mode); err != nil {
		s.t.Fatalf("dbtest: restart the server: %v\n%s", err, out)
	}
	if now := s.pid(); before == "" || now == "" || now == before {
		s.t.Fatalf("dbtest: the server was restarted, and its process is %q as before", now)
	}
}

// freePort is a port that nobody listens on, below those of outgoing connections.
func freePort() int {
	for {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
}
