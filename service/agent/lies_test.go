package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// lies are successes that are not the control plane's.
func lies(t *testing.T) map[string]http.HandlerFunc {
	t.Helper()
	text := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = fmt.Fprint(w, body) // a client that left
		}
	}
	elsewhere := httptest.NewServer(text("application/json", `[{"event_id":"e1","duplicate":false}]`))
	t.Cleanup(elsewhere.Close)
	return map[string]http.HandlerFunc{
		"login page":        text("text/html", "<!DOCTYPE html><title>Welcome to the hotel</title>"),
		"empty body":        text("application/json", ""),
		"empty object":      text("application/json", "{}"),
		"null":              text("application/json", "null"),
		"list of null":      text("application/json", "[null]"),
		"list of nothing":   text("application/json", "[{}]"),
		"half a body":       text("application/json", `[{"event_id":"e1","dupl`),
		"trailing document": text("application/json", `[{"event_id":"e1","duplicate":false}]{}`),
		"no content":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = fmt.Fprint(w, `[{"event_id":"e1","duplicate":false}]`)
		},
		"endless body": func(w http.ResponseWriter, r *http.Request) {
			for block := []byte(strings.Repeat(" ", 64<<10)); r.Context().Err() == nil; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
	}
}

func TestEventsAreDeletedOnlyForReceiptsThatNameThem(t *testing.T) {
	t.Parallel()
	all := lies(t)
	for name, body := range map[string]string{
		"no receipts":             `[]`,
		"another event's receipt": `[{"event_id":"e2","duplicate":false}]`,
		"a receipt too many":      `[{"event_id":"e1","duplicate":false},{"event_id":"e1","duplicate":true}]`,
		"no word on duplicates":   `[{"event_id":"e1"}]`,
		"duplicate is null":       `[{"event_id":"e1","duplicate":null}]`,
		"duplicate is text":       `[{"event_id":"e1","duplicate":"false"}]`,
		"key in another case":     `[{"Event_ID":"e1","duplicate":false}]`,
	} {
		all[name] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			_, _ = fmt.Fprint(w, body)
		}
	}
	for name, lie := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			var lying atomic.Bool
			var told atomic.Int32
			lying.Store(true)
			tamper := func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != edgeapi.BasePath+"/events/batch" || !lying.Load() {
					return false
				}
				told.Add(1)
				lie(w, r)
				return true
			}
			p.tamper.Store(&tamper)
			s := newSite(t, p.url)
			s.retry = 20 * time.Millisecond
			s.start()
			s.send("e1")
			eventually(
				t, "the reason is shown", func() bool { return told.Load() > 0 && s.status().Outbox.LastError != "" },
			)
			if o := s.status().Outbox; o.Events != 1 || o.Forwarded != 0 || o.SetAside != 0 {
				t.Errorf("%+v", o)
			}
			lying.Store(false)
			eventually(t, "the event has arrived", func() bool { return slices.Equal(p.eventIDs(""), []string{"e1"}) })
			eventually(
				t, "the outbox is empty",
				func() bool { o := s.status().Outbox; return o.Events == 0 && o.LastError == "" },
			)
		})
	}
}

