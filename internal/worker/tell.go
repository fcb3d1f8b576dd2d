package worker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/mail"
	"time"

	"curfew.dev/curfew/internal/deliver"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// Telling says how rows of one run are told to others. Exactly one of Mailer and Caller is set.
type Telling struct {
	Policy, Stage, Run string

	Mailer        *deliver.Mailer
	From          *mail.Address
	Subject, Text *deliver.Text

	Caller  *deliver.Caller
	Webhook bool            // the request is a signed webhook; else it is a call
	PerRow  bool            // one request for each row
	Request deliver.Request // without its body and key

	// Waits are between passes over what was not taken yet. After them the batch has failed for now.
	Waits []time.Duration
	// Final says that there is nobody to bring the batch back: then it is given up after the last wait.
	Final bool
	Stop  <-chan struct{} // closed: finish the message in hand and return ErrStopped
	// Within is how long a message may be under way once it is recorded as being sent; 0 is what the way allows, and a margin.
	Within time.Duration
}

// ErrStopped says that a batch was left where it was because the process was told to stop.
var ErrStopped = errors.New("stopped before all of the batch was sent")

// A PutOffError says that part of a batch was not taken and may be later.
type PutOffError struct {
	Reason string
	After  time.Duration // what the other side asked to wait
}

func (e *PutOffError) Error() string { return "not sent yet: " + e.Reason }

const (
	// margin is what clocks, queues and a slow machine may add to the time that a message takes.
	margin = 30 * time.Second
	// lookAgain is between two looks at what another process is sending.
	lookAgain = 500 * time.Millisecond
	// readAhead is how many rows are read at once: what a message shows is as old as the messages before it take.
	readAhead = 20
	// waitHere is the longest that a batch waits in a worker's place as it was told to, when somebody can bring it back later.
	waitHere = 15 * time.Second
	// longestWait bounds what another side may ask us to wait.
	longestWait = time.Hour
)

// within is the bound after which nobody is at a row any more that is recorded as being sent.
func (t *Telling) within() time.Duration {
	switch {
	case t.Within > 0:
		return t.Within
	case t.Mailer != nil:
		return t.Mailer.Answer() + margin
	}
	return t.Request.Timeout + margin
}

