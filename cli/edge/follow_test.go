package edge_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestFollowGoesOnWhereTheStreamBroke(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	var resumed []string
	s := serve(
		t,
		loadContract(t),
		map[string]http.HandlerFunc{"GetStream": func(w http.ResponseWriter, r *http.Request) {
			resumed = append(resumed, r.Header.Get("Last-Event-ID"))
			w.Header().Set("Content-Type", "text/event-stream")
			if len(resumed) == 2 {
				// It was written but not read, so the first connection's lines are all there are.
				interrupt()
				return
			}
			entry := strings.Replace(examples()["AddActivity"], "hello", `a\u001bb`, 1)
			_, _ = fmt.Fprintf(
				w, ":\n\nid: 7\nevent: activity\ndata: %s\n\nevent: other\ndata: {}\n\n", strings.Trim(entry, "[]"),
			)
		}},
	)
	got := run{server: s.URL}.doContext(t, ctx, "activity", "follow", "--last-event-id", "3")
	if got.code != 0 || got.out != "2026-01-02T03:04:05Z  info  -  s1  -  a\\x1bb\n" {
		t.Errorf("%d %q %s", got.code, got.out, got.err)
	}
	if !slices.Equal(resumed, []string{"3", "7"}) {
		t.Errorf("connected with %q", resumed)
	}
}

func TestFollowGivesUpOnWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{
		"GetStream": answer(403, `{"error":{"code":"denied","message":"no","request_id":"q"}}`)})
	if got := (run{server: s.URL}).do(t, "activity", "follow"); got.code != 4 {
		t.Errorf("%d %s", got.code, got.err)
	}
}

func TestWatchPrintsEveryChangeUntilTheCampaignEnds(t *testing.T) {
	t.Parallel()
	step := 0
	states := []string{`"running"`, `"running"`, `"aborted"`}
	s := serve(
		t,
		loadContract(t),
		map[string]http.HandlerFunc{"GetCampaign": func(w http.ResponseWriter, r *http.Request) {
			body := strings.Replace(examples()["GetCampaign"], `"completed"`, states[step], 1)
			step++
			answer(200, body)(w, r)
		}},
	)
	got := run{server: s.URL}.do(t, "campaign", "watch", "c1", "--interval", "1ms")
	if got.code != 1 || strings.Count(got.out, "\n") != 2 ||
		!strings.Contains(got.out, "aborted stage=3/3 succeeded=3 failed=1") ||
		!strings.Contains(got.err, "was aborted") {
		t.Errorf("%d\n%s%s", got.code, got.out, got.err)
	}
}

func TestAFailedCheckIsAFailure(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{
		"VerifyAudit": answer(
			200,
			`{"ok":false,"entries":3,"verified":1,"reason":"entry 2 was changed","genesis":"g","head_seq":3,"head_hash":"","segments":[],"breaks":[{"segment":1,"seq":2,"reason":"entry 2 was changed","recorded":3,"found_at":"2026-01-02T03:04:05Z","acknowledged_at":null,"acknowledged_by":"","note":""}],"checkpoints":{"count":0,"since":null,"newest_at":null,"newest_seq":0,"cut":0}}`,
		),
		"TestRoute": answer(200, `{"delivered":false,"status":500,"duration_ms":1,"error":"HTTP 500"}`),
	})
	for _, line := range []string{"audit verify", "route test r1"} {
		if got := (run{server: s.URL}).do(t, strings.Fields(line)...); got.code != 1 || got.out == "" {
			t.Errorf("%s: exit code %d, printed %q", line, got.code, got.out)
		}
	}
}

func TestLabelKeepsTheLabelsThatItDoesNotName(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	run{server: s.URL}.ok(t, "site", "label", "s1", "region=eu=1")
	if s.body != `{"labels":{"region":"eu=1","tier":"gold"}}` {
		t.Errorf("sent %s", s.body)
	}
	run{server: s.URL}.ok(t, "site", "label", "s1", "tier-")
	if s.body != `{"labels":{}}` {
		t.Errorf("sent %s", s.body)
	}
}

func TestAnUpdateSendsOnlyWhatWasGiven(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	run{server: s.URL}.ok(t, "route", "update", "r1", "--site", "")
	if s.body != `{"site_id":""}` {
		t.Errorf("sent %s", s.body)
	}
}

func TestDataComesFromTheFlagAFileOrStandardInput(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	send := []string{"event", "send", "--site", "s1", "--topic", "t"}
	for _, args := range [][]string{{"--data", `{"n":1}`}, {"--data", "@" + writeFile(t, "data.json", `{"n":1}`)}, {"--data", "-"}, nil} {
		run{server: s.URL, stdin: `{"n":1}`}.ok(t, append(slices.Clone(send), args...)...)
		if !strings.Contains(s.body, `"payload":{"n":1}`) {
			t.Errorf("%q sent %s", args, s.body)
		}
	}
}
