package deliver

import (
	"bytes"
	"fmt"
	"net/mail"
	"strings"
	"time"
	"unicode"

	gomail "github.com/wneessen/go-mail"
)

// A Mail is one e-mail, to one or several addresses.
type Mail struct {
	ID      string // the part of the Message-ID before the @: the same for each attempt
	From    *mail.Address
	To      []*mail.Address
	Subject string
	Text    string
	Date    time.Time
}

// MostRecipients bounds the addresses of one e-mail.
const MostRecipients = 20

// ParseAddress reads one address as a person writes it, name@example.org or Name <name@example.org>. Its error does not show it.
func ParseAddress(text string) (*mail.Address, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, fmt.Errorf("the address is empty")
	}
	a, err := mail.ParseAddress(text)
	if err != nil || unfit(a.Address) || unfit(a.Name) || len(a.Address) > 254 {
		return nil, fmt.Errorf("the address is malformed")
	}
	return a, nil
}

// unfit reports characters that could end a header or a command of the protocol.
func unfit(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == unicode.ReplacementChar
	})
}

// check refuses what would not be the message that was meant.
func (m *Mail) check() error {
	switch {
	case len(m.To) == 0:
		return refused("there is nobody to send it to")
	case len(m.To) > MostRecipients:
		return refused("there are more than %d addresses to send it to", MostRecipients)
	case unfit(m.Subject):
		return refused("the subject has a line break or a control character in it")
	case strings.TrimSpace(m.Subject) == "":
		return refused("the subject is empty")
	}
	for _, a := range append([]*mail.Address{m.From}, m.To...) {
		if a == nil || unfit(a.Address) || unfit(a.Name) || strings.ContainsAny(a.Address, "<> ") {
			return refused("an address is malformed")
		}
	}
	return nil
}

// compose writes the message as it goes out.
func (m *Mail) compose() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	msg := gomail.NewMsg(gomail.WithCharset(gomail.CharsetUTF8), gomail.WithEncoding(gomail.EncodingQP), gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(m.From)
	msg.ToMailAddress(m.To...)
	msg.Subject(m.Subject)
	msg.SetDateWithValue(m.Date)
	_, domain, _ := strings.Cut(m.From.Address, "@")
	msg.SetMessageIDWithValue(m.ID + "@" + domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody's absence is to answer it
	msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	var b bytes.Buffer
	if _, err := msg.WriteTo(&b); err != nil {
		return nil, refused("the message cannot be written") // the cause may show an address
	}
	return b.Bytes(), nil
}

// international reports whether an address of the message is more than ASCII.
func (m *Mail) international() bool {
	for _, a := range append([]*mail.Address{m.From}, m.To...) {
		if strings.ContainsFunc(a.Address, func(r rune) bool { return r > unicode.MaxASCII }) {
			return true
		}
	}
	return false
}
