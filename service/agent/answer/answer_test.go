package answer_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

func response(status int, body string, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

const reply = `{"status":"online","site_id":"s1","heartbeat_interval_seconds":30,"server_time":"2026-01-02T03:04:05Z","renew_certificate":false,"desired_revision":1}`

func TestASuccessCountsOnlyWithEverythingThatTheContractRequires(t *testing.T) {
	t.Parallel()
	if got, err := answer.Decode[edgeapi.HeartbeatReply](
		answer.Read(response(200, reply), nil),
	); err != nil ||
		got.SiteId != "s1" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, body := range map[string]string{
		"a field is missing":    strings.Replace(reply, `"desired_revision":1`, `"other":1`, 1),
		"a field is null":       strings.Replace(reply, `"site_id":"s1"`, `"site_id":null`, 1),
		"a field in upper case": strings.Replace(reply, "site_id", "SITE_ID", 1),
		"another type":          strings.Replace(reply, "30", `"30"`, 1),
		"no time":               strings.Replace(reply, "2026-01-02T03:04:05Z", "now", 1),
		"a list":                "[" + reply + "]",
		"two documents":         reply + reply,
		"the first half":        reply[:len(reply)/2],
		"null":                  "null",
		"nothing":               "",
		"a web page":            "<html>",
		"too much":              reply + strings.Repeat(" ", 4<<20),
	} {
		var invalid *answer.Invalid
		if _, err := answer.Decode[edgeapi.HeartbeatReply](
			answer.Read(response(200, body), nil),
		); !errors.As(err, &invalid) ||
			!strings.Contains(err.Error(), "contract") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Lists without items, and what may be null, are as the contract says.
	const deployment = `{"id":"d","site_id":"s1","org_id":"","name":"web","image":"i","version":"1","desired_state":"running","env":null,"ports":null,"pull_policy":"missing",
		"restart":"always","health":null,"revision":1,"observed_revision":0,"previous":null,"status":"pending","message":"","created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z"}`
	if got, err := answer.Decode[[]edgeapi.Deployment](
		answer.Read(response(200, "["+deployment+"]"), nil),
	); err != nil ||
		len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := answer.Decode[[]edgeapi.Deployment](
		answer.Read(response(200, " []\n"), nil),
	); err != nil ||
		len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := answer.Decode[[]edgeapi.Deployment](
		answer.Read(response(200, strings.Replace("["+deployment+"]", `"id":"d",`, "", 1)), nil),
	); err == nil {
		t.Error("an item without its id")
	}
}

func TestOnlyTheControlPlanesOwnWordsAreFinal(t *testing.T) {
	t.Parallel()
	words := func(code string) string { return `{"error":{"code":"` + code + `","message":"m","request_id":"r"}}` }
	for _, c := range []struct {
		status      int
		body        string
		final, ends bool
	}{
		{400, words("invalid"), true, false}, {403, words("denied"), true, false}, {404, words("not_found"), true, false},
		{409, words("conflict"), true, false}, {413, words("too_large"), true, false}, {422, words("invalid"), true, false},
		{403, words("site_revoked"), false, true}, {401, words("site_revoked"), false, true},
		{401, words("unauthenticated"), false, false}, {500, words("internal"), false, false}, {429, words("too_many"), false, false},
		{400, "<html>", false, false}, {403, "<html>", false, false}, {404, "{}", false, false}, {401, "", false, false},
		{302, words("invalid"), false, false}, {409, words("site_revoked"), true, false},
	} {
		_, err := answer.Read(response(c.status, c.body, "Retry-After", "7"), nil)
		var r *answer.Refusal
		if !errors.As(err, &r) || r.Status != c.status || r.Final() != c.final || r.EndsSite() != c.ends ||
			answer.RetryAfter(err) != 7*time.Second {
			t.Errorf("%d %s: %+v", c.status, c.body, r)
		}
	}
}
