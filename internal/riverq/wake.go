package riverq

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/riverqueue/river/riverdriver"
)

// Polling is what brings each batch to a process. One that has just committed
// batches need not wait for its own poll: Wake looks at a queue at once, through
// the place where River would listen to the database. SQL's LISTEN has no part in
// it: behind a pooler that looks healthy and is not.

// Wake has a queue looked at at once. Call it when a transaction with batches has
// committed. Nothing but how soon they start depends on it. It does not block, and
// does nothing in a client that was not started or has stopped.
func (c *Client) Wake(queue string) {
	select {
	case c.woken[queue] <- struct{}{}:
	default: // a look is to come already, and will see these too; or no such queue
	}
}

// woken holds by queue whether it is to be looked at.
type woken map[string]chan struct{}

func newWoken() woken {
	return woken{Cleanup: make(chan struct{}, 1), Interactive: make(chan struct{}, 1)}
}

// waking is a driver of River's that hears Wake, and says nothing in the database,
// where nobody listens.
type waking struct {
	riverdriver.Driver[*sql.Tx]
	woken woken
}

func (waking) SupportsListener() bool     { return true }
func (waking) SupportsListenNotify() bool { return false }

func (d waking) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{woken: d.woken, schema: p.Schema}
}

// listener has no connection that could fail, and hears of nothing but batches.
type listener struct {
	woken  woken
	schema string
}

func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	queue := Cleanup
	select {
	case <-l.woken[Cleanup]:
	case <-l.woken[Interactive]:
		queue = Interactive
	case <-ctx.Done():
		return nil, ctx.Err() // as it is: River goes on after a cancelled wait, and logs any other error
	}
	// As River says it of a job that was inserted.
	return &riverdriver.Notification{Topic: "river_insert", Payload: `{"queue":` + strconv.Quote(queue) + `}`}, nil
}

func (l *listener) Close(context.Context) error            { return nil }
func (l *listener) Connect(context.Context) error          { return nil }
func (l *listener) Listen(context.Context, string) error   { return nil }
func (l *listener) Unlisten(context.Context, string) error { return nil }
func (l *listener) Ping(context.Context) error             { return nil }
func (l *listener) Schema() string                         { return l.schema }
func (l *listener) SetAfterConnectExec(string)             {}
