package deliver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/mail"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/mailtest"
)

func address(t *testing.T, text string) *mail.Address {
	t.Helper()
	a, err := ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func letter(t *testing.T, to ...string) Mail {
	t.Helper()
	m := Mail{ID: "abc123", From: address(t, "Pörtal <portal@example.org>"), Subject: "Ihr Zugang läuft ab", Text: "Grüße,\n.\nein Punkt",
		Date: time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)}
	for _, a := range to {
		m.To = append(m.To, address(t, a))
	}
	return m
}

func mailer(t *testing.T, s *mailtest.Server, edit func(*MailOptions)) *Mailer {
	t.Helper()
	o := MailOptions{Server: "smtp://" + s.Addr, Timeout: 5 * time.Second, Answer: 5 * time.Second}
	if edit != nil {
		edit(&o)
	}
	m, err := NewMailer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func unmarked(context.Context) error { return nil }

func TestMail(t *testing.T) {
	s := &mailtest.Server{}
	s.Start(t)
	m := mailer(t, s, nil)
	for range 5 {
		if lost, err := m.Send(t.Context(), letter(t, "Ada <ada@example.org>", "bob@example.org"), unmarked); err != nil || lost != nil {
			t.Fatal(lost, err)
		}
	}
	got := s.Accepted()
	if len(got) != 5 || s.Opened() != 1 {
		t.Fatalf("%d messages over %d connections", len(got), s.Opened())
	}
	x := got[0]
	if x.ID != "<abc123@example.org>" || x.From != "portal@example.org" || strings.Join(x.To, " ") != "ada@example.org bob@example.org" {
		t.Errorf("%+v", x)
	}
	dec := func(h string) string {
		out, err := (&mail.AddressParser{}).ParseList(x.Header.Get(h))
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, a := range out {
			words = append(words, a.Name+" "+a.Address)
		}
		return strings.Join(words, ", ")
	}
	if dec("From") != "Pörtal portal@example.org" || dec("To") != "Ada ada@example.org,  bob@example.org" {
		t.Errorf("From %q, To %q", dec("From"), dec("To"))
	}
	if h := x.Header.Get("Subject"); !strings.HasPrefix(h, "=?UTF-8?") || x.Header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("Subject %q, %v", h, x.Header)
	}
	if d, err := x.Header.Date(); err != nil || !d.Equal(letter(t).Date) {
		t.Errorf("Date %v %v", d, err)
	}
	if !strings.Contains(x.Body, "Gr=C3=BC=C3=9Fe") || !strings.Contains(x.Body, "ein Punkt") {
		t.Errorf("body %q", x.Body)
	}
}

// What is known of a message, for each way in which it can fail.
func TestFates(t *testing.T) {
	for _, tc := range []struct {
		name     string
		fate     mailtest.Fate
		kind     Kind
		reason   string
		marked   bool
		accepted int
	}{
		{"later address", mailtest.LaterAddress, Later, "the mail server answered an address with 451 4.7.1", false, 0},
		{"later data", mailtest.LaterData, Later, "the mail server answered the message with 452 4.3.1", true, 0},
		{"refused address", mailtest.RefuseAddress, Refused, "the mail server answered an address with 550 5.1.1", false, 0},
		{"refused sender", mailtest.RefuseSender, Refused, "the mail server answered the sender with 553 5.7.1", false, 0},
		{"refused data", mailtest.RefuseData, Refused, "the mail server answered the message with 554 5.6.0", true, 0},
		{"dies taken", mailtest.DieTaken, Uncertain, "connection lost", true, 1},
		{"dies untaken", mailtest.DieUntaken, Uncertain, "connection lost", true, 0},
		{"hangs", mailtest.Hang, Uncertain, "no answer in time", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			die := true
			s := &mailtest.Server{Fate: func(string) mailtest.Fate {
				if die {
					return tc.fate
				}
				return mailtest.Accept
			}}
			s.Start(t)
			m := mailer(t, s, func(o *MailOptions) {
				if tc.fate == mailtest.Hang {
					o.Answer = 200 * time.Millisecond
				}
			})
			marked := false
			_, err := m.Send(t.Context(), letter(t, "ada@example.org"), func(context.Context) error { marked = true; return nil })
			f, ok := errors.AsType[*Failure](err)
			if !ok || f.Kind != tc.kind || !strings.HasSuffix(f.Reason, tc.reason) || strings.Contains(f.Reason, "ada") || strings.Contains(f.Reason, "127.0") {
				t.Errorf("%+v", err)
			}
			if marked != tc.marked || len(s.Accepted()) != tc.accepted {
				t.Errorf("marked %v, accepted %d", marked, len(s.Accepted()))
			}
			die = false
			if _, err := m.Send(t.Context(), letter(t, "bob@example.org"), unmarked); err != nil {
				t.Errorf("the next message: %v", err)
			}
		})
	}
}

// A body too large for the buffers between us, so that the server dies while it is on its way and not after the dot.
func TestDiesBeforeTheDot(t *testing.T) {
	s := &mailtest.Server{Fate: func(string) mailtest.Fate { return mailtest.DieBeforeDot }}
	s.Start(t)
	x := letter(t, "ada@example.org")
	x.Text = strings.Repeat("a line of a message that is long\n", 1<<19)
	_, err := mailer(t, s, nil).Send(t.Context(), x, unmarked)
	if f, ok := errors.AsType[*Failure](err); !ok || f.Kind != Later || !f.Down {
		t.Errorf("%+v", err)
	}
}

