package deliver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

const (
	// perConnection messages are sent before a connection is renewed: servers allow no endless ones.
	perConnection = 100
	// idleConns connections are kept for a next message, idleFor at most.
	idleConns = 8
	idleFor   = 20 * time.Second
)

// MailOptions name a mail server.
type MailOptions struct {
	Server string // smtp://user:password@host:port or smtps://…; a secret
	// Timeout is how long one step of the conversation may take. Default 1 min.
	Timeout time.Duration
	// Answer is how long the server may take from the moment a message is marked as going out until it says what became of it.
	// Default 2 min.
	Answer time.Duration
	// TLS is for tests, whose certificates nobody else signed. nil: the machine's certificates.
	TLS *tls.Config
}

// A Mailer hands e-mails to one mail server, over connections that it keeps for a while. It is safe for concurrent use.
type Mailer struct {
	o              MailOptions
	host, address  string
	user, password string
	implicit       bool // TLS from the first byte
	hello          string

	mu     sync.Mutex
	idle   []*conn // the last is the one used last
	closed bool
}

// NewMailer reads the server's address. Nothing is sent before [Mailer.Send].
func NewMailer(o MailOptions) (*Mailer, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" {
		return nil, errors.New("the address of the mail server cannot be read") // the error would repeat its password
	}
	m := &Mailer{o: o, host: u.Hostname(), implicit: u.Scheme == "smtps", hello: "localhost"}
	m.o.Timeout, m.o.Answer = cmp.Or(o.Timeout, time.Minute), cmp.Or(o.Answer, 2*time.Minute)
	m.user = u.User.Username()
	m.password, _ = u.User.Password()
	port := "25"
	switch {
	case m.implicit:
		port = "465"
	case m.user != "":
		port = "587"
	}
	m.address = net.JoinHostPort(m.host, cmp.Or(u.Port(), port))
	if name, err := os.Hostname(); err == nil && helloName.MatchString(name) {
		m.hello = name
	}
	return m, nil
}

var helloName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// Answer is how long a message that was marked as going out may take until its fate is known, or known to be unknown.
func (m *Mailer) Answer() time.Duration { return m.o.Answer }

// Close ends the connections that nobody uses.
func (m *Mailer) Close() {
	m.mu.Lock()
	idle := m.idle
	m.idle, m.closed = nil, true
	m.mu.Unlock()
	for _, c := range idle {
		c.bye()
	}
}

// Check talks to the server as a message would, up to the point where its sender is named.
func (m *Mailer) Check(ctx context.Context) error {
	c, err := m.dial(ctx)
	if err != nil {
		return err
	}
	c.bye()
	return nil
}

// Send hands one message to the server. mark is called when the server is ready to take it and before a byte of it goes out: it
// records durably that the message may have been sent from now on, and its error is returned with nothing sent. When mark was
// not called, nothing was sent; when it was, Later and Refused still say that the server did not take the message.
//
// Nil means that the server took it: for every address, or for those it did not refuse for good while others were accepted;
// then lost says how many, and the last refusal.
func (m *Mailer) Send(ctx context.Context, msg Mail, mark func(context.Context) error) (lost *Lost, err error) {
	text, err := msg.compose()
	if err != nil {
		return nil, err
	}
	c, err := m.ready(ctx, &msg)
	if err != nil {
		return nil, err
	}
	lost, err = c.talk(ctx, &msg, text, mark)
	m.giveBack(c)
	return lost, err
}

// Lost says that a message went to some of its addresses and not to all.
type Lost struct {
	Addresses int
	Reason    string
}

// ready is a connection on which the sender was accepted. One that was kept may have been closed by the server meanwhile: that is
// no failure, and a new one takes its place.
func (m *Mailer) ready(ctx context.Context, msg *Mail) (*conn, error) {
	for c := m.take(); c != nil; c = m.take() {
		release := c.bounded(ctx, m.o.Timeout)
		err := c.from(msg)
		release()
		if err == nil || !c.broken {
			return m.orBack(c, err)
		}
		c.close()
	}
	c, err := m.dial(ctx)
	if err != nil {
		return nil, err
	}
	release := c.bounded(ctx, m.o.Timeout)
	defer release()
	return m.orBack(c, c.from(msg))
}

