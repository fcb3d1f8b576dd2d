package riverq

import (
	"context"
	"database/sql"
	"sync"

	"github.com/riverqueue/river/riverdriver"
)

// Polling is what brings each job to a process. One that has just committed jobs
// need not wait for its own poll: Wake looks at a queue at once, through the place
// where River would listen to the database. On PostgreSQL a call wakes the other
// processes too, through a connection that listens: see listen.go. Nothing but how
// soon a job starts depends on any of it.

// Wake has a queue looked at at once. Call it when a transaction with batches or
// calls has committed. It does not block, and does nothing in a client that was not
// started, has stopped, or does not work that queue.
func (c *Client) Wake(queue string) { c.woken.wake(QueueName(queue)) }

// woken holds which queues are to be looked at.
type woken struct {
	some    chan struct{} // there are
	mu      *sync.Mutex
	pending map[string]bool // by River's name: each queue of the process, and whether it is to be
}

func newWoken(slots map[string]int) woken {
	w := woken{some: make(chan struct{}, 1), mu: new(sync.Mutex), pending: map[string]bool{}}
	for queue := range slots {
		w.pending[queue] = false
	}
	return w
}

func (w woken) wake(queue string) {
	w.mu.Lock()
	_, ours := w.pending[queue]
	if ours {
		w.pending[queue] = true
	}
	w.mu.Unlock()
	if ours {
		w.signal()
	}
}

func (w woken) wakeAll() {
	w.mu.Lock()
	for queue := range w.pending {
		w.pending[queue] = true
	}
	w.mu.Unlock()
	w.signal()
}

func (w woken) signal() {
	select {
	case w.some <- struct{}{}:
	default: // whoever waits is to look at all of them
	}
}

// take returns one queue that is to be looked at.
func (w woken) take() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for queue, waits := range w.pending {
		if waits {
			w.pending[queue] = false
			return queue, true
		}
	}
	return "", false
}

// waking is a driver of River's that hears Wake, and says nothing in the database.
type waking struct {
	riverdriver.Driver[*sql.Tx]
	woken woken
	c     *Client
}

func (waking) SupportsListener() bool     { return true }
func (waking) SupportsListenNotify() bool { return false }

func (d waking) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{woken: d.woken, schema: p.Schema}
}

// listener has no connection that could fail, and hears of nothing but jobs.
type listener struct {
	woken  woken
	schema string
}

func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	for {
		if queue, ok := l.woken.take(); ok {
			// As River says it of a job that was inserted.
			return &riverdriver.Notification{Topic: topicInsert, Payload: insertedInto(queue)}, nil
		}
		select {
		case <-l.woken.some:
		case <-ctx.Done():
			return nil, ctx.Err() // as it is: River goes on after a cancelled wait, and logs any other error
		}
	}
}

func (l *listener) Close(context.Context) error            { return nil }
func (l *listener) Connect(context.Context) error          { return nil }
func (l *listener) Listen(context.Context, string) error   { return nil }
func (l *listener) Unlisten(context.Context, string) error { return nil }
func (l *listener) Ping(context.Context) error             { return nil }
func (l *listener) Schema() string                         { return l.schema }
func (l *listener) SetAfterConnectExec(string)             {}
