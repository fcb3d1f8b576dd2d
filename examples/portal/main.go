// Portal is a small web application whose background work curfew does, in the same process and the same database: weekly session
// cleanup, daily reminders before trials end, hourly pause and teardown of expired organisations, and a welcome that is deferred from
// the request that signs an organisation up.
//
//	go run ./examples/portal                                  # SQLite, in portal.db
//	go run ./examples/portal --database postgres://…/portal   # with --migrate the first time
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"curfew.dev/curfew"
)

func main() {
	database := flag.String("database", "sqlite:portal.db", "`URL` of the portal's database: sqlite:FILE or postgres://…")
	listen := flag.String("listen", "127.0.0.1:8080", "`ADDRESS` to answer at")
	migrate := flag.Bool("migrate", false, "make curfew's tables on PostgreSQL, or bring them up to date, before it starts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *database, *listen, *migrate); err != nil {
		fmt.Fprintln(os.Stderr, "portal:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, database, listen string, migrate bool) error {
	db, err := open(database)
	if err != nil {
		return err
	}
	defer db.Close()
	p := &Portal{db: db, now: time.Now, send: func(_ context.Context, to, text string) error {
		slog.Info("letter", "to", to, "text", text)
		return nil
	}}
	if p.jobs, err = curfew.New(curfew.Options{Ledger: database, Tasks: p.define(), EnvPrefix: "PORTAL_"}); err != nil {
		return err
	}
	if err := p.migrate(ctx); err != nil {
		return err
	}
	if migrate { // in production another role may do it, with curfew migrate
		if _, err := p.jobs.Migrate(ctx); err != nil {
			return err
		}
	}
	if err := p.jobs.Start(ctx); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, p.jobs.Stop(context.Background()))
	}
	slog.Info("listening", "address", ln.Addr().String())
	server := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// First no more requests, then the calls in hand come to their end.
	return errors.Join(err, server.Shutdown(late), p.jobs.Stop(late))
}

// open opens the portal's own connections.
func open(database string) (*sql.DB, error) {
	path, isFile := strings.CutPrefix(database, "sqlite:")
	if !isFile {
		return sql.Open("pgx", database)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// A transaction that will write says so from the start: two that found out later could not wait for each other.
	return sql.Open("sqlite", "file:"+filepath.ToSlash(abs)+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)")
}
