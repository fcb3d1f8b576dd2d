package deliver

import (
	"context"
	"errors"
	"net"
	"net/textproto"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// A conn is one connection to the mail server. It is one goroutine's at a time.
type conn struct {
	m      *Mailer
	raw    *watched
	client *smtp.Client
	used   time.Time
	sent   int
	open_  bool // a sender was named, and the message has not gone out
	broken bool // what the server would say next is not known
}

// watched remembers whether the last thing written left this machine's hands.
type watched struct {
	net.Conn
	written int64
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.written += int64(n)
	return n, err
}

// bounded makes what follows end in time, and at once when ctx does.
func (c *conn) bounded(ctx context.Context, d time.Duration) (release func()) {
	at := time.Now().Add(d)
	if until, ok := ctx.Deadline(); ok && until.Before(at) {
		at = until
	}
	c.raw.SetDeadline(at)
	stop := context.AfterFunc(ctx, func() { c.raw.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

func (c *conn) close() { c.raw.Close() }

// bye ends the connection as it should be ended, where that is quick.
func (c *conn) bye() {
	if !c.broken && c.client != nil {
		c.raw.SetDeadline(time.Now().Add(time.Second))
		_ = c.client.Quit()
	}
	c.raw.Close()
}

// reply judges the answer to a command that no message depends on yet.
func (c *conn) reply(what string, err error) *Failure {
	var reply *textproto.Error
	switch {
	case !errors.As(err, &reply):
		c.broken = true
		return down("the mail server %s: %s", "was lost before the message was sent", inWords(err))
	case reply.Code == 421: // it is about to close
		c.broken = true
		return down("the mail server answered %s with %s", what, code(reply))
	case reply.Code >= 500:
		return refused("the mail server answered %s with %s", what, code(reply))
	default:
		return &Failure{Kind: Later, Reason: "the mail server answered " + what + " with " + code(reply)}
	}
}

// from names the sender.
func (c *conn) from(msg *Mail) error {
	if c.open_ {
		if err := c.client.Reset(); err != nil {
			c.broken = true
			return c.reply("RSET", err)
		}
		c.open_ = false
	}
	utf8, _ := c.client.Extension("SMTPUTF8")
	if msg.international() && !utf8 {
		return refused("the mail server takes no addresses beyond ASCII")
	}
	c.client.SkipSMTPUTF8(!msg.international())
	if err := c.client.Mail("<" + msg.From.Address + ">"); err != nil {
		return c.reply("the sender", err)
	}
	c.open_ = true
	return nil
}

// talk names the addresses, marks, and sends.
func (c *conn) talk(ctx context.Context, msg *Mail, text []byte, mark func(context.Context) error) (*Lost, error) {
	release := c.bounded(ctx, c.m.o.Timeout)
	lost, err := c.recipients(msg)
	release()
	if err != nil {
		return nil, err
	}
	if err := mark(ctx); err != nil {
		return nil, err // the next message begins with RSET
	}
	// From here on the answer is worth more than a quick stop.
	release = c.bounded(context.WithoutCancel(ctx), c.m.o.Answer)
	defer release()
	return lost, c.data(text)
}

func (c *conn) recipients(msg *Mail) (*Lost, error) {
	var lost *Lost
	for _, a := range msg.To {
		err := c.client.Rcpt("<" + a.Address + ">")
		if err == nil {
			continue
		}
		f := c.reply("an address", err)
		if f.Kind != Refused {
			return nil, f
		}
		if lost == nil {
			lost = &Lost{}
		}
		lost.Addresses++
		lost.Reason = f.Reason
	}
	if lost != nil && lost.Addresses == len(msg.To) {
		return nil, &Failure{Kind: Refused, Reason: lost.Reason}
	}
	return lost, nil
}

// data sends the message itself. Until the final dot is written, a lost connection means that the server has no message: it must
// not deliver what does not end (RFC 5321, 4.1.1.4). After that only its answer tells.
func (c *conn) data(text []byte) error {
	t := c.client.Text
	id, err := t.Cmd("DATA")
	if err != nil {
		return c.reply("DATA", err)
	}
	t.StartResponse(id)
	_, _, err = t.ReadResponse(354)
	t.EndResponse(id)
	if err != nil {
		return c.reply("DATA", err)
	}
	c.broken = true // until the answer is here
	w := t.DotWriter()
	if _, err := w.Write(text); err != nil {
		return c.reply("the message", err)
	}
	if err := t.W.Flush(); err != nil {
		return c.reply("the message", err)
	}
	before := c.raw.written
	err = w.Close() // the dot
	if err != nil && c.raw.written == before {
		return c.reply("the message", err)
	}
	if err == nil {
		_, _, err = t.ReadResponse(250)
	}
	var reply *textproto.Error
	switch {
	case err == nil:
		c.broken, c.open_ = false, false
		c.sent++
		return nil
	case errors.As(err, &reply):
		c.broken, c.open_ = false, false
		return c.reply("the message", err)
	default:
		return &Failure{Kind: Uncertain, Down: true, Reason: "the mail server was lost after the message was sent and before it said that it has it: " + inWords(err)}
	}
}
