package agent_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// The control plane fails for one device, which is the first in every order. The others must not
// wait for it, and the status must name it.
func TestADeviceThatTheControlPlaneFailsForHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	var failing atomic.Bool
	tamper := func(w http.ResponseWriter, r *http.Request) bool {
		if !failing.Load() || !strings.HasPrefix(r.Header.Get("User-Agent"), "mainstay-agent/") ||
			!strings.Contains(r.URL.Path, "/aaa/") {
			return false
		}
		http.Error(w, "no", http.StatusInternalServerError)
		return true
	}
	p.tamper.Store(&tamper)
	s := newSite(t, p.url)
	s.retry = 20 * time.Millisecond
	s.start()
	devices := []string{"aaa", "bbb"}
	for _, device := range devices {
		if _, err := rest.Read(s.local.RegisterDevice(t.Context(), device, agentapi.DeviceInput{})); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the control plane knows both", func() bool { return len(get[[]edgeapi.Twin](p, "/twins")) == 2 })
	failing.Store(true)
	for _, device := range devices {
		if _, err := rest.Read(s.local.PatchReportedWithBody(
			t.Context(), device, "application/json", strings.NewReader(`{"rpm":7}`),
		)); err != nil {
			t.Fatal(err)
		}
		// Without a hook the update is rejected, which has to be reported.
		call[any](p, http.MethodPost, "/devices/"+device+"/ota", map[string]any{
			"version": "2", "url": "https://artifacts.invalid/fw", "sha256": strings.Repeat("a", 64),
		})
	}
	state := func(device string) edgeapi.OTAState {
		return get[edgeapi.OTA](p, "/devices/"+device+"/ota").Status.State
	}
	rpm := func(device string) bool {
		return strings.Contains(string(get[edgeapi.Twin](p, "/twins/"+device).Reported), `"rpm"`)
	}
	eventually(t, "the other device is in step", func() bool { return rpm("bbb") && state("bbb") == edgeapi.OTAStateRejected })
	eventually(t, "the status names the device, for its twin and for its update", func() bool {
		named := 0
		for _, alert := range s.status().Alerts {
			if alert.Code == "devices_not_synced" && strings.Contains(alert.Message, " of device aaa: the server answered 500") {
				named++
			}
		}
		return named == 2
	})
	if rpm("aaa") || state("aaa") == edgeapi.OTAStateRejected {
		t.Error("the control plane did not fail for the device")
	}
	failing.Store(false)
	eventually(t, "the device is in step", func() bool {
		return rpm("aaa") && state("aaa") == edgeapi.OTAStateRejected && len(s.status().Alerts) == 0
	})
}

func TestTheStatusSaysWhyTheDesiredStateIsNotPulled(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	var failing atomic.Bool
	failing.Store(true)
	tamper := func(w http.ResponseWriter, r *http.Request) bool {
		if !failing.Load() || r.URL.Path != edgeapi.BasePath+"/agent/twins" {
			return false
		}
		http.Error(w, "no", http.StatusInternalServerError)
		return true
	}
	p.tamper.Store(&tamper)
	s := newSite(t, p.url)
	s.retry = 20 * time.Millisecond
	s.start()
	eventually(t, "the alert", func() bool {
		for _, alert := range s.status().Alerts {
			if alert.Code == "devices_not_synced" &&
				strings.Contains(alert.Message, "pull the desired state: the server answered 500") {
				return true
			}
		}
		return false
	})
	failing.Store(false)
	eventually(t, "the end of the alert", func() bool { return len(s.status().Alerts) == 0 })
}
