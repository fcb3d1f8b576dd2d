package riverq

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quietFor is how long a message of River's is not repeated. Without a database
// it says so at every look at every queue.
const quietFor = 10 * time.Second

// quiet keeps River's chatter out of our log: what is below a warning, and what
// it has just said.
type quiet struct {
	slog.Handler
	said *said // shared with the handlers made from this one
}

type said struct {
	mu   sync.Mutex
	last map[string]time.Time // by message; River's are constants
	left map[string]int64     // out since then
}

func newQuiet(h slog.Handler) quiet {
	return quiet{h, &said{last: map[string]time.Time{}, left: map[string]int64{}}}
}

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if ours(r) {
		return nil
	}
	q.said.mu.Lock()
	if r.Time.Sub(q.said.last[r.Message]) < quietFor {
		q.said.left[r.Message]++
		q.said.mu.Unlock()
		return nil
	}
	left := q.said.left[r.Message]
	q.said.last[r.Message], q.said.left[r.Message] = r.Time, 0
	q.said.mu.Unlock()
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("left_out", left))
	}
	return q.Handler.Handle(ctx, r)
}

// ours reports whether River complains of what drop has done on purpose, and told.
func ours(r slog.Record) (is bool) {
	r.Attrs(func(a slog.Attr) bool {
		is = strings.Contains(a.Value.String(), errOvertaken.Error())
		return !is
	})
	return is
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attrs), q.said}
}

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name), q.said} }
