package edge_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
)

// fleet answers with sites, two of which have the same name, and with devices of all of them.
func fleet(t *testing.T) *server {
	t.Helper()
	site := func(id, name, org string) string {
		return strings.NewReplacer(
			`"id":"s1"`, `"id":"`+id+`"`, "plant-7", name, `"org_id":""`, `"org_id":"`+org+`"`,
		).Replace(examples()["GetSite"])
	}
	sites := []string{
		site("01a1fde9-0000-7000-8000-000000000001", "north", "o1"),
		site("01a1fde9-0000-7000-8000-000000000002", "twice", "o1"),
		site("01a1fdea-0000-7000-8000-000000000003", "twice", "o2"),
		site("01a1fdeb-0000-7000-8000-000000000004", "01a1fde9-", "o1"),
		site("01a1fdec-0000-7000-8000-000000000005", `with a \u001b[31mspace`, "o1"),
	}
	device := func(id, name, site string) string {
		return strings.NewReplacer(
			`"device_id":"pump-1"`, `"device_id":"`+id+`"`, `"name":""`, `"name":"`+name+`"`, `"site_id":"s1"`,
			`"site_id":"`+site+`"`,
		).Replace(examples()["GetDevice"])
	}
	devices := []string{
		device("pump-1", "pump-2", "01a1fde9-0000-7000-8000-000000000001"),
		device("pump-2", "main pump", "01a1fdea-0000-7000-8000-000000000003"),
		device("pump-3", "", "01a1fdff-0000-7000-8000-000000000009"),
	}
	return serve(t, loadContract(t), map[string]http.HandlerFunc{
		"ListSites":   answer(200, "["+strings.Join(sites, ",")+"]"),
		"ListDevices": answer(200, "["+strings.Join(devices, ",")+"]"),
		"GetDevice": func(w http.ResponseWriter, r *http.Request) {
			for _, d := range devices {
				if strings.Contains(d, `"device_id":"`+path.Base(r.URL.Path)+`"`) {
					answer(200, d)(w, r)
					return
				}
			}
			answer(404, `{"error":{"code":"not_found","message":"no such device","request_id":"q"}}`)(w, r)
		},
	})
}

func TestAnArgumentIsANameOrAnIDOrTheBeginningOfOne(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"site show north":       "/sites/01a1fde9-0000-7000-8000-000000000001",
		"site show 01a1fdea":    "/sites/01a1fdea-0000-7000-8000-000000000003",
		"site show 01a1fde9-":   "/sites/01a1fdeb-0000-7000-8000-000000000004", // a name comes before a beginning
		"site delete north -y":  "/sites/01a1fde9-0000-7000-8000-000000000001",
		"site rename north n2":  "/sites/01a1fde9-0000-7000-8000-000000000001",
		"twin show pump-2":      "/twins/pump-2", // people choose the IDs of devices, so an ID comes before a name
		"device list --site no": "",
		"device show pump-3":    "/devices/pump-3",
	} {
		s := fleet(t)
		got := run{server: s.URL}.do(t, strings.Fields(line)...)
		if want == "" {
			if got.code != 3 || !strings.Contains(got.err, "--site: there is no site no\nhint: 'mainstay edge site list'") {
				t.Errorf("%s: %d %s", line, got.code, got.err)
			}
			continue
		}
		if got.code != 0 || s.last.URL.Path != "/api/v1"+want {
			t.Errorf("%s: %d, asked for %s, want %s; %s", line, got.code, s.last.URL.Path, want, got.err)
		}
	}
	s := fleet(t)
	run{server: s.URL}.ok(t, "ota", "request", "main pump", "--version", "2", "--url", "http://x/fw", "--sha256", sha)
	if !strings.Contains(s.last.URL.Path, "/pump-2") {
		t.Errorf("asked for %s", s.last.URL.Path)
	}
}

func TestAnAmbiguousArgumentIsRefusedWithWhatItMayMean(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code int
		err  string
	}{
		"site show twice":         {2, "several sites match twice; name one by its ID: 01a1fde9-0000-7000-8000-000000000002 (org o1), 01a1fdea"},
		"site show 01a1fde9-0000": {2, "(north, org o1)"},
		"site delete 01a1fdea -y": {3, "the beginning of an ID is not enough here"},
		"site revoke 01a1fdea -y": {3, "the beginning of an ID is not enough here"},
		"site show nowhere":       {3, "there is no site nowhere"},
	} {
		s := fleet(t)
		if got := (run{server: s.URL}).do(t, strings.Fields(line)...); got.code != want.code ||
			!strings.Contains(got.err, want.err) {
			t.Errorf("%s: %d %s", line, got.code, got.err)
		}
		if called := s.called(); !slices.Equal(called, []string{"ListSites"}) {
			t.Errorf("%s: called %v", line, called)
		}
	}
}

