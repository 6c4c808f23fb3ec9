package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/agent"
	"github.com/mainstay-infra/mainstay/service/edge"
)

func TestEventsThatWereSentBeforeTheEnrollmentArriveInTheirOrder(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	var away atomic.Bool
	away.Store(true)
	tamper := func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return away.Load()
	}
	p.tamper.Store(&tamper)
	s := newSite(t, p.url).start()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("e%d", i))
		s.send(want[i])
	}
	s.send("e7") // a program that did not hear the answer
	if st := s.status(); st.SiteId != "" || st.Link.State != agentapi.LinkStateEnrolling || st.Outbox.Events != 50 {
		t.Errorf("%+v", st)
	}
	away.Store(false)
	eventually(t, "all events arrived", func() bool { return len(p.eventIDs("")) == 50 })
	if got := p.eventIDs("&site_id=" + s.status().SiteId); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	eventually(
		t, "the outbox is empty",
		func() bool { st := s.status(); return st.Outbox.Events == 0 && st.Outbox.Forwarded == 50 },
	)
	if !strings.Contains(string(identityFile(t, s)), "PRIVATE KEY") {
		t.Error("the identity has no key")
	}
}

func identityFile(t testing.TB, s *site) []byte {
	t.Helper()
	path := filepath.Join(s.cfg.Data, "identity.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestARefusedSiteKeepsQuietAndKeepsItsEventsUntilItEnrollsAgain(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(t, p.url).start()
	s.online()
	first := s.status().SiteId
	call[edgeapi.Site](p, http.MethodPost, "/sites/"+first+"/revoke", nil)
	eventually(t, "the agent notices", func() bool { return s.status().Link.State == agentapi.LinkStateRefused })
	var asked atomic.Int32
	count := func(http.ResponseWriter, *http.Request) bool { asked.Add(1); return false }
	p.tamper.Store(&count)
	s.send("kept")
	s.stop()
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests after the refusal", n)
	}
	p.tamper.Store(nil)

	// Without the wish to enroll again, a start finds out that it still holds.
	s.start()
	eventually(t, "the agent notices again", func() bool { return s.status().Link.State == agentapi.LinkStateRefused })
	if st := s.status(); st.Outbox.Events != 1 || !strings.Contains(st.Link.LastError, "site_revoked") {
		t.Errorf("%+v", st)
	}
	s.stop()
	s.cfg.EnrollAgain = true
	s.start()
	s.online()
	second := s.status().SiteId
	eventually(
		t, "the event arrived", func() bool { return slices.Equal(p.eventIDs("&site_id="+second), []string{"kept"}) },
	)
	if second == first || len(get[[]edgeapi.Site](p, "/sites")) != 2 {
		t.Errorf("sites %s and %s", first, second)
	}
}

func TestTheCertificateIsRenewedInTimeAndAfterItsEnd(t *testing.T) {
	t.Parallel()
	for name, days := range map[string]int{"two thirds over": 61, "expired": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			s := newSite(t, p.url)
			s.now = p.clock.now
			s.start()
			s.online()
			before, site := s.status().CertificateNotAfter, s.status().SiteId
			file := string(identityFile(t, s))
			s.stop()
			p.clock.advance(time.Duration(days) * 24 * time.Hour)
			s.start()
			eventually(t, "a new certificate", func() bool { return s.status().CertificateNotAfter.After(*before) })
			if s.status().SiteId != site || string(identityFile(t, s)) == file {
				t.Error("the identity is not the renewed one of the same site")
			}
		})
	}
}

func TestAnAgentWhoseClockIsWrongRenewsWhenItIsTimeForTheControlPlane(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(t, p.url)
	wrong := -400 * 24 * time.Hour
	s.now = func() time.Time { return p.clock.now().Add(wrong) }
	s.start()
	s.online()
	st := s.status()
	if st.ClockSkewSeconds == nil || (*st.ClockSkewSeconds+wrong.Seconds()) > 5 ||
		(*st.ClockSkewSeconds+wrong.Seconds()) < -5 {
		t.Errorf("skew %v", st.ClockSkewSeconds)
	}
	s.send("e")
	eventually(t, "the event arrived", func() bool { return len(p.eventIDs("")) == 1 })
	p.clock.advance(61 * 24 * time.Hour)
	eventually(
		t, "a new certificate", func() bool { return s.status().CertificateNotAfter.After(*st.CertificateNotAfter) },
	)
}

