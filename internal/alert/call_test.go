package alert

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"curfew.dev/curfew/internal/ledger"
)

// Calls that fail for good are told, once an hour for each task, without the words of the task.
func TestCallFailed(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.pass(a)
		for i, name := range []string{"mail", "mail", "other"} {
			body := map[string]any{"task": name, "call": i + 7, "attempts": 3, "error": "no mailbox ada@example.org"}
			if err := b.l.Note(b.Context(), ledger.ActionCallFailed, name, body, func(context.Context, *sql.Tx) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.pass(a)
		b.pass(a)
		var told []string
		for _, x := range b.alerts() {
			if x.Kind == CallFailed {
				told = append(told, b.said(x).Message)
			}
			if strings.Contains(string(x.Body), "ada@") {
				b.Errorf("the words of the task are told: %s", x.Body)
			}
		}
		slices.Sort(told)
		if len(told) != 2 || !strings.HasPrefix(told[0], "mail: call 7 failed for good; `curfew task failed --task mail`") || !strings.HasPrefix(told[1], "other: call 9 ") {
			b.Errorf("%q", told)
		}
	})
}
