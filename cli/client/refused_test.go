package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func TestARefusalHasTheRequestIDOnceWhereverItComesFrom(t *testing.T) {
	t.Parallel()
	with := http.Header{"X-Request-Id": {"h1"}}
	notFound := problem.Problem{Code: "not_found", Message: "no such site"}
	inBody := notFound
	inBody.RequestID = "b1"
	for name, tt := range map[string]struct {
		said   problem.Problem
		header http.Header
		want   string
	}{
		"in the body":         {inBody, with, "no such site (code not_found, request id b1)"},
		"in the header alone": {notFound, with, "no such site (code not_found, request id h1)"},
		"in the message": {
			problem.Problem{Code: "internal", Message: "internal error; the server's log has the details under request id b1", RequestID: "b1"}, with,
			"internal error; the server's log has the details under request id b1 (code internal)",
		},
		"with field and limit": {
			problem.Problem{Code: "policy_limit", Message: "too large", Field: "vcpus", Limit: "policy.max_vcpus"}, nil,
			"too large (code policy_limit, field vcpus, limit policy.max_vcpus)",
		},
		"of a proxy": {problem.Problem{}, with, "the server answered 502 Bad Gateway (request id h1)"},
		"nowhere":    {problem.Problem{}, nil, "the server answered 502 Bad Gateway"},
		"controls":   {problem.Problem{Code: "x", Message: "\x1b[2J"}, http.Header{"X-Request-Id": {"\x1b[2J"}}, `\x1b[2J (code x)`},
	} {
		err := new(client.Service).Explain(&rest.Refusal{Problem: tt.said, Status: 502, Header: tt.header})
		if err.Error() != tt.want {
			t.Errorf("%s: %q, want %q", name, err, tt.want)
		}
	}
}

func TestARefusalHasAnExitCodeAndAHint(t *testing.T) {
	t.Parallel()
	s := &client.Service{
		Hints:     map[int]string{401: "log in", 503: "look at the node"},
		CodeHints: map[string]string{"agent_not_connected": "wait for it"},
	}
	for name, tt := range map[string]struct {
		status int
		code   string
		after  string
		exit   int
		hint   string
	}{
		"not there":       {404, "not_found", "", exit.NotFound, ""},
		"no credentials":  {401, "unauthenticated", "", exit.Denied, "log in"},
		"not allowed":     {403, "denied", "", exit.Denied, ""},
		"not now":         {503, "unavailable", "", exit.Unavailable, "look at the node"},
		"later":           {503, "unavailable", "7", exit.Unavailable, "try again in 7 s"},
		"a code's own":    {409, "agent_not_connected", "", exit.Failure, "wait for it"},
		"of the server's": {500, "internal", "", exit.Failure, ""},
	} {
		header := http.Header{}
		if tt.after != "" {
			header.Set("Retry-After", tt.after)
		}
		refusal := &rest.Refusal{
			Problem: problem.Problem{Code: tt.code, Message: "no"},
			Status:  tt.status,
			Header:  header,
		}
		err := s.Explain(refusal)
		if exit.Code(err) != tt.exit || exit.Hint(err) != tt.hint {
			t.Errorf("%s: exit code %d and %q, want %d and %q", name, exit.Code(err), exit.Hint(err), tt.exit, tt.hint)
		}
		if got := new(rest.Refusal); !errors.As(err, &got) || got.Code != tt.code {
			t.Errorf("%s: the refusal is not in %v", name, err)
		}
	}
}

func TestAnAnswerOfAnotherServiceIsToldOf(t *testing.T) {
	t.Parallel()
	s := &client.Service{Name: "the load balancer", Flag: "--server"}
	page := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("<html>"))}
	a, err := s.Read(page, nil)
	if _, err := client.Decode[[]string](s, a, err); exit.Hint(
		err,
	) != "is --server the load balancer, and of this version?" {
		t.Errorf("%v, %q", err, exit.Hint(err))
	}
}
