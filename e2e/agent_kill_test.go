package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

func TestWhatAnAgentAcknowledgedSurvivesItsKills(t *testing.T) {
	t.Parallel()
	tg := newTarget(t, nil)
	e := startEdge(t, "--heartbeat-interval", "1s", "--allow-private-targets")
	e.route("all", tg.url+"/all")
	a := startAgent(t, e.url())
	a.online() // a kill during the enrollment could make a second site
	p := startPrograms(a, 6)
	n := kills(t)
	for i := range n {
		if i%5 == 4 {
			time.Sleep(
				time.Duration(rand.Int64N(int64(80 * time.Millisecond))),
			) // the moment of a kill during the start
		} else {
			p.more(10 + rand.Int64N(100))
		}
		a.kill()
		a.launch()
	}
	p.more(50)
	p.end()
	p.check(e, tg, "/all", true)
	if n := len(list[edgeapi.Site](e, "/sites")); n != 1 {
		t.Errorf("%d sites", n)
	}
	t.Logf("%d kills, %d events", n, p.acks.Load())
}

// The agent has just started, so its log is small: deleting what was sent needs
// space that the disk does not have.
func TestAnAgentOnAFullDiskRefusesEventsSendsWhatItHasAndNeedsNoRestart(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	e := startEdge(t, "--heartbeat-interval", "1s")
	behind, err := url.Parse(e.url())
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(behind)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	data := filepath.Join(disk, "agent")
	a := newAgent(t, front.URL, "--data", data)
	a.data = data
	a.start()
	a.online()
	away.Store(true)
	payload := json.RawMessage(`"` + strings.Repeat("x", 32<<10) + `"`)
	acknowledged, refused := map[string]bool{}, map[string]bool{}
	send := func(id string) int {
		t.Helper()
		res := ask(a.api.SendEvent(t.Context(), agentapi.EventInput{EventId: &id, Topic: "t", Payload: payload}))
		if res.err != nil {
			t.Fatal(res.err)
		}
		switch {
		case res.StatusCode == http.StatusAccepted:
			acknowledged[id] = true
		case res.StatusCode != http.StatusInsufficientStorage || !strings.Contains(string(res.body), `"storage_full"`):
			t.Fatalf("%d on a full disk: %s", res.StatusCode, res.body)
		default:
			refused[id] = true
		}
		return res.StatusCode
	}
	for i := range 100 {
		if status := send(fmt.Sprintf("before-%d", i)); status != http.StatusAccepted {
			t.Fatalf("status %d with an empty disk", status)
		}
	}
	a.process.stop() // which empties its log
	a.start()
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	for i := 0; len(refused) < 10; i++ {
		if i == 2000 {
			t.Fatal("2,000 events of 32 KiB were accepted on a full disk of 24 MiB")
		}
		send(fmt.Sprintf("full-%d", i))
	}
	s := a.status()
	if s == nil || s.Outbox.Events != int64(len(acknowledged)) ||
		!slices.ContainsFunc(s.Alerts, func(x agentapi.Alert) bool { return x.Code == "disk_full" }) {
		t.Errorf("status on a full disk: %+v; %d were acknowledged", s, len(acknowledged))
	}

	away.Store(false)
	eventually(
		t, "all that was acknowledged has arrived", func() bool { return len(missing(acknowledged, e.events())) == 0 },
	)
	eventually(
		t, "the outbox is empty, though the disk is full",
		func() bool { s := a.status(); return s != nil && s.Outbox.Events == 0 },
	)
	a.process.stop()
	fill(t, ballast+"-2") // what the log has given back
	a.start()
	a.online()
	a.kill()
	fill(t, ballast+"-3")
	a.start()
	a.online()

	for _, path := range []string{ballast, ballast + "-2", ballast + "-3"} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "events are accepted again", func() bool { return send("after") == http.StatusAccepted })
	eventually(t, "the outbox is empty", func() bool {
		s := a.status()
		return s != nil && s.Outbox.Events == 0 && len(s.Alerts) == 0
	})
	stored := e.events()
	if lost := missing(acknowledged, stored); len(lost) > 0 {
		t.Errorf("acknowledged and lost: %s", sample(lost))
	}
	delete(refused, "after")
	for id := range refused {
		if stored[id] > 0 {
			t.Errorf("the refused event %s is stored", id)
		}
	}
	t.Logf("%d acknowledged, %d refused", len(acknowledged), len(refused))
}
