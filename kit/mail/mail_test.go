package mail_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/mail"
	"github.com/mainstay-infra/mainstay/kit/mail/mailtest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

var open = webhook.Guard{AllowPrivate: true}

func parse(t *testing.T, raw string) mail.Target {
	t.Helper()
	target, err := mail.Parse(open, raw)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

var message = mail.Message{
	ID: "01234", At: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Subject: "VM wéb has failed\r\nBcc: all@example.org",
	Text: "VM web has failed:\n.\n..dots\nQUIT\n" + strings.Repeat("long ", 300),
}

func TestAMessageArrivesAsItIsOverTLSWithAPassword(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, scheme, auth string
	}{{"STARTTLS", "smtp", ""}, {"TLS", "smtps", ""}, {"LOGIN", "smtp", "LOGIN"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.New(t, func(s *mailtest.Server) { s.Auth, s.Implicit = c.auth, c.scheme == "smtps" })
			target := parse(t, c.scheme+"://alerts%40example.org@"+s.Addr+"?from=m@example.org&to=a@example.org&to=b@example.org")
			if err := (mail.Sender{Guard: open, TLS: s.TLS}).Send(t.Context(), target, s.Password, message); err != nil {
				t.Fatal(err)
			}
			got := s.Mails()
			if len(got) != 1 || got[0].User != "alerts@example.org" || got[0].From != "m@example.org" || !got[0].TLS ||
				strings.Join(got[0].To, " ") != "a@example.org b@example.org" {
				t.Fatalf("%+v", got)
			}
			head, body, _ := strings.Cut(got[0].Content, "\n\n")
			for _, want := range []string{"Message-ID: <01234@mainstay>", "Auto-Submitted: auto-generated", "Subject: =?UTF-8?q?VM_w=C3=A9b"} {
				if !strings.Contains(head, want) {
					t.Errorf("%q is not in %s", want, head)
				}
			}
			if strings.Contains(head, "\nBcc:") {
				t.Errorf("the subject added a header: %s", head)
			}
			body = strings.ReplaceAll(body, "=\n", "")
			if !strings.Contains(body, "VM web has failed:\n.\n..dots\nQUIT\n") || strings.Count(body, "long") != 300 {
				t.Errorf("%q", body)
			}
		})
	}
}

func TestAPasswordIsNotSentWithoutVerifiedTLS(t *testing.T) {
	t.Parallel()
	s := mailtest.New(t)
	target := parse(t, "smtp://user@"+s.Addr+"?from=m@example.org&to=a@example.org")
	if err := (mail.Sender{Guard: open}).Send(t.Context(), target, s.Password, message); err == nil {
		t.Error("a certificate of nobody is trusted")
	}
	s = mailtest.New(t, func(s *mailtest.Server) { s.NoTLS = true })
	target = parse(t, "smtp://user@"+s.Addr+"?from=m@example.org&to=a@example.org")
	err := (mail.Sender{Guard: open, TLS: s.TLS}).Send(t.Context(), target, s.Password, message)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no STARTTLS") {
		t.Errorf("%v", err)
	}
	relay := parse(t, "smtp://"+s.Addr+"?from=m@example.org&to=a@example.org&tls=none")
	if err := (mail.Sender{Guard: open}).Send(t.Context(), relay, "", message); err != nil {
		t.Error(err)
	}
	if got := s.Mails(); len(got) != 1 || got[0].TLS || got[0].User != "" {
		t.Errorf("%+v", got)
	}
}

func TestARefusalForGoodIsToldFromOneForNow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, answer string
		kind            fault.Kind
	}{
		{"MAIL", "451 try later", fault.Unavailable},
		{"RCPT", "550 no such user", fault.Invalid},
		{"AUTH", "535 5.7.8 authentication failed", fault.Invalid},
		{"EHLO", "421 busy", fault.Unavailable},
	} {
		s := mailtest.New(t)
		s.Answer(c.command, c.answer)
		s.Answer("HELO", c.answer)
		target := parse(t, "smtp://user@"+s.Addr+"?from=m@example.org&to=a@example.org")
		err := (mail.Sender{Guard: open, TLS: s.TLS}).Send(t.Context(), target, s.Password, message)
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.answer[:3]) || strings.Contains(err.Error(), s.Password) {
			t.Errorf("%s: %v", c.answer, err)
		}
	}
}

func TestAServerThatSaysNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		cancel()
		if err == nil {
			defer func() { _ = conn.Close() }()
			_, _ = conn.Read(make([]byte, 1)) // until the sender hangs up
		}
	}()
	target := parse(t, "smtp://"+l.Addr().String()+"?from=m@example.org&to=a@example.org")
	if err := (mail.Sender{Guard: open}).Send(ctx, target, "", message); err == nil {
		t.Error("it was sent")
	}
}

func TestURLsOfMailServersAreChecked(t *testing.T) {
	t.Parallel()
	const ok = "?from=m@example.org&to=a@example.org"
	for _, raw := range []string{
		"", "http://mail.example.org" + ok, "smtp://" + ok, "smtp://mail.example.org", "smtp://mail.example.org?from=m@example.org",
		"smtp://mail.example.org?to=a@example.org", "smtp://user:password@mail.example.org" + ok,
		"smtp://mail.example.org/path" + ok, "smtp://mail.example.org" + ok + "#x", "smtp://mail.example.org:0" + ok,
		"smtp://mail.example.org" + ok + "&cc=b@example.org", "smtp://user@mail.example.org" + ok + "&tls=none",
		"smtps://mail.example.org" + ok + "&tls=none", "smtp://mail.example.org" + ok + "&tls=maybe",
		"smtp://mail.example.org?from=m@example.org&to=a%0d%0aRCPT%20TO:<b@example.org>", "smtp://169.254.169.254" + ok,
		"smtp://mail.example.org?from=Me%20<m@example.org>&to=a@example.org", "smtp://a%0d%0ab@mail.example.org" + ok,
		"smtp://mail.example.org" + ok + strings.Repeat("&to=a@example.org", mail.MaxRecipients),
	} {
		_, err := mail.Parse(open, raw)
		if f := fault.From(err); err == nil || f.Kind != fault.Invalid || f.Field != "url" || strings.Contains(f.Message, "password@") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := mail.Parse(webhook.Guard{}, "smtp://127.0.0.1"+ok); err == nil {
		t.Error("a server inside the network is accepted")
	}
	target := mail.Target{Host: "127.0.0.1", Port: "25", From: "m@example.org", To: []string{"a@example.org"}, Plain: true}
	if err := (mail.Sender{}).Send(t.Context(), target, "", message); err == nil {
		t.Error("a connection into the network is made")
	}
}
