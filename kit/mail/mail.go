// Package mail sends short text messages through mail servers that users configure, as webhooks are
// sent to URLs.
//
// A server is named by a URL:
//
//	smtp://[USER@]HOST[:587]?from=ADDRESS&to=ADDRESS[&to=ADDRESS...]   STARTTLS is required
//	smtps://[USER@]HOST[:465]?...                                     TLS from the beginning
//	smtp://HOST:25?...&tls=none                                       a relay without encryption
//
// # Invariants
//
//   - A password is only sent over TLS with a certificate that is verified.
//   - No connection reaches an address that the webhook.Guard refuses.
//   - A subject or an address cannot add a header, and a text cannot end the message.
package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	netmail "net/mail"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

const (
	// MaxRecipients is the largest number of addresses that a message goes to.
	MaxRecipients = 20
	maxURL        = 2048
	maxSubject    = 120 // characters
	timeout       = 30 * time.Second
	dialTimeout   = 10 * time.Second
)

// Target is a mail server, and whom it sends messages to.
type Target struct {
	Host, Port string
	User       string // empty: without authentication
	From       string
	To         []string
	Implicit   bool // TLS from the beginning
	Plain      bool // no TLS
}

// Parse reads the URL of a mail server. Faults are of kind Invalid, name the field url, and do not repeat the URL.
func Parse(g webhook.Guard, raw string) (t Target, err error) {
	wrong := func(format string, args ...any) (Target, error) {
		return Target{}, fault.InvalidField("url", format, args...)
	}
	if len(raw) > maxURL {
		return wrong("must be at most %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return wrong("is not a valid URL")
	}
	t = Target{Host: u.Hostname(), Port: u.Port(), Implicit: u.Scheme == "smtps"}
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return wrong("must begin with smtp:// or smtps://")
	case u.Opaque != "" || t.Host == "":
		return wrong("must have a host")
	case u.Path != "" && u.Path != "/" || strings.Contains(raw, "#"):
		return wrong("must have no path and no fragment")
	}
	if _, has := u.User.Password(); has {
		return wrong("must not contain the password; give it as the secret")
	}
	if err := g.CheckHost(u); err != nil {
		return wrong("%s", strings.TrimPrefix(fault.From(err).Message, fault.From(err).Field+": "))
	}
	t.User = u.User.Username()
	if strings.ContainsAny(t.User, "\r\n\x00") {
		return wrong("the user's name must be one line")
	}
	if t.Port == "" {
		t.Port = map[bool]string{false: "587", true: "465"}[t.Implicit]
	}
	return t, t.parseQuery(u.RawQuery)
}

func (t *Target) parseQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return fault.InvalidField("url", "is not a valid URL")
	}
	for key, values := range query {
		switch key {
		case "from":
			if len(values) != 1 {
				return fault.InvalidField("url", "must have one from")
			}
			if t.From, err = address("from", values[0]); err != nil {
				return err
			}
		case "to":
			for _, value := range values {
				to, err := address("to", value)
				if err != nil {
					return err
				}
				t.To = append(t.To, to)
			}
		case "tls":
			if t.Plain = len(values) == 1 && values[0] == "none" && !t.Implicit && t.User == ""; !t.Plain {
				return fault.InvalidField("url", "takes tls=none with smtp:// and without a user only")
			}
		default:
			return fault.InvalidField("url", "has a parameter that is not from, to or tls")
		}
	}
	if t.From == "" || len(t.To) == 0 || len(t.To) > MaxRecipients {
		return fault.InvalidField("url", "must have a from and 1 to %d to, such as ?from=mainstay@example.org&to=ops@example.org",
			MaxRecipients)
	}
	return nil
}

// address returns a bare address.
func address(name, text string) (string, error) {
	a, err := netmail.ParseAddress(text)
	if err != nil || a.Name != "" || strings.ContainsAny(a.Address, "\r\n\x00 ") {
		return "", fault.InvalidField("url", "%s must be an address, such as ops@example.org", name)
	}
	return a.Address, nil
}

// Message is a message to send.
type Message struct {
	ID      string    `json:"-"` // the same each time that the message is sent
	At      time.Time `json:"at"`
	Subject string    `json:"subject"` // cut off at 120 characters
	Text    string    `json:"text"`
}

// Sender sends messages. The zero Sender refuses addresses inside the network.
type Sender struct {
	Guard webhook.Guard
	TLS   *tls.Config // nil: the system's roots
}

// Send sends a message. A fault of kind Invalid means that the same message would be refused again.
func (s Sender) Send(ctx context.Context, t Target, password string, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.send(ctx, t, password, m)
	var said *textproto.Error
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.As(err, &said) && said.Code >= 500:
		return fault.Wrap(fault.Invalid, err, "the mail server answered: %d %s", said.Code, said.Msg)
	case errors.As(err, &said):
		return fault.Wrap(fault.Unavailable, err, "the mail server answered: %d %s", said.Code, said.Msg)
	}
	return err
}

func (s Sender) send(ctx context.Context, t Target, password string, m Message) error {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: s.Guard.Control}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(t.Host, t.Port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // after what matters was answered
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	conf := &tls.Config{}
	if s.TLS != nil {
		conf = s.TLS.Clone()
	}
	conf.MinVersion, conf.ServerName = max(conf.MinVersion, tls.VersionTLS12), t.Host
	if t.Implicit {
		conn = tls.Client(conn, conf)
	}
	c, err := smtp.NewClient(conn, t.Host)
	if err != nil {
		return err
	}
	if err := c.Hello("localhost"); err != nil { // Extension would hide the error
		return err
	}
	if !t.Implicit && !t.Plain {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return fault.New(fault.Invalid, "the mail server offers no STARTTLS; use smtps://, or tls=none for a relay without a password")
		}
		if err := c.StartTLS(conf); err != nil {
			return err
		}
	}
	if t.User != "" {
		if err := c.Auth(authentication(c, t, password)); err != nil {
			return err
		}
	}
	if err := c.Mail("<" + t.From + ">"); err != nil {
		return err
	}
	for _, to := range t.To {
		if err := c.Rcpt("<" + to + ">"); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	content, err := t.compose(m)
	if err != nil {
		return err
	}
	if _, err := content.WriteTo(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil { // the answer counts
		return err
	}
	_ = c.Quit() // the message is accepted
	return nil
}

// authentication returns the best way that the server offers.
func authentication(c *smtp.Client, t Target, password string) smtp.Auth {
	_, offered := c.Extension("AUTH")
	ways := strings.Fields(strings.ToUpper(offered))
	has := func(way string) bool {
		for _, w := range ways {
			if w == way {
				return true
			}
		}
		return false
	}
	switch {
	case has("SCRAM-SHA-256"):
		return smtp.ScramSHA256Auth(t.User, password)
	case has("LOGIN") && !has("PLAIN"):
		return smtp.LoginAuth(t.User, password, t.Host, false)
	}
	return smtp.PlainAuth("", t.User, password, t.Host, false)
}

// compose returns a message with its headers.
func (t Target) compose(m Message) (*gomail.Msg, error) {
	out := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := errors.Join(out.From(t.From), out.To(t.To...)); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "an address is not valid")
	}
	subject := []rune(oneLine(m.Subject))
	out.Subject(string(subject[:min(len(subject), maxSubject)]))
	out.SetMessageIDWithValue(m.ID + "@mainstay")
	out.SetDateWithValue(m.At)
	out.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no vacation notes
	out.SetBodyString(gomail.TypeTextPlain, m.Text)
	return out, nil
}

// oneLine replaces control characters, which may hide or add headers.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