func TestAnAgentWithoutACertificateAuthorityWorksWithItsToken(t *testing.T) {
	t.Parallel()
	p := newPlane(t, func(c *edge.Config) { c.PKI = false })
	s := newSite(t, p.url).start()
	s.online()
	if st := s.status(); st.CertificateNotAfter != nil {
		t.Errorf("%+v", st)
	}
}

func TestAnEventThatIsRefusedForGoodDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]string{"named": "events.%d.topic", "not named": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			tamper := func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != edgeapi.BasePath+"/events/batch" {
					return false
				}
				body, err := io.ReadAll(r.Body)
				var batch edgeapi.EventBatch
				if err := errors.Join(err, json.Unmarshal(body, &batch)); err != nil {
					t.Error(err)
				}
				for i, e := range batch.Events {
					if strings.HasPrefix(*e.EventId, "bad") {
						w.WriteHeader(http.StatusBadRequest)
						_, _ = fmt.Fprintf(
							w,
							`{"error":{"code":"invalid","message":"bad topic","field":%q,"request_id":"r"}}`,
							strings.ReplaceAll(field, "%d", strconv.Itoa(i)),
						)
						return true
					}
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				return false
			}
			p.tamper.Store(&tamper)
			s := newSite(t, p.url)
			s.retry = 20 * time.Millisecond
			s.cfg.Server = "http://127.0.0.1:1" // so that all wait at first
			s.start()
			var want []string
			for i := range 40 {
				id := fmt.Sprintf("e%d", i)
				if i%13 == 5 {
					id = "bad" + id
				} else {
					want = append(want, id)
				}
				s.send(id)
			}
			s.stop()
			s.cfg.Server = p.url
			s.start()
			eventually(t, "the outbox is empty", func() bool { return s.status().Outbox.Events == 0 })
			if got := p.eventIDs(""); !slices.Equal(got, want) {
				t.Errorf("%v", got)
			}
			if o := s.status().Outbox; o.Refused != 3 || len(o.LastRefused) != 3 ||
				o.LastRefused[0].EventId != "bade31" ||
				!strings.Contains(o.LastRefused[0].Reason, "bad topic") {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestACaptivePortalRefusesNothing(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(t, p.url).start()
	s.online()
	var portal atomic.Bool
	portal.Store(true)
	tamper := func(w http.ResponseWriter, _ *http.Request) bool {
		if portal.Load() {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<html>Please accept our terms</html>")) // a client that left
		}
		return portal.Load()
	}
	p.tamper.Store(&tamper)
	s.send("e")
	eventually(
		t, "the agent sees that there is no link",
		func() bool { return s.status().Link.State == agentapi.LinkStateOffline },
	)
	portal.Store(false)
	eventually(t, "the event arrived", func() bool { return len(p.eventIDs("")) == 1 })
	if o := s.status().Outbox; o.Refused != 0 {
		t.Errorf("%+v", o)
	}
}

func TestDevicesAndTheirTwinsTravelBothWaysAndSurviveARestartWithoutALink(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(t, p.url)
	reachable := s.cfg.Server
	s.cfg.Server = "http://127.0.0.1:1"
	s.start()
	model := "P100"
	status := func(res *http.Response, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	put := func(device string) int {
		return status(s.local.RegisterDevice(t.Context(), device, agentapi.DeviceInput{Model: &model}))
	}
	patch := func(device, body string) int {
		return status(s.local.PatchReportedWithBody(t.Context(), device, "application/json", strings.NewReader(body)))
	}
	twin := func(device string) *agentapi.Twin {
		tw, err := rest.Do[agentapi.Twin](s.local.GetTwin(t.Context(), device))
		if refused := new(rest.Refusal); errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return &tw
	}
	for i, status := range []int{put("pump:1"), put("pump:2"), patch("pump:1", `{"a":{"b":1,"c":2},"x":1}`), patch("pump:1", `{"a":{"b":null},"ota":{"state":"succeeded"}}`)} {
		if status != http.StatusAccepted {
			t.Errorf("request %d: %d", i, status)
		}
	}
	if status := patch("nobody", `{}`); status != http.StatusNotFound {
		t.Errorf("an unknown device: %d", status)
	}
	s.stop()
	s.start()
	if tw := twin("pump:1"); !sameJSON(tw.Reported, `{"a":{"c":2},"x":1}`) || !tw.Pending {
		t.Errorf("without a link: %s", tw.Reported)
	}
	s.stop()
	s.cfg.Server = reachable
	s.start()
	eventually(t, "the control plane knows", func() bool {
		all := get[[]edgeapi.Twin](p, "/twins")
		return len(all) == 2 && sameJSON(all[0].Reported, `{"a":{"c":2},"x":1}`)
	})
	call[edgeapi.Twin](
		p, http.MethodPut, "/twins/pump:1/desired", map[string]any{"desired": map[string]any{"rpm": 1450}},
	)
	eventually(
		t,
		"the desired state arrived",
		func() bool { return string(twin("pump:1").Desired) == `{"rpm":1450}` && !twin("pump:1").Pending },
	)
	file := filepath.Join(s.cfg.Data, "twins", "pump%3A1.json")
	eventually(t, "its file says so, too", func() bool {
		text, err := os.ReadFile(file)
		var content struct {
			DeviceID string         `json:"device_id"`
			Desired  map[string]int `json:"desired"`
		}
		if err != nil || json.Unmarshal(text, &content) != nil || content.DeviceID != "pump:1" {
			t.Fatalf("%s, %v", text, err)
		}
		return content.Desired["rpm"] == 1450
	})
	page, err := s.local.ListTwins(t.Context(), &agentapi.ListTwinsParams{Limit: new(1)})
	twins, err := rest.Do[[]agentapi.Twin](page, err)
	if err != nil || len(twins) != 1 || !strings.Contains(page.Header.Get("Link"), "cursor=") {
		t.Errorf("a page: %v %v", err, page)
	}
	call[any](p, http.MethodDelete, "/devices/pump:1", nil)
	call[edgeapi.Twin](p, http.MethodPut, "/twins/pump:2/desired", map[string]any{"desired": map[string]any{}})
	eventually(t, "the device is forgotten", func() bool { return twin("pump:1") == nil })
	eventually(t, "its file is gone", func() bool {
		_, err := os.Stat(file)
		return os.IsNotExist(err)
	})
}

func TestDroppedEventsBecomeOneLineOfActivity(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	s := newSite(
		t,
		"http://127.0.0.1:1",
		func(c *agent.Config) { c.OutboxFull, c.OutboxMaxSize = "drop-oldest", 1<<20 },
	)
	s.start()
	payload := json.RawMessage(`"` + strings.Repeat("x", 300<<10) + `"`)
	for range 6 {
		if _, err := rest.Read(
			s.local.SendEvent(t.Context(), agentapi.EventInput{Topic: "t", Payload: payload}),
		); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	s.cfg.Server = p.url
	s.start()
	told := func() (n int) {
		for _, line := range get[[]edgeapi.ActivityEntry](p, "/activity") {
			if strings.Contains(line.Message, "dropped 3 events") {
				n++
			}
		}
		return n
	}
	eventually(t, "a line", func() bool { return told() > 0 })
	eventually(t, "the rest arrived", func() bool { return len(p.eventIDs("")) == 3 })
	if n := told(); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// sameJSON compares values; the order of keys is nobody's promise.
func sameJSON(got json.RawMessage, want string) bool {
	var a, b any
	return json.Unmarshal(got, &a) == nil && json.Unmarshal([]byte(want), &b) == nil && reflect.DeepEqual(a, b)
}
