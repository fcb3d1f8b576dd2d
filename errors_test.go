package curfew

import (
	"errors"
	"testing"

	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

func TestOneLine(t *testing.T) {
	cause := errors.New("failed to connect to `user=u database=x`:\n\t127.0.0.1:1 (localhost): dial error: refused\n\t127.0.0.1:1 (localhost): dial error: refused\n\t[::1]:1 (localhost): dial error: refused")
	err := oneLine(cause)
	const want = "failed to connect to `user=u database=x`: 127.0.0.1:1 (localhost): dial error: refused; [::1]:1 (localhost): dial error: refused"
	if err.Error() != want || !errors.Is(err, cause) {
		t.Errorf("got %q, want %q", err, want)
	}
}

// A refusal says what to do and shows the statement that would settle it.
func TestRefusal(t *testing.T) {
	p := &policy.Policy{Name: "p"}
	for _, c := range []struct {
		f    target.Finding
		hint string
	}{
		{target.Finding{Level: target.LevelRefuse, Message: "m", Hint: "h", Statement: "GRANT x"}, "h\nGRANT x"},
		{target.Finding{Level: target.LevelRefuse, Message: "m", Statement: "GRANT x"}, "GRANT x"},
		{target.Finding{Level: target.LevelRefuse, Message: "m", Hint: "h"}, "h"},
	} {
		err := refusal(p, []target.Finding{{Level: target.LevelWarn, Message: "w"}, c.f})
		if err == nil || err.Error() != "policy p: m" || HintOf(err) != c.hint || KindOf(err) != KindRefused {
			t.Errorf("%+v: %v, hint %q", c.f, err, HintOf(err))
		}
	}
	if err := refusal(p, []target.Finding{{Level: target.LevelWarn, Message: "w"}}); err != nil {
		t.Errorf("a warning refuses: %v", err)
	}
}
