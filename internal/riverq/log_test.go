package riverq

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	h := newQuiet(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after   time.Duration
		message string
	}{{0, "a"}, {time.Second, "a"}, {2 * time.Second, "b"}, {9 * time.Second, "a"}, {11 * time.Second, "a"}, {30 * time.Second, "a"}} {
		made := h.WithAttrs([]slog.Attr{slog.Int("x", 1)})
		if err := made.Handle(t.Context(), slog.NewRecord(from.Add(c.after), slog.LevelError, c.message, 0)); err != nil {
			t.Fatal(err)
		}
	}
	want := "level=ERROR msg=a x=1\nlevel=ERROR msg=b x=1\nlevel=ERROR msg=a x=1 left_out=2\nlevel=ERROR msg=a x=1\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if h.Enabled(t.Context(), slog.LevelInfo) || !h.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("the level is wrong")
	}
}
