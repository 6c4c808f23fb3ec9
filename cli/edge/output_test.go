package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestAListIsAnAlignedTableOrWhatTheAPISent(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	r := run{server: s.URL}
	if got := r.ok(t, "site", "list").out; got != ""+
		"ID   NAME      STATUS   LAST SEEN   VERSION   LABELS\n"+
		"s1   plant-7   online   -           1.0       tier=gold\n" {
		t.Errorf("table:\n%s", got)
	}
	var want, got any
	if err := json.Unmarshal([]byte(examples()["ListSites"]), &want); err != nil {
		t.Fatal(err)
	}
	text := r.ok(t, "site", "list", "-o", "json").out
	if err := json.Unmarshal([]byte(text), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("json: %v\n%s", err, text)
	}
	if !strings.HasPrefix(text, "[\n  {\n    \"id\": \"s1\",\n") {
		t.Errorf("json is not indented, or in another order:\n%s", text)
	}
	if got := r.ok(
		t, "site", "list", "-o", "yaml",
	).out; !strings.HasPrefix(got, "- id: s1\n  name: plant-7\n  org_id: \"\"\n") ||
		!strings.Contains(got, "  last_seen_at: null\n") ||
		!strings.Contains(got, "  labels:\n    tier: gold\n") {
		t.Errorf("yaml:\n%s", got)
	}
}

func TestAnEmptyListIsHeadsOrAnEmptyArray(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{"ListSites": answer(200, "[]")})
	for format, want := range map[string]string{"json": "[]\n", "yaml": "[]\n", "table": "ID   NAME   STATUS   LAST SEEN   VERSION   LABELS\n"} {
		if got := (run{server: s.URL}).ok(t, "site", "list", "-o", format).out; got != want {
			t.Errorf("%s: %q", format, got)
		}
	}
}

func TestAnObjectIsALineAFieldWithItsNameFirst(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	got := run{server: s.URL}.ok(t, "twin", "get", "pump-1").out
	for _, line := range []string{"DEVICE ID          pump-1\n", "DESIRED            {\"interval\":30}\n", "UPDATED AT         2026-01-02T03:04:05Z\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %q in:\n%s", line, got)
		}
	}
	if got := (run{server: s.URL}).ok(t, "site", "get", "s1").out; !strings.Contains(
		got, "CERTIFICATE SERIAL      0a\n",
	) {
		t.Errorf("a nested object has no lines of its own:\n%s", got)
	}
}

func TestWhatAServerSendsCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	evil := strings.Replace(examples()["GetSite"], "plant-7", `\u001b[31mred\u009b2J\n\u202eeman`, 1)
	s := serve(
		t, loadContract(t),
		map[string]http.HandlerFunc{"ListSites": answer(200, "["+evil+"]"), "GetSite": answer(200, evil)},
	)
	for _, args := range [][]string{{"site", "list"}, {"site", "get", "s1"}} {
		got := run{server: s.URL}.ok(t, args...).out
		if strings.ContainsAny(got, "\x1b\u009b\u202e") || !strings.Contains(got, `\x1b[31mred\x9b2J\n\u202eeman`) {
			t.Errorf("%v: %q", args, got)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		if got := (run{server: s.URL}).ok(t, "site", "get", "s1", "-o", format).out; strings.ContainsAny(
			got, "\x1b\u009b",
		) {
			t.Errorf("%s: %q", format, got)
		}
	}
}

func TestAllFollowsTheLinksAndLimitStopsEarlier(t *testing.T) {
	t.Parallel()
	var limits []string
	pages := func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		limits = append(limits, q.Get("limit"))
		id := "first"
		switch q.Get("cursor") {
		case "":
			w.Header().Set("Link", `</api/v1/sites?cursor=c%2F2&limit=1>; rel="next"`)
		case "c/2":
			id = "second"
		}
		answer(200, "["+strings.Replace(examples()["GetSite"], "s1", id, 1)+"]")(w, r)
	}
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{"ListSites": pages})
	r := run{server: s.URL}
	all := r.ok(t, "site", "list", "--all", "-o", "json").out
	var sites []struct{ ID string }
	if err := json.Unmarshal([]byte(all), &sites); err != nil || len(sites) != 2 || sites[1].ID != "second" {
		t.Errorf("--all: %v %s", err, all)
	}
	one := r.ok(t, "site", "list", "--limit", "1")
	if strings.Contains(one.out, "second") || !strings.Contains(one.err, "--all") {
		t.Errorf("--limit 1: %s%s", one.out, one.err)
	}
	if two := r.ok(t, "site", "list", "--limit", "2"); !strings.Contains(two.out, "second") || two.err != "" {
		t.Errorf("--limit 2: %s%s", two.out, two.err)
	}
	if got := fmt.Sprint(limits); got != "[1000 1000 1 2 1]" {
		t.Errorf("asked for pages of %s", got)
	}
	for _, args := range [][]string{{"--limit", "0"}, {"--limit", "1", "--all"}} {
		if got := r.do(t, append([]string{"site", "list"}, args...)...); got.code != 2 {
			t.Errorf("%v: exit code %d", args, got.code)
		}
	}
}

func TestAListThatNamesTheSameNextPageTwiceDoesNotGoOnForever(t *testing.T) {
	t.Parallel()
	s := serve(
		t,
		loadContract(t),
		map[string]http.HandlerFunc{"ListSites": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", `</api/v1/sites?cursor=same>; rel="next"`)
			answer(200, examples()["ListSites"])(w, r)
		}},
	)
	if got := (run{server: s.URL}).do(t, "site", "list", "--all"); got.code != 1 ||
		!strings.Contains(got.err, "not complete") {
		t.Errorf("%d %s", got.code, got.err)
	}
}

func TestRatesAreDrawnAsSparklines(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	got := run{server: s.URL}.ok(t, "overview").out
	for _, want := range []string{"Sites                3           1 offline, 2 online\n", "Events               9           ·█\n", "Devices              5           \n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

// answer returns a handler that always sends the same response.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func TestADeploymentOfASiteThatIsNotHeardOfIsListedAsUnknown(t *testing.T) {
	t.Parallel()
	const list = `[{"id":"d1","site_id":"s1","org_id":"","name":"web","image":"nginx","version":"1","desired_state":"running","env":{},"ports":[],"pull_policy":"missing","restart":"always",
		"health":null,"revision":1,"observed_revision":1,"previous":null,"status":"running","message":"","created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z",
		"site_status":%q,"site_last_seen_at":"2026-01-01T00:00:00Z"}]`
	for _, status := range []string{"online", "offline", "revoked"} {
		s := serve(
			t, loadContract(t), map[string]http.HandlerFunc{"ListDeployments": answer(200, fmt.Sprintf(list, status))},
		)
		if got := (run{server: s.URL}).ok(t, "deployment", "list").out; strings.Contains(
			got, "unknown (was running)",
		) != (status != "online") {
			t.Errorf("%s:\n%s", status, got)
		}
	}
}
