// Package mailtest has a mail server for tests. It enforces the order of commands, takes passwords over
// TLS only, and undoes the stuffing of dots (RFC 5321, RFC 3207, RFC 4954).
package mailtest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Mail is a message that the server accepted.
type Mail struct {
	User, From string
	To         []string
	Content    string // lines end with \n
	TLS        bool
}

// Server is a mail server on this machine.
type Server struct {
	*testing.T
	Addr     string
	TLS      *tls.Config // trusts the server
	Password string      // of every user
	Auth     string      // the ways that it offers; empty: PLAIN LOGIN
	NoTLS    bool        // it does not offer STARTTLS
	Implicit bool        // TLS from the beginning

	own *tls.Config

	mu     sync.Mutex
	answer map[string]string // to a command, in place of acceptance
	mails  []Mail
}

// New starts a server that ends with the test, as the functions change it. Its certificate is for example.com and
// 127.0.0.1.
func New(t *testing.T, change ...func(*Server)) *Server {
	t.Helper()
	https := httptest.NewUnstartedServer(nil) // for its certificate
	https.StartTLS()
	defer https.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		T: t, Addr: l.Addr().String(), own: &tls.Config{Certificates: https.TLS.Certificates, MinVersion: tls.VersionTLS12},
		answer: map[string]string{}, Password: "let me in",
	}
	roots := x509.NewCertPool()
	roots.AddCert(https.Certificate())
	s.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	for _, f := range change {
		f(s)
	}
	log := slog.New(slog.DiscardHandler)
	accepting := routine.Start(log, "mail server", func() error {
		var sessions []<-chan error
		for {
			conn, err := l.Accept()
			if err != nil {
				for _, ended := range sessions {
					err = errors.Join(err, <-ended)
				}
				return err
			}
			sessions = append(sessions, routine.Start(log, "mail session", func() error {
				s.serve(conn)
				return nil
			}))
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-accepting; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the mail server: %v", err)
		}
	})
	return s
}

// Answer sets what the server answers to a command, such as "RCPT", in place of accepting it.
func (s *Server) Answer(command, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer[command] = line
}

// Mails returns what the server accepted so far.
func (s *Server) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.mails...)
}

// session is one connection.
type session struct {
	*Server
	conn net.Conn
	in   *bufio.Reader
	mail Mail
	user string
	tls  bool
}

func (s *Server) serve(conn net.Conn) {
	c := &session{Server: s}
	c.use(conn)
	defer func() { _ = c.conn.Close() }()
	if s.Implicit {
		c.use(tls.Server(conn, s.own))
		c.tls = true
	}
	c.say("220 mail.example.com")
	for {
		line, err := c.in.ReadString('\n')
		if err != nil || !c.command(strings.TrimRight(line, "\r\n")) {
			return
		}
	}
}

func (c *session) use(conn net.Conn) { c.conn, c.in = conn, bufio.NewReader(conn) }

func (c *session) say(line string) { _, _ = fmt.Fprintf(c.conn, "%s\r\n", line) }

// command carries out a command, and reports whether the session goes on.
func (c *session) command(line string) bool {
	verb, rest, _ := strings.Cut(line, " ")
	verb = strings.ToUpper(verb)
	c.mu.Lock()
	answer := c.answer[verb]
	c.mu.Unlock()
	if answer != "" {
		c.say(answer)
		return true
	}
	switch verb {
	case "EHLO":
		c.say("250-mail.example.com")
		if !c.tls && !c.NoTLS {
			c.say("250-STARTTLS")
		}
		if c.tls {
			ways := c.Auth
			if ways == "" {
				ways = "PLAIN LOGIN"
			}
			c.say("250-AUTH " + ways)
		}
		c.say("250 8BITMIME")
	case "STARTTLS":
		if c.tls || c.NoTLS {
			c.say("503 not now")
			return true
		}
		c.say("220 go on")
		c.use(tls.Server(c.conn, c.own))
		c.tls = true
	case "AUTH":
		c.authenticate(rest)
	case "MAIL":
		c.mail = Mail{User: c.user, From: between(rest), TLS: c.tls}
		if c.mail.From == "" {
			c.say("501 an address is in angle brackets")
			return true
		}
		c.say("250 ok")
	case "RCPT":
		if c.mail.From == "" {
			c.say("503 MAIL comes first")
			return true
		}
		c.mail.To = append(c.mail.To, between(rest))
		c.say("250 ok")
	case "DATA":
		return c.data()
	case "QUIT":
		c.say("221 bye")
		return false
	default:
		c.say("500 what?")
	}
	return true
}

// between returns what is in angle brackets.
func between(text string) string {
	_, text, _ = strings.Cut(text, "<")
	text, _, _ = strings.Cut(text, ">")
	return text
}

func (c *session) authenticate(rest string) {
	if !c.tls {
		c.Errorf("a password is sent without TLS")
	}
	way, first, _ := strings.Cut(rest, " ")
	ask := func(what string) string {
		c.say("334 " + base64.StdEncoding.EncodeToString([]byte(what)))
		line, _ := c.in.ReadString('\n')
		plain, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
		return string(plain)
	}
	var user, password string
	switch way {
	case "PLAIN":
		plain, _ := base64.StdEncoding.DecodeString(first)
		if parts := strings.Split(string(plain), "\x00"); len(parts) == 3 {
			user, password = parts[1], parts[2]
		}
	case "LOGIN":
		user, password = ask("Username:"), ask("Password:")
	}
	if user == "" || password != c.Password {
		c.say("535 5.7.8 authentication failed")
		return
	}
	c.user = user
	c.say("235 welcome")
}

func (c *session) data() bool {
	if len(c.mail.To) == 0 {
		c.say("503 RCPT comes first")
		return true
	}
	c.say("354 go on")
	var content strings.Builder
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return false
		}
		if !strings.HasSuffix(line, "\r\n") {
			c.Errorf("a line ends without CR LF: %q", line)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "." {
			break
		}
		content.WriteString(strings.TrimPrefix(line, ".") + "\n")
	}
	c.mail.Content = content.String()
	c.mu.Lock()
	c.mails = append(c.mails, c.mail)
	c.mu.Unlock()
	c.mail = Mail{}
	c.say("250 queued")
	return true
}
