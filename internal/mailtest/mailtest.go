// Package mailtest is a mail server for tests: it speaks SMTP for real, over TCP, and does to a message what it is told, dying
// included. Its one invariant: Accepted lists exactly the messages that a real server would deliver.
package mailtest

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// A Fate is what becomes of a message.
type Fate int

// The fates.
const (
	Accept       Fate = iota
	LaterAddress      // 451 to its address
	LaterData         // 452 to the message
	RefuseAddress
	RefuseSender
	RefuseData
	DieBeforeDot // the connection is lost while the message is sent
	DieTaken     // it is lost after the final dot; the server has the message
	DieUntaken   // the same, and it has not
	Hang         // no answer to the final dot until the server closes
)

// A Message is one that was accepted.
type Message struct {
	ID     string // of its header
	From   string
	To     []string
	Header mail.Header
	Body   string
}

// A Server is a mail server on this machine.
type Server struct {
	Addr string
	// Fate decides about each message, told by the first address; nil accepts all. It is called once for each RCPT.
	Fate func(to string) Fate
	// TLS offers STARTTLS, User asks for a login.
	TLS            *tls.Config
	User, Password string

	t        testing.TB
	mu       sync.Mutex
	server   *smtp.Server
	listens  net.Listener
	conns    map[net.Conn]bool
	accepted []Message
	opened   int
	closed   chan struct{}
}

// Start starts the server, on Addr if it has one.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.t = t
	s.Run()
	t.Cleanup(s.Kill)
}

// Run starts a server that was killed again, at the same address.
func (s *Server) Run() {
	s.t.Helper()
	addr := s.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	for i := 0; err != nil && i < 100; i++ { // the port of the one that was killed
		time.Sleep(10 * time.Millisecond)
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	srv := smtp.NewServer(backend{s})
	srv.Domain, srv.ReadTimeout, srv.WriteTimeout, srv.AllowInsecureAuth = "mail.test", time.Minute, time.Minute, true
	srv.MaxRecipients, srv.EnableSMTPUTF8, srv.TLSConfig = 50, false, s.TLS
	srv.ErrorLog = quiet{}
	s.mu.Lock()
	s.Addr, s.server, s.listens, s.conns, s.closed = l.Addr().String(), srv, l, map[net.Conn]bool{}, make(chan struct{})
	s.mu.Unlock()
	go srv.Serve(listener{l, s})
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type listener struct {
	net.Listener
	s *Server
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		if l.s.conns == nil { // killed meanwhile
			reset(c)
			return c, nil
		}
		l.s.conns[c] = true
		l.s.opened++
	}
	return c, err
}

// Kill ends the server as SIGKILL would: nobody is answered any more, and every connection is reset.
func (s *Server) Kill() {
	s.mu.Lock()
	srv, conns := s.server, s.conns
	s.server, s.conns = nil, nil
	if s.closed != nil {
		close(s.closed)
		s.closed = nil
	}
	s.mu.Unlock()
	for c := range conns {
		reset(c)
	}
	if srv != nil {
		s.listens.Close()
		srv.Close()
	}
}

// reset closes without a farewell.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// Accepted are the messages that were accepted.
func (s *Server) Accepted() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.accepted...)
}

// Opened is how many connections were made.
func (s *Server) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

type backend struct{ s *Server }

func (b backend) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{s: b.s, c: c, open: b.s.User == ""}, nil
}

type session struct {
	s    *Server
	c    *smtp.Conn
	open bool
	from string
	to   []string
	fate Fate
}

func (x *session) AuthMechanisms() []string {
	if x.s.User == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (x *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != x.s.User || password != x.s.Password {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no: " + password}
		}
		x.open = true
		return nil
	}), nil
}

func (x *session) Mail(from string, _ *smtp.MailOptions) error {
	x.from, x.to, x.fate = from, nil, Accept
	switch {
	case !x.open:
		return smtp.ErrAuthRequired
	case x.s.Fate != nil && x.s.Fate("") == RefuseSender:
		return &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "not from " + from}
	}
	return nil
}

func (x *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	fate := Accept
	if x.s.Fate != nil {
		fate = x.s.Fate(to)
	}
	switch fate {
	case LaterAddress:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "greylisted: " + to}
	case RefuseAddress:
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user: " + to}
	case Accept:
	default:
		x.fate = fate
	}
	x.to = append(x.to, to)
	return nil
}

var errDied = errors.New("died")

func (x *session) Data(r io.Reader) error {
	if x.fate == DieBeforeDot {
		io.CopyN(io.Discard, r, 10)
		reset(x.c.Conn())
		return errDied
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch x.fate {
	case LaterData:
		return &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 3, 1}, Message: "full"}
	case RefuseData:
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "spam"}
	case DieUntaken:
		reset(x.c.Conn())
		return errDied
	case Hang:
		x.s.mu.Lock()
		closed := x.s.closed
		x.s.mu.Unlock()
		if closed != nil {
			<-closed
		}
		return errDied
	}
	m, err := mail.ReadMessage(strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	body, _ := io.ReadAll(m.Body)
	x.s.mu.Lock()
	alive := x.s.server != nil
	if alive {
		x.s.accepted = append(x.s.accepted, Message{ID: m.Header.Get("Message-ID"), From: x.from, To: x.to, Header: m.Header, Body: string(body)})
	}
	x.s.mu.Unlock()
	if x.fate == DieTaken || !alive {
		reset(x.c.Conn())
		return errDied
	}
	return nil
}

func (x *session) Reset()        { x.from, x.to, x.fate = "", nil, Accept }
func (x *session) Logout() error { return nil }