// orBack keeps the connection when the sender was refused on it.
func (m *Mailer) orBack(c *conn, err error) (*conn, error) {
	if err != nil {
		m.giveBack(c)
		return nil, err
	}
	return c, nil
}

func (m *Mailer) take() *conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := len(m.idle); n > 0; n = len(m.idle) {
		c := m.idle[n-1]
		m.idle = m.idle[:n-1]
		if time.Since(c.used) < idleFor {
			return c
		}
		c.close()
	}
	return nil
}

// giveBack keeps a connection for the next message, unless it broke or has carried enough.
func (m *Mailer) giveBack(c *conn) {
	c.used = time.Now()
	m.mu.Lock()
	if !c.broken && c.sent < perConnection && len(m.idle) < idleConns && !m.closed {
		m.idle = append(m.idle, c)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	c.bye()
}

// dial connects, encrypts and logs in.
func (m *Mailer) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", m.address)
	if err != nil {
		return nil, down("the mail server cannot be reached: %s", inWords(err))
	}
	w := &watched{Conn: raw}
	c := &conn{m: m, raw: w}
	release := c.bounded(ctx, m.o.Timeout)
	defer release()
	if err := c.open(m); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// open begins the conversation. Whatever goes wrong in it concerns every message.
func (c *conn) open(m *Mailer) error {
	trusted := &tls.Config{}
	if m.o.TLS != nil {
		trusted = m.o.TLS.Clone()
	}
	trusted.ServerName, trusted.MinVersion = m.host, tls.VersionTLS12
	var err error
	var wire net.Conn = c.raw
	if m.implicit {
		t := tls.Client(c.raw, trusted)
		if err := t.Handshake(); err != nil {
			return down("the mail server cannot be reached: %s", inWords(err))
		}
		wire = t
	}
	if c.client, err = smtp.NewClient(wire, m.host); err != nil {
		return c.way("greeted", err)
	}
	if err := c.client.Hello(m.hello); err != nil {
		return c.way("answered EHLO with", err)
	}
	if offered, _ := c.client.Extension("STARTTLS"); offered && !m.implicit {
		if m.user == "" {
			// Without a password there is nothing that a stranger could steal and the line would be open anyway: encrypted to
			// whoever answers is better than that, and many a local server's certificate is its own.
			trusted.InsecureSkipVerify = true
		}
		if err := c.client.StartTLS(trusted); err != nil {
			return c.way("answered STARTTLS with", err)
		}
	} else if m.user != "" && !m.implicit {
		return down("the mail server does not offer STARTTLS, and the password is not sent in the clear")
	}
	if m.user == "" {
		return nil
	}
	return c.login(m)
}

func (c *conn) login(m *Mailer) error {
	_, mechanisms := c.client.Extension("AUTH")
	offers := strings.Fields(strings.ToUpper(mechanisms))
	var auth smtp.Auth
	for _, way := range []struct {
		name string
		auth smtp.Auth
	}{
		{"PLAIN", smtp.PlainAuth("", m.user, m.password, m.host, false)},
		{"LOGIN", smtp.LoginAuth(m.user, m.password, m.host, false)},
		{"CRAM-MD5", smtp.CRAMMD5Auth(m.user, m.password)},
	} {
		for _, o := range offers {
			if auth == nil && o == way.name {
				auth = way.auth
			}
		}
	}
	if auth == nil {
		return down("the mail server offers no way to log in that is known here (PLAIN, LOGIN, CRAM-MD5)")
	}
	if err := c.client.Auth(auth); err != nil {
		return c.way("answered the login with", err)
	}
	return nil
}

// way is an error of the conversation before there is a message.
func (c *conn) way(verb string, err error) error {
	c.broken = true
	var reply *textproto.Error
	if errors.As(err, &reply) {
		return down("the mail server %s %s", verb, code(reply))
	}
	return down("the mail server cannot be reached: %s", inWords(err))
}

var enhanced = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)

// code is a reply without its words, which may show an address: 550 5.1.1.
func code(reply *textproto.Error) string {
	words := fmt.Sprint(reply.Code)
	if more := enhanced.FindString(reply.Msg); more != "" {
		words += " " + more
	}
	return words
}
