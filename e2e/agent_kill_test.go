package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
			time.Sleep(time.Duration(rand.Int64N(int64(80 * time.Millisecond)))) // the moment of a kill during the start
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

func TestAnAgentOnAFullDiskRefusesEventsLosesNoneAndNeedsNoRestart(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	e := startEdge(t, "--heartbeat-interval", "1s")
	data := filepath.Join(disk, "agent")
	a := newAgent(t, e.url(), "--data", data)
	a.data = data
	a.start()
	a.online()
	e.kill() // so that what is accepted stays
	payload := json.RawMessage(`"` + strings.Repeat("x", 32<<10) + `"`)
	acknowledged, refused := map[string]bool{}, map[string]bool{}
	send := func(id string) int {
		t.Helper()
		res, err := a.api.SendEventWithResponse(t.Context(), agentapi.EventInput{EventId: &id, Topic: "t", Payload: payload})
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode() == http.StatusAccepted {
			acknowledged[id] = true
		} else {
			refused[id] = true
		}
		return res.StatusCode()
	}
	for i := range 5 {
		if status := send(fmt.Sprintf("before-%d", i)); status != http.StatusAccepted {
			t.Fatalf("status %d with an empty disk", status)
		}
	}
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	for i := 0; len(refused) < 10; i++ {
		if i == 2000 {
			t.Fatal("2,000 events of 32 KiB were accepted on a full disk of 24 MiB")
		}
		if status := send(fmt.Sprintf("full-%d", i)); status != http.StatusAccepted && status != http.StatusInsufficientStorage {
			t.Fatalf("status %d on a full disk", status)
		}
	}
	if s := a.status(); s == nil || s.Outbox.Events != int64(len(acknowledged)) {
		t.Errorf("status on a full disk: %+v; %d were acknowledged", s, len(acknowledged))
	}
	// With the disk still full, what there is goes out.
	e.start()
	a.kill()
	a.args[2] = e.url()
	a.launch()
	eventually(t, "all that was acknowledged has arrived", func() bool { return len(missing(acknowledged, e.events())) == 0 })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "events are accepted again", func() bool {
		s := a.status()
		return s != nil && send("after") == http.StatusAccepted
	})
	eventually(t, "the outbox is empty", func() bool { s := a.status(); return s != nil && s.Outbox.Events == 0 })
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
