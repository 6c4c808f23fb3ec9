package client_test

import (
	"net/http"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/client"
)

func TestARefusalHasTheRequestIDOnceWhereverItComesFrom(t *testing.T) {
	t.Parallel()
	with := http.Header{"X-Request-Id": {"h1"}}
	for _, c := range []struct {
		name, message, body string
		header              http.Header
		details             []string
		want                string
	}{
		{"in the body", "no such site", "b1", with, []string{"code not_found"}, "no such site (code not_found, request id b1)"},
		{"in the header alone", "no such site", "", with, []string{"code not_found"}, "no such site (code not_found, request id h1)"},
		{"in the message", "internal error; the server's log has the details under request id b1", "b1", with, []string{"code internal"},
			"internal error; the server's log has the details under request id b1 (code internal)"},
		{"of a proxy", "", "", with, nil, "the server answered 502 Bad Gateway (request id h1)"},
		{"nowhere", "", "", nil, nil, "the server answered 502 Bad Gateway"},
		{"controls", "\x1b[2J", "", http.Header{"X-Request-Id": {"\x1b[2J"}}, []string{"code x"}, `\x1b[2J (code x)`},
	} {
		r := &http.Response{Status: "502 Bad Gateway", Header: c.header}
		if got := client.Refused(r, c.message, c.body, c.details...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
