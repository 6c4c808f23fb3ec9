package simulator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// control is an in-memory control plane that strictly checks what the simulator must get right. It
// responds in the caller's goroutine, so that tests can run in a bubble with its own clock.
type control struct {
	*testing.T
	now func() time.Time

	mu        sync.Mutex
	away      bool
	sites     map[string]string // token to site id
	revoked   map[string]bool   // by token
	devices   map[string]*twin
	revision  int64
	events    map[string][]int // by site, their sequence numbers in order of arrival
	seen      map[string]bool
	repeated  int64
	beats     []time.Time
	requests  []time.Time
	deployed  []edgeapi.AgentDeployment
	statuses  map[string]string
	heartbeat int
}

type twin struct {
	site, desired, reported, request, state string
	states                                  []string
}

func newControl(t *testing.T) *control {
	return &control{
		T:         t,
		now:       time.Now,
		sites:     map[string]string{},
		revoked:   map[string]bool{},
		devices:   map[string]*twin{},
		events:    map[string][]int{},
		seen:      map[string]bool{},
		statuses:  map[string]string{},
		heartbeat: 30,
	}
}

// Do makes the control plane a client's transport.
func (c *control) Do(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, c.now())
	if c.away {
		return nil, errors.New("connection refused")
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	c.serve(w, r)
	return w.Result(), nil
}

func (c *control) client() *edgeapi.Client {
	client, err := edgeapi.NewClient("http://control/api/v1", rest.WithHTTPClient(c))
	if err != nil {
		c.Fatal(err)
	}
	return client
}

func (c *control) serve(w *httptest.ResponseRecorder, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1")
	if path == "/enroll" {
		c.enroll(w, r)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	site, ok := c.sites[token]
	if !ok || c.revoked[token] {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/heartbeat":
		c.beats = append(c.beats, c.now())
		reply(w, 200, map[string]any{
			"status":                     "online",
			"site_id":                    site,
			"heartbeat_interval_seconds": c.heartbeat,
			"server_time":                c.now(),
			"renew_certificate":          false,
			"desired_revision":           c.revision,
		})
	case path == "/devices/register":
		var in edgeapi.DeviceInput
		c.read(r, &in)
		if d := c.devices[in.DeviceId]; d != nil && d.site != site {
			c.Errorf("device %s of %s was registered by %s", in.DeviceId, d.site, site)
		}
		c.devices[in.DeviceId] = &twin{site: site, desired: "{}", reported: "{}"}
		reply(w, 201, map[string]any{"device_id": in.DeviceId})
	case path == "/events/batch":
		c.ingest(w, r, site)
	case path == "/agent/twins":
		c.listTwins(w, r, site)
	case path == "/agent/deployments":
		reply(w, 200, c.deployed)
	case len(parts) == 4 && parts[1] == "deployments":
		var in edgeapi.DeploymentReport
		c.read(r, &in)
		c.statuses[site] = string(in.Status)
		reply(w, 200, map[string]any{})
	case len(parts) == 4 && parts[3] == "reported":
		var in edgeapi.ReportedInput
		c.read(r, &in)
		c.devices[parts[2]].reported = string(in.Reported)
		reply(w, 200, map[string]any{"device_id": parts[2], "desired": map[string]any{}, "reported": map[string]any{}})
	case len(parts) == 5 && parts[3] == "ota":
		c.reportOTA(w, r, parts[2])
	default:
		c.Errorf("unexpected %s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}
}

func (c *control) enroll(w *httptest.ResponseRecorder, r *http.Request) {
	var in edgeapi.EnrollRequest
	c.read(r, &in)
	if in.EnrollmentToken != "let-me-in" {
		reply(
			w, 401,
			map[string]any{"error": map[string]any{"code": "unauthenticated", "message": "enrollment_token: unknown"}},
		)
		return
	}
	if in.CsrPem == nil || !strings.Contains(*in.CsrPem, "CERTIFICATE REQUEST") {
		c.Error("enrolled without a certificate request")
	}
	id := fmt.Sprintf("site-%d", len(c.sites))
	c.sites["token-"+id] = id
	reply(
		w, 200, map[string]any{"site_id": id, "agent_token": "token-" + id, "heartbeat_interval_seconds": c.heartbeat},
	)
}

func (c *control) ingest(w *httptest.ResponseRecorder, r *http.Request, site string) {
	var in edgeapi.EventBatch
	c.read(r, &in)
	receipts := []edgeapi.EventReceipt{}
	for _, e := range in.Events {
		if e.SiteId != site {
			c.Errorf("%s sent an event of %s", site, e.SiteId)
		}
		id := *e.EventId
		receipts = append(receipts, edgeapi.EventReceipt{EventId: id, Duplicate: c.seen[id]})
		if c.seen[id] {
			c.repeated++
			continue
		}
		c.seen[id] = true
		var payload struct {
			Seq int `json:"seq"`
		}
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			c.Error(err)
		}
		c.events[site] = append(c.events[site], payload.Seq)
	}
	reply(w, 202, receipts)
}

func (c *control) listTwins(w *httptest.ResponseRecorder, r *http.Request, site string) {
	var ids []string
	for id, d := range c.devices {
		if d.site == site && id > r.URL.Query().Get("cursor") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	const page = 3
	if len(ids) > page {
		ids = ids[:page]
		w.Header().Set("Link", `</api/v1/agent/twins?cursor=`+ids[page-1]+`>; rel="next"`)
	}
	twins := []map[string]any{}
	for _, id := range ids {
		d := c.devices[id]
		desired := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(d.desired), &desired); err != nil {
			c.Error(err)
		}
		if d.request != "" {
			desired["ota"] = json.RawMessage(
				`{"request_id":"` + d.request + `","version":"2.0","url":"http://x","sha256":"00","requested_at":"2026-01-01T00:00:00Z"}`,
			)
		}
		twins = append(twins, map[string]any{
			"device_id": id,
			"site_id":   site,
			"desired":   desired,
			"reported":  json.RawMessage(d.reported),
		})
	}
	reply(w, 200, twins)
}

// moves are the valid transitions of an update (service/edge/ota).
var moves = map[string][]string{
	"":             {"downloading", "rejected"},
	"downloading":  {"downloading", "installing", "failed"},
	"installing":   {"verifying", "failed"},
	"verifying":    {"succeeded", "rolling_back"},
	"rolling_back": {"rolled_back"},
}

func (c *control) reportOTA(w *httptest.ResponseRecorder, r *http.Request, id string) {
	var in edgeapi.OTAReport
	c.read(r, &in)
	d := c.devices[id]
	if in.Status.RequestId == nil || *in.Status.RequestId != d.request {
		reply(w, 409, map[string]any{"error": map[string]any{"code": "superseded", "message": "another update"}})
		return
	}
	state := string(in.Status.State)
	if !slices.Contains(moves[d.state], state) {
		c.Errorf("%s: %s after %q", id, state, d.state)
	}
	d.state = state
	d.states = append(d.states, state)
	reply(w, 200, map[string]any{"device_id": id})
}

func (c *control) read(r *http.Request, v any) {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		c.Errorf("%s: %v", r.URL.Path, err)
	}
}

func reply(w *httptest.ResponseRecorder, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a recorder does not fail
}

// change changes something under the control plane's lock.
func (c *control) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}