// Every kind of request is answered with a lie at first. Whatever of it is believed
// is missing in the end.
func TestNoRequestBelievesAnAnswerThatIsNotAsTheContractSays(t *testing.T) {
	t.Parallel()
	for name, lie := range lies(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			var mu sync.Mutex
			lied := map[string]bool{}
			tamper := func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(r.Header.Get("User-Agent"), "mainstay-agent/") {
					return false
				}
				mu.Lock()
				request := r.Method + " " + r.URL.Path
				first := !lied[request]
				lied[request] = true
				mu.Unlock()
				if first {
					lie(w, r)
				}
				return first
			}
			p.tamper.Store(&tamper)
			s := newSite(t, p.url)
			s.retry = 20 * time.Millisecond
			s.start()
			s.send("e1")
			model := "P100"
			in := agentapi.DeviceInput{Model: &model}
			if _, err := rest.Read(s.local.RegisterDevice(t.Context(), "pump", in)); err != nil {
				t.Fatal(err)
			}
			reported := strings.NewReader(`{"rpm":7}`)
			if _, err := rest.Read(
				s.local.PatchReportedWithBody(t.Context(), "pump", "application/json", reported),
			); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the control plane knows all", func() bool {
				twins := get[[]edgeapi.Twin](p, "/twins")
				return len(twins) == 1 && sameJSON(twins[0].Reported, `{"rpm":7}`) &&
					slices.Equal(p.eventIDs(""), []string{"e1"})
			})
			eventually(t, "the agent knows that", func() bool {
				st := s.status()
				return st.Link.State == agentapi.LinkStateOnline && st.Outbox.Events == 0 && st.Twins.Pending == 0
			})
			twin, err := rest.Do[agentapi.Twin](s.local.GetTwin(t.Context(), "pump"))
			if err != nil || !sameJSON(twin.Reported, `{"rpm":7}`) || twin.Error != nil {
				t.Errorf("the twin here: %v %+v", err, twin)
			}
			// Without a hook the update is rejected, and without Podman the deployment
			// fails; both have to be told.
			call[any](p, http.MethodPost, "/devices/pump/ota", map[string]any{
				"version": "2",
				"url":     "https://artifacts.invalid/fw",
				"sha256":  strings.Repeat("a", 64),
			})
			call[any](p, http.MethodPost, "/deployments", map[string]any{
				"site_id": s.status().SiteId,
				"name":    "web",
				"image":   "registry.invalid/web:1",
				"version": "1",
			})
			eventually(t, "the control plane has heard of both", func() bool {
				deployments := get[[]edgeapi.Deployment](p, "/deployments")
				return get[edgeapi.OTA](p, "/devices/pump/ota").Status.State == edgeapi.OTAStateRejected &&
					len(deployments) == 1 &&
					deployments[0].Status == "failed"
			})
			if n := len(get[[]edgeapi.Site](p, "/sites")); n != 1 {
				t.Errorf("%d sites", n)
			}
			eventually(t, "all kinds of requests were lied to", func() bool {
				mu.Lock()
				defer mu.Unlock()
				for _, request := range []string{"POST /enroll", "POST /heartbeat", "POST /events/batch", "POST /devices/register", "POST /agent/twins/pump/reported",
					"GET /agent/twins", "GET /agent/deployments", "GET /agent/policy-packs"} {
					method, path, _ := strings.Cut(request, " ")
					if !lied[method+" "+edgeapi.BasePath+path] {
						return false
					}
				}
				return true
			})
		})
	}
}

func TestDurationsInTheLogAreReadable(t *testing.T) {
	t.Parallel()
	s := newSite(t, newPlane(t).url)
	var out bytes.Buffer
	s.log = slog.NewJSONHandler(&out, nil)
	s.start().online()
	s.stop()
	if !strings.Contains(out.String(), `"heartbeat_every":"1s"`) {
		t.Errorf("the log: %s", out.String())
	}
}

func TestTheStatusSaysWhyDevicesAreNotPassedOn(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	var honest atomic.Bool
	tamper := func(w http.ResponseWriter, r *http.Request) bool {
		if honest.Load() || !strings.HasSuffix(r.URL.Path, "/devices/register") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"device_id":"pump"}`) // a client that left
		return true
	}
	p.tamper.Store(&tamper)
	s := newSite(t, p.url).start()
	if _, err := rest.Read(s.local.RegisterDevice(t.Context(), "pump", agentapi.DeviceInput{})); err != nil {
		t.Fatal(err)
	}
	var message string
	eventually(t, "an alert", func() bool {
		for _, a := range s.status().Alerts {
			if a.Code == "devices_not_synced" {
				message = a.Message
			}
		}
		return message != ""
	})
	for _, part := range []string{"pump", "firmware_version is missing"} {
		if !strings.Contains(message, part) {
			t.Errorf("%q does not name %s", message, part)
		}
	}
	honest.Store(true)
	eventually(t, "the device is passed on", func() bool {
		st := s.status()
		return st.Twins.Pending == 0 && !hasAlert(st, "devices_not_synced")
	})
}
