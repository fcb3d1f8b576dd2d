package task

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxTail is how many bytes of a program's output are kept.
const MaxTail = 4 << 10

// minSecret is the shortest value that is taken for a secret. Blanking out every
// "1" or "no" would leave an output that nobody can read.
const minSecret = 4

// tail keeps the end of what is written, and passes it on.
type tail struct {
	mu      sync.Mutex // of all below
	out     io.Writer  // nil: nobody, or no longer anybody
	secrets []string   // the longest first
	margin  int        // the length of the longest secret
	data    []byte     // the last so many bytes
	cut     bool       // there were more
}

func newTail(secrets []string, out io.Writer) *tail {
	t := &tail{secrets: secrets, out: out}
	if len(secrets) > 0 {
		t.margin = len(secrets[0])
	}
	return t
}

// Write never fails: a program is not to be stopped because nobody listens.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out != nil {
		if _, err := t.out.Write(b); err != nil {
			t.out = nil
		}
	}
	// What is kept is longer than what is shown by a secret, so that one of which
	// only the end is left is not shown.
	most := MaxTail + t.margin
	t.data = append(t.data, b...)
	if more := len(t.data) - most; more > 0 {
		t.data, t.cut = append(t.data[:0], t.data[more:]...), true
	}
	return len(b), nil
}

// String is the last [MaxTail] bytes, with secrets blanked out.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, partial := string(t.data), 0
	if t.cut {
		partial = max(t.margin-1, 0) // in there may be the end of a secret
	}
	var b strings.Builder
	for at := 0; at < len(text); {
		n := t.secretAt(text[at:])
		switch {
		case n > 0:
			if at >= partial {
				b.WriteString("…")
			}
			at += n
		default:
			if at >= partial {
				b.WriteByte(text[at])
			}
			at++
		}
	}
	text, cut := strings.ToValidUTF8(b.String(), string(utf8.RuneError)), t.cut
	text = strings.ReplaceAll(text, "\x00", string(utf8.RuneError)) // no database of text takes it
	if more := len(text) - MaxTail; more > 0 {
		text, cut = text[more:], true
	}
	for cut && text != "" && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// secretAt is the length of the longest secret that text begins with, or 0.
func (t *tail) secretAt(text string) int {
	for _, s := range t.secrets {
		if strings.HasPrefix(text, s) {
			return len(s)
		}
	}
	return 0
}

// secretsOf are the values of NAME=value, and the lines of those that have
// several: a program may write them one by one.
func secretsOf(env []string) []string {
	var all []string
	for _, entry := range env {
		_, value, _ := strings.Cut(entry, "=")
		for _, s := range append(strings.Split(value, "\n"), value) {
			if s = strings.TrimSpace(s); len(s) >= minSecret {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// lastLine is the last line of a text that says anything, shortened.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
