package policy

import (
	"fmt"
	"net/url"
	"slices"
	"time"
)

// stages judges the stages of a policy and puts them in the order of their
// offsets; those at one offset stay in the order of the file.
func (b *builder) stages(raw []*rawStage) []Stage {
	var out []Stage
	places := map[string]*rawStage{}
	for _, r := range raw {
		s := Stage{Name: r.Name.String(), Where: b.sql(r.Where), Action: b.action(r.Action), Schedule: b.schedule(r.Schedule),
			MinNotice: b.duration(r.MinNotice, 0, time.Minute, maxDays*24*time.Hour)}
		b.requiredOfStage(r)
		switch {
		case r.Name.set() && !isName(s.Name):
			b.bad(r.Name.leaf, &fault{"this is not a name", "use a lower-case letter, then lower-case letters, digits, _ and -, at most 63"})
		case places[s.Name] != nil && r.Name.set():
			b.bad(r.Name.leaf, &fault{"another stage has that name", "rename one of them"})
		}
		places[s.Name] = r
		if r.At.set() {
			at, err := ParseOffset(r.At.String())
			if err != nil {
				b.bad(r.At.leaf, err)
			}
			s.At = at
		}
		if r.Snap.set() {
			c, err := ParseClock(r.Snap.String())
			if err != nil {
				b.bad(r.Snap.leaf, err)
			}
			s.Snap = &c
		}
		if s.At.Before && s.Action.Kind != Notify && !s.Action.IsZero() {
			b.bad(r.At.leaf, &fault{fmt.Sprintf("only notify may come before the due instant, and this is %s", s.Action.Kind), "write 0d or later"})
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(x, y Stage) int { return x.At.compare(y.At) })
	b.notice(out, places)
	return out
}

func (b *builder) requiredOfStage(r *rawStage) {
	for _, need := range []struct {
		name string
		set  bool
		hint string
	}{
		{"name", r.Name.set(), "write for example name: teardown"},
		{"at", r.At.set(), "write for example at: 14d, or at: -7d for a reminder"},
		{"action", r.Action != nil, "write for example action: delete"},
	} {
		if !need.set && !b.failed(join(r.field, need.name)) && !b.malformed(r.place) {
			b.missing(r.place, need.name, need.hint)
		}
	}
}

// notice refuses a notice that nobody gives, and a row's end before the rest of
// it.
func (b *builder) notice(stages []Stage, places map[string]*rawStage) {
	for i, s := range stages {
		r := places[s.Name]
		if s.MinNotice > 0 && !slices.ContainsFunc(stages[:i], func(e Stage) bool { return e.Action.Kind == Notify }) {
			b.bad(r.MinNotice.leaf, &fault{"no stage before this one notifies", "add a stage with action: {notify: …}, or remove it"})
		}
		ends := s.Action.Kind == Delete || s.Action.Kind == Archive
		if ends && i < len(stages)-1 {
			next := places[stages[i+1].Name]
			b.bad(next.At.leaf, &fault{fmt.Sprintf("the row is gone after stage %s", s.Name), "a stage that deletes or archives is the last"})
		}
	}
}

func checkMailServer(server string) error {
	u, err := url.Parse(server) // its error repeats the password
	switch {
	case err != nil:
		return &fault{"the address of the mail server cannot be read", "write smtp://user:password@host:587"}
	case u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "":
		return &fault{"this is no address of a mail server", "begin it with smtp:// or smtps:// and a host"}
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return &fault{"the address of a mail server has nothing after its host", "write smtp://user:password@host:587"}
	}
	return nil
}