func TestMarkRefuses(t *testing.T) {
	s := &mailtest.Server{}
	s.Start(t)
	m := mailer(t, s, nil)
	no := errors.New("held")
	for range 3 {
		if _, err := m.Send(t.Context(), letter(t, "ada@example.org"), func(context.Context) error { return no }); err != no {
			t.Fatal(err)
		}
		if _, err := m.Send(t.Context(), letter(t, "bob@example.org"), unmarked); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Accepted(); len(got) != 3 || got[0].To[0] != "bob@example.org" || len(got[0].To) != 1 || s.Opened() != 1 {
		t.Errorf("%d connections, %+v", s.Opened(), got)
	}
}

func TestSomeRefused(t *testing.T) {
	s := &mailtest.Server{Fate: func(to string) mailtest.Fate {
		if to == "gone@example.org" {
			return mailtest.RefuseAddress
		}
		return mailtest.Accept
	}}
	s.Start(t)
	lost, err := mailer(t, s, nil).Send(t.Context(), letter(t, "ada@example.org", "gone@example.org"), unmarked)
	if err != nil || lost == nil || lost.Addresses != 1 || strings.Contains(lost.Reason, "gone") {
		t.Errorf("%+v %v", lost, err)
	}
}

// A connection that the server closed while nobody used it is replaced without a word.
func TestServerRestarts(t *testing.T) {
	s := &mailtest.Server{}
	s.Start(t)
	m := mailer(t, s, nil)
	send := func() error {
		_, err := m.Send(t.Context(), letter(t, "ada@example.org"), unmarked)
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	f, ok := errors.AsType[*Failure](send())
	if !ok || f.Kind != Later || !f.Down || f.Reason != "the mail server cannot be reached: connection refused" {
		t.Fatalf("%+v", f)
	}
	s.Run()
	if err := send(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Run()
	if err := send(); err != nil {
		t.Fatal("a stale connection:", err)
	}
}

func TestRefusedBeforeItGoesOut(t *testing.T) {
	s := &mailtest.Server{}
	s.Start(t)
	m := mailer(t, s, nil)
	for name, edit := range map[string]func(*Mail){
		"subject with a line break": func(m *Mail) { m.Subject = "Hello\r\nBcc: eve@example.org" },
		"subject with a bare LF":    func(m *Mail) { m.Subject = "Hello\nBcc: eve@example.org" },
		"empty subject":             func(m *Mail) { m.Subject = " " },
		"address with a line break": func(m *Mail) { m.To[0].Address = "ada@example.org>\r\nRCPT TO:<eve@example.org" },
		"name with a line break":    func(m *Mail) { m.To[0].Name = "Ada\r\nBcc: eve@example.org" },
		"sender with a line break":  func(m *Mail) { m.From.Name = "x\ny" },
		"nobody":                    func(m *Mail) { m.To = nil },
		"beyond ASCII":              func(m *Mail) { m.To[0].Address = "adä@example.org" },
		"too many": func(m *Mail) {
			for range MostRecipients {
				m.To = append(m.To, &mail.Address{Address: "x@example.org"})
			}
		},
	} {
		x := letter(t, "ada@example.org")
		edit(&x)
		_, err := m.Send(t.Context(), x, func(context.Context) error { t.Errorf("%s: marked", name); return nil })
		if f, ok := errors.AsType[*Failure](err); !ok || f.Kind != Refused || strings.Contains(f.Reason, "ad") && strings.Contains(f.Reason, "@") {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if n := len(s.Accepted()); n != 0 {
		t.Errorf("%d messages", n)
	}
	for _, bad := range []string{"", " ", "ada", "ada@", "@example.org", "a@b, c@d", "ada@example.org\r\nBcc: x@y", "ada@exam\nple.org", "a b@example.org"} {
		if _, err := ParseAddress(bad); err == nil || strings.Contains(err.Error(), "ada") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// certificate makes one for 127.0.0.1 and those who trust it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestLogin(t *testing.T) {
	cert, pool := certificate(t)
	withTLS := &tls.Config{Certificates: []tls.Certificate{cert}}
	for _, tc := range []struct {
		name, user string
		server     *tls.Config
		trust      *x509.CertPool
		want       string // "" is accepted
	}{
		{"as it should be", "ada:s3cret@", withTLS, pool, ""},
		{"wrong password", "ada:wr0ng@", withTLS, pool, "the mail server answered the login with 535 5.7.8"},
		{"no STARTTLS", "ada:s3cret@", nil, pool, "the mail server does not offer STARTTLS, and the password is not sent in the clear"},
		{"unknown certificate", "ada:s3cret@", withTLS, nil, "the mail server cannot be reached: its certificate is not accepted"},
		{"no password, unknown certificate", "", withTLS, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &mailtest.Server{TLS: tc.server}
			if tc.user != "" {
				s.User, s.Password = "ada", "s3cret"
			}
			s.Start(t)
			m := mailer(t, s, func(o *MailOptions) {
				o.Server = "smtp://" + tc.user + s.Addr
				o.TLS = &tls.Config{RootCAs: tc.trust}
			})
			_, err := m.Send(t.Context(), letter(t, "ada@example.org"), unmarked)
			if tc.want == "" && err == nil {
				return
			}
			if f, ok := errors.AsType[*Failure](err); !ok || f.Kind != Later || !f.Down || f.Reason != tc.want {
				t.Errorf("%+v", err)
			}
		})
	}
}