// tell does a batch in rounds: see target.Job.Round.
func (w *Worker) tell(ctx context.Context, work target.Work) (*target.Result, error) {
	t := w.Tell
	o := target.RoundOptions{Within: t.within(), First: true}
	for pass := 0; ; {
		round, err := w.Job.Round(ctx, w.AsOf, work, o)
		if err != nil || round.Result != nil {
			return resultOf(round), err
		}
		o.First = false
		if len(round.Rows) == 0 {
			if err := t.wait(ctx, min(round.Wait, lookAgain)); err != nil {
				return nil, err
			}
			continue
		}
		s := &sending{w: w, t: t, work: work}
		if err := s.all(ctx, round.Rows); err != nil {
			return nil, err
		}
		if s.off == nil {
			continue
		}
		if pass == len(t.Waits) || !t.Final && s.off.After > waitHere {
			if !t.Final {
				return nil, s.off
			}
			o.GiveUp = s.off
			continue
		}
		wait := max(t.Waits[pass], min(s.off.After, longestWait))
		pass++
		w.Logger.WarnContext(ctx, "sending_put_off", "run", t.Run, "policy", t.Policy, "stage", t.Stage, "batch", work.Seq, "rows", s.later, "wait", wait, "err", s.off)
		if err := t.wait(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func resultOf(r *target.Round) *target.Result {
	if r == nil {
		return nil
	}
	return r.Result
}

// giveUp records what was not sent as failed. A row that another process is sending is waited for.
func (w *Worker) giveUpTelling(ctx context.Context, work target.Work, reason error) (*target.Result, error) {
	for {
		round, err := w.Job.Round(ctx, w.AsOf, work, target.RoundOptions{Within: w.Tell.within(), GiveUp: reason})
		if err != nil || round.Result != nil {
			return resultOf(round), err
		}
		if err := w.Tell.wait(ctx, min(round.Wait, lookAgain)); err != nil {
			return nil, err
		}
	}
}

func (t *Telling) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.Stop:
		return ErrStopped
	case <-timer.C:
		return nil
	}
}

func (t *Telling) stopped(ctx context.Context) error {
	select {
	case <-t.Stop:
		return ErrStopped
	default:
		return ctx.Err()
	}
}

// sending is one pass over rows of a batch.
type sending struct {
	w     *Worker
	t     *Telling
	work  target.Work
	off   *PutOffError // the last reason why something was put off
	later int
	down  int // failures of the way in a row
}

// enough failures of the way in a row end a pass: the next message would fare the same.
const enough = 2

func (s *sending) all(ctx context.Context, rows []target.Row) error {
	if s.t.Caller != nil && !s.t.PerRow {
		return s.together(ctx, rows)
	}
	for len(rows) > 0 && s.down < enough {
		part := rows[:min(len(rows), readAhead)]
		rows = rows[len(part):]
		if err := s.some(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *sending) some(ctx context.Context, rows []target.Row) error {
	var values []*target.Values
	if s.t.Mailer != nil {
		var err error
		if values, err = s.w.Job.Values(ctx, rows, append(s.t.Subject.Columns(), s.t.Text.Columns()...)); err != nil {
			return err
		}
	}
	for i := range rows {
		err := s.t.stopped(ctx)
		switch {
		case err != nil:
		case s.down >= enough:
			s.later += len(rows) - i
			return nil
		case values == nil:
			err = s.request(ctx, rows[i:i+1])
		case values[i] != nil: // else it is gone, and the next round says so
			err = s.mail(ctx, &rows[i], values[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sending) mail(ctx context.Context, row *target.Row, v *target.Values) error {
	m, err := s.compose(row, v)
	if err != nil {
		return s.record(ctx, []target.Row{*row}, target.PassageFailed, err.Error())
	}
	one := []target.Row{*row}
	marked := false
	lost, err := s.t.Mailer.Send(ctx, m, func(ctx context.Context) error {
		err := s.w.Job.Sending(ctx, s.w.AsOf, s.work, one)
		marked = err == nil
		return err
	})
	if lost != nil && err == nil {
		s.w.Logger.WarnContext(ctx, "recipients_refused", "run", s.t.Run, "policy", s.t.Policy, "stage", s.t.Stage,
			"row", hex.EncodeToString(row.Hash[:]), "refused", lost.Addresses, "of", len(m.To), "err", lost.Reason)
	}
	return s.came(ctx, one, marked, err)
}

// compose makes the message. Its errors go into the ledger: they show nothing of the row.
func (s *sending) compose(row *target.Row, v *target.Values) (m deliver.Mail, err error) {
	token := s.w.Job.Token(*row)
	m = deliver.Mail{ID: hex.EncodeToString(token[:16]), From: s.t.From, Date: time.Now()}
	if len(v.To) == 0 {
		return m, errors.New("the query finds no address")
	}
	for _, text := range v.To {
		a, err := deliver.ParseAddress(text)
		if err != nil {
			return m, err
		}
		m.To = append(m.To, a)
	}
	asOf := s.w.AsOf
	values := map[string]any{"due": s.w.Job.InWords(row.Due), "as_of": s.w.Job.InWords(&asOf), "policy": s.t.Policy, "stage": s.t.Stage}
	for name, x := range v.Columns {
		if _, reserved := values[name]; !reserved {
			values[name] = x
		}
	}
	if m.Subject, err = s.t.Subject.Fill(values); err != nil {
		return m, err
	}
	m.Text, err = s.t.Text.Fill(values)
	return m, err
}

// came records what came of a message or request. Failures that are not final leave the rows to a later pass.
func (s *sending) came(ctx context.Context, rows []target.Row, marked bool, err error) error {
	f, ok := errors.AsType[*deliver.Failure](err)
	switch {
	case err == nil:
		s.down = 0
		return s.record(ctx, rows, target.PassageDone, "")
	case errors.Is(err, target.ErrNotNow):
		return nil
	case errors.Is(err, target.ErrRowLocked):
		s.putOff(len(rows), &deliver.Failure{Reason: err.Error()})
		return s.record(ctx, rows, target.PassageClaimed, err.Error())
	case !ok:
		return err
	}
	state := target.PassageClaimed
	switch {
	case f.Kind == deliver.Refused && s.again(rows):
		state = target.PassageUncertain // an earlier attempt may have arrived, whatever is said to this one
	case f.Kind == deliver.Refused:
		state = target.PassageFailed
	case f.Kind == deliver.Uncertain || s.again(rows):
		state = target.PassageUncertain
	}
	if s.down++; !f.Down {
		s.down = 0
	}
	final := state == target.PassageFailed || state == target.PassageUncertain && s.t.Mailer != nil
	if !final {
		s.putOff(len(rows), f)
	}
	if !marked && ctx.Err() != nil { // nothing happened, and we are told to stop
		return ctx.Err()
	}
	return s.record(ctx, rows, state, f.Reason)
}

func (s *sending) again(rows []target.Row) bool { return rows[0].Again }

func (s *sending) putOff(rows int, f *deliver.Failure) {
	s.later += rows
	after := f.After
	if s.off != nil {
		after = max(after, s.off.After)
	}
	s.off = &PutOffError{Reason: f.Reason, After: after}
}

// record writes what came of rows, also when the process was told to stop: it happened.
func (s *sending) record(ctx context.Context, rows []target.Row, state target.PassageState, detail string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), margin)
	defer cancel()
	for attempt := 0; ; attempt++ {
		err := s.w.Job.Sent(ctx, s.work, rows, state, detail)
		if err == nil || !target.Transient(err) || attempt == len(recordWaits) {
			return err
		}
		time.Sleep(recordWaits[attempt])
	}
}

// recordWaits are between attempts to write down what came of a message: without it the message is uncertain.
var recordWaits = []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

// together makes one request about all rows. Rows of which an earlier request may have told come first, exactly as they were, and
// by themselves.
func (s *sending) together(ctx context.Context, rows []target.Row) error {
	var group []target.Row
	for _, r := range rows {
		if r.Again {
			group = append(group, r)
		}
	}
	if group == nil {
		group = rows
	}
	return s.request(ctx, group)
}

// request makes one request about the rows, under a key that follows from them.
func (s *sending) request(ctx context.Context, rows []target.Row) error {
	if err := s.w.Job.Sending(ctx, s.w.AsOf, s.work, rows); err != nil {
		return s.came(ctx, rows, false, err)
	}
	r := s.t.Request
	var err error
	if r.Body, err = s.body(rows); err != nil {
		return err
	}
	key := s.w.Job.Token(rows[0])
	if !s.t.PerRow {
		key = s.w.Job.BatchToken(s.work, rows)
	}
	if name := hex.EncodeToString(key[:16]); s.t.Webhook {
		r.WebhookID = "msg_" + name
	} else {
		r.IdempotencyKey = name
	}
	// From here on the answer is worth more than a quick stop.
	return s.came(ctx, rows, true, s.t.Caller.Send(context.WithoutCancel(ctx), r))
}

type callRow struct {
	Key map[string]any `json:"key"`
	Due *time.Time     `json:"due"`
}

type callBody struct {
	Policy string     `json:"policy"`
	Stage  string     `json:"stage"`
	AsOf   time.Time  `json:"as_of"`
	Due    *time.Time `json:"due"`
	Run    string     `json:"run"`
	Rows   []callRow  `json:"rows"`
}

// document is what a webhook gets.
type document struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      callBody  `json:"data"`
}

// RowDue is the type of the document that the webhook of a policy gets.
const RowDue = "row.due"

func (s *sending) body(rows []target.Row) ([]byte, error) {
	b := callBody{Policy: s.t.Policy, Stage: s.t.Stage, AsOf: s.w.AsOf.UTC(), Run: s.t.Run}
	if s.t.PerRow {
		b.Due = rows[0].Due
	}
	for _, r := range rows {
		b.Rows = append(b.Rows, callRow{s.w.Job.KeyOf(r), r.Due})
	}
	if s.t.Webhook {
		return json.Marshal(document{Type: RowDue, Timestamp: s.w.AsOf.UTC(), Data: b})
	}
	return json.Marshal(b)
}

// Waits are the pauses of a policy's retry between its attempts.
func Waits(r policy.Retry) []time.Duration {
	var out []time.Duration
	d := r.Backoff
	for range r.Attempts - 1 {
		out = append(out, d)
		if d = min(d*time.Duration(r.Factor), 24*time.Hour); d <= 0 {
			d = 24 * time.Hour
		}
	}
	return out
}