func TestAnIDIsNotLookedUp(t *testing.T) {
	t.Parallel()
	s := fleet(t)
	run{server: s.URL}.ok(t, "site", "show", id)
	if called := s.called(); !slices.Equal(called, []string{"GetSite"}) {
		t.Errorf("called %v", called)
	}
}

func TestANameIsNotSearchedForeverAmongTooMany(t *testing.T) {
	t.Parallel()
	pages := 0
	page := "[" + strings.Repeat(`{"id":"s1","name":"plant-7"},`, 999) + `{"id":"s1","name":"plant-7"}]`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages++
		w.Header().Set("Link", fmt.Sprintf(`</api/v1/sites?cursor=c%d>; rel="next"`, pages))
		answer(200, page)(w, r)
	}))
	defer s.Close()
	got := run{server: s.URL}.do(t, "site", "show", "nowhere")
	if got.code != 2 || !strings.Contains(got.err, "there are more than 20000 sites") || pages != 20 {
		t.Errorf("%d %s, after %d pages", got.code, got.err, pages)
	}
}

func TestColumnsShowNamesWithOneRequestMore(t *testing.T) {
	t.Parallel()
	s := fleet(t)
	got := run{server: s.URL}.ok(t, "device", "list").out
	for _, want := range []string{
		"pump-1   north                                  pump-2", "pump-3   01a1fdff-0000-7000-8000-000000000009   -",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if called := s.called(); !slices.Equal(called, []string{"ListDevices", "ListSites"}) {
		t.Errorf("called %v", called)
	}
	for _, args := range [][]string{{"-o", "json"}, {"-q"}, {"--template", "{{.site_id}}"}} {
		s := fleet(t)
		if out := (run{server: s.URL}).ok(t, append([]string{"device", "list"}, args...)...).out; strings.Contains(out, "north") ||
			len(s.called()) != 1 {
			t.Errorf("%v: called %v, printed %s", args, s.called(), out)
		}
	}
}

func TestWhoMayNotReadNamesSeesIDs(t *testing.T) {
	t.Parallel()
	refuse := answer(403, `{"error":{"code":"denied","message":"not yours","request_id":"q"}}`)
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{"GetSite": refuse, "ListSites": refuse})
	if got := (run{server: s.URL}).ok(t, "device", "list"); !strings.Contains(got.out, "pump-1   s1") || got.err != "" {
		t.Errorf("%s%s", got.out, got.err)
	}
}

func TestTheShellCompletesNamesAndIDs(t *testing.T) {
	t.Parallel()
	s := fleet(t)
	env := map[string]string{"EDGE_SERVER": s.URL}
	for line, want := range map[string]string{
		"site show n":                "north",
		"site show ":                 "north twice 01a1fde9- 01a1fdec-0000-7000-8000-000000000005\twith a \\x1b[31mspace",
		"site show 01a1fdea":         "01a1fdea-0000-7000-8000-000000000003\ttwice",
		"device list --site n":       "north",
		"site label north ":          "",
		"twin set pump-":             "pump-1\tpump-2 pump-2\tmain pump pump-3",
		"deadletter list --route al": "alarms",
		"agent report ":              "",
		"campaign start f":           "fw",
	} {
		words := strings.Split(line, " ")
		got := complete(t, env, words...)
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestCompletionIsSilentWhenNobodyAnswersOrTheCallerMayNot(t *testing.T) {
	t.Parallel()
	refuse := serve(t, loadContract(t), map[string]http.HandlerFunc{
		"ListSites": answer(401, `{"error":{"code":"unauthenticated","message":"no token","request_id":"q"}}`),
	})
	for _, server := range []string{"http://127.0.0.1:1", "nonsense", refuse.URL} {
		if got := complete(t, map[string]string{"EDGE_SERVER": server}, "site", "show", "n"); got != "" {
			t.Errorf("%s: %q", server, got)
		}
	}
}

// complete returns what the shell is told, without the directive.
func complete(t *testing.T, env map[string]string, words ...string) string {
	t.Helper()
	got := run{env: env}.completes(t, words...)
	if got.code != 0 {
		t.Errorf("%v: %d %s", words, got.code, got.err)
	}
	out, _, _ := strings.Cut(got.out, ":")
	return strings.ReplaceAll(strings.TrimSpace(out), "\n", " ")
}
