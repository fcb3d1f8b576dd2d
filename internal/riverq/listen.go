package riverq

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// On PostgreSQL a call says when it commits that it is there, as River's own clients
// do and to whom they do, and each process listens on a connection of its own. That
// makes calls start sooner and does nothing else: behind a pooler that swallows what
// is said, they start by the next poll.

// topicInsert is River's topic of jobs that were inserted.
const topicInsert = "river_insert"

// insertedInto is what River says of a queue that a job was inserted into.
func insertedInto(queue string) string { return `{"queue":"` + queue + `"}` } // letters, digits, _ and -

const (
	// listenPatience is how long a connection may be silent before it is asked
	// whether it still is one.
	listenPatience  = 30 * time.Second
	longestRelisten = 30 * time.Second
)

// notified remembers what was said lately. PostgreSQL lets those who say something
// commit one after the other, so it is not said again within a millisecond.
type notified struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (n *notified) due(queue string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil {
		n.last = map[string]time.Time{}
	}
	if now.Sub(n.last[queue]) < cooldown {
		return false
	}
	n.last[queue] = now
	return true
}

// topic is River's topic, in the schema of its tables.
func (c *Client) topic() string {
	if c.o.Schema == "" {
		return topicInsert
	}
	return c.o.Schema + "." + topicInsert
}

// notify tells the processes that listen, when tx commits.
func (c *Client) notify(ctx context.Context, tx *sql.Tx, queues []string) error {
	if c.o.SQLite {
		return nil
	}
	said := map[string]bool{}
	for _, queue := range queues {
		if said[queue] || !c.notified.due(queue, time.Now()) {
			continue
		}
		said[queue] = true
		if _, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, c.topic(), insertedInto(queue)); err != nil {
			return err
		}
	}
	return nil
}

// keepListening listens until the function that it returns is called.
func (c *Client) keepListening(ctx context.Context) (stop func()) {
	if c.o.SQLite {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var down bool
		for backoff := 50 * time.Millisecond; ctx.Err() == nil; backoff = min(2*backoff, longestRelisten) {
			err := c.listen(ctx, func() {
				if down {
					c.log.InfoContext(ctx, "queue_listens_again")
				}
				down, backoff = false, 50*time.Millisecond
			})
			if ctx.Err() != nil {
				return
			}
			if !down {
				c.log.WarnContext(ctx, "queue_listens_no_more", "err", err, "effect", "calls start by the next poll")
				down = true
			}
			select {
			case <-ctx.Done():
			case <-time.After(backoff):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// listen connects, and hears until the connection ends.
func (c *Client) listen(ctx context.Context, up func()) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(bye)
	}()
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{c.topic()}.Sanitize()); err != nil {
		return err
	}
	up()
	c.woken.wakeAll() // for what was said while nobody listened
	for {
		quiet, cancel := context.WithTimeout(ctx, listenPatience)
		n, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			var said struct{ Queue string }
			if json.Unmarshal([]byte(n.Payload), &said) == nil {
				c.woken.wake(said.Queue)
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case quiet.Err() == nil:
			return err
		default:
			ask, cancel := context.WithTimeout(ctx, listenPatience/3)
			err := conn.Ping(ask)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// connect makes a connection like those of the client's database, that is not one of
// them: who waits on it keeps nobody from a connection.
func (c *Client) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, beatPatience)
	defer cancel()
	one, err := c.o.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var cfg *pgx.ConnConfig
	err = one.Raw(func(driver any) error {
		own, ok := driver.(*stdlib.Conn)
		if !ok {
			return errors.New("not a connection of pgx")
		}
		cfg = own.Conn().Config()
		return nil
	})
	if err = errors.Join(err, one.Close()); err != nil {
		return nil, err
	}
	cfg.OnNotification = nil // or it would be told to the connection that this came from
	return pgx.ConnectConfig(ctx, cfg)
}
