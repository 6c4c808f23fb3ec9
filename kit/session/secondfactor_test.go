package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
)

// withCodes is a service where ann has a second factor, whose code is 123456.
func withCodes(c *session.Config) {
	first := c.Password
	c.SecondFactor = true
	c.Password = func(ctx context.Context, given session.Login) (string, error) {
		token, err := first(ctx, given)
		switch {
		case err != nil:
			return "", err
		case given.Code == "":
			return "", errors.Join(fault.New(fault.Unauthenticated, "a code is required").WithCode(session.CodeRequired))
		case given.Code != "123456":
			return "", fault.New(fault.Unauthenticated, "wrong code").WithCode("bad_totp")
		}
		return token, nil
	}
}

func TestASecondFactorIsAskedForOnceThePasswordIsRight(t *testing.T) {
	t.Parallel()
	s := newService(t, withCodes)
	b := s.browser(t)
	want(t, b.signIn(`{"username":"ann","password":"guess"}`), 401, "wrong password")
	want(t, b.signIn(`{"username":"ann","password":"guess","code":"123456"}`), 401, "wrong password")
	asked := b.signIn(`{"username":"ann","password":"secret"}`)
	if got := text(t, asked); asked.StatusCode != 200 || got != `{"needs":"code"}` || len(asked.Cookies()) != 0 {
		t.Fatalf("%d %s %v", asked.StatusCode, got, asked.Cookies())
	}
	want(t, b.send("GET", "/whoami", ""), 401, "")
	want(t, b.signIn(`{"username":"ann","password":"secret","code":"654321"}`), 401, "wrong code")
	want(t, b.send("GET", "/whoami", ""), 401, "")
	if len(s.events) != 0 {
		t.Error(s.events)
	}
	want(t, b.signIn(`{"username":"ann","password":"secret","code":"123456"}`), 204, "")
	want(t, b.send("GET", "/whoami", ""), 200, "ann-by-password")
	if got := strings.Join(s.events, ", "); got != "ann-by-password in by password" {
		t.Error(got)
	}
}

func TestACodeThatDoesNotBelongThereIsRefused(t *testing.T) {
	t.Parallel()
	for body, why := range map[string]string{
		`{"code":"123456"}`:                                                 "code: goes with",
		`{"username":"ann","code":"123456"}`:                                "code: goes with",
		`{"token":"ann","code":"123456"}`:                                   "code: goes with",
		`{"ticket":"mst_x","code":"123456"}`:                                "code: goes with",
		`{"username":"ann","password":"secret","code":""}`:                  "code: must not be empty",
		`{"username":"ann","password":"secret","code":1}`:                   "code: must be a text",
		`{"username":"ann","password":"secret","Code":"123456"}`:            "Code: there is no such field",
		`{"username":"ann","password":"secret","code":"1","code":"123456"}`: "code: is given twice",
	} {
		b := newService(t, withCodes).browser(t)
		want(t, b.signIn(body), 400, why)
		want(t, b.send("GET", "/whoami", ""), 401, "")
	}
	plain := newService(t, nil).browser(t)
	want(t, plain.signIn(`{"username":"ann","password":"secret","code":"123456"}`), 400, "code: there is no such field")
}

func TestAServiceWithoutASecondStepDoesNotAskForACode(t *testing.T) {
	t.Parallel()
	b := newService(t, func(c *session.Config) { withCodes(c); c.SecondFactor = false }).browser(t)
	want(t, b.signIn(`{"username":"ann","password":"secret"}`), 401, "a code is required")
}

func TestASessionEndsWithItsCredentials(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	b := s.browser(t)
	s.expires = s.clock.now().Add(time.Hour)
	want(t, b.signIn(`{"username":"ann","password":"secret"}`), 204, "")
	want(t, b.send("GET", "/console/session", ""), 200, `"expires_at":"2030-01-02T04:04:05Z"`)
	s.clock.pass(time.Hour)
	want(t, b.send("GET", "/whoami", ""), 401, "the session is over")
}

func TestATicketOfAServiceThatRefusesItsOwnTokenOpensNothing(t *testing.T) {
	t.Parallel()
	var now clock
	ring := session.NewRing(now.now)
	s := newService(t, func(c *session.Config) { c.Workspace = ring })
	ring.Join(session.Member{Name: "toys", Title: "Toys", URL: "http://127.0.0.1:7", Tokens: map[string]session.Issue{
		session.RoleAdmin: func(context.Context) (string, error) {
			return "", fault.New(fault.Unauthenticated, "a code is required").WithCode(session.CodeRequired)
		},
	}})
	url, err := ring.Ticket(session.Who{Name: "ann", Role: session.RoleAdmin}, "localhost", "toys", now.now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, word, _ := strings.Cut(url, "#ticket=")
	b := s.browser(t)
	want(t, b.signIn(`{"ticket":"`+word+`"}`), 401, "Toys has no ticket for you; sign in")
	want(t, b.send("GET", "/whoami", ""), 401, "")
	if !auth.Sendable(word) {
		t.Errorf("ticket %q", word)
	}
}
