package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

// A fleet under chaos, with a campaign over all of its devices: everything that
// the simulator says was acknowledged is there, once, and every device's outcome
// is known.
func TestASimulatedFleetGoesThroughACampaignUnderChaos(t *testing.T) {
	t.Parallel()
	e := newEdge(t, "--heartbeat-interval", "1s")
	e.start()
	const sites, devices = 12, 60
	fleet := launch(
		t,
		[]string{"EDGE_SERVER=" + e.url(), "EDGE_TOKEN=" + adminToken, "EDGE_ENROLLMENT_TOKEN=" + enrollmentToken},
		"edge", "simulate", "--sites", "12", "--devices", "60", "--event-interval", "100ms", "--update-duration",
		"500ms", "--fail-rate", "0.1", "--chaos", "-o", "json",
	)
	admin := e.api(adminToken)
	ctx := t.Context()
	eventually(
		t, "all devices are registered", func() bool { return len(list[edgeapi.Device](e, "/devices")) == devices },
	)

	stages := []int{20, 100}
	threshold := 0.5
	campaign := got[edgeapi.Campaign](
		admin.CreateCampaign(ctx, edgeapi.CampaignInput{
			Name:    "spring",
			Version: "2.0",
			Url:     "https://firmware.example/2.0",
			Sha256:  strings.Repeat("ab", 32),
			Targets: edgeapi.CampaignTargets{
				Labels: &edgeapi.Labels{"simulated": "true"},
			},
			Stages:               &stages,
			AutoPromote:          new(true),
			SuccessThreshold:     &threshold,
			FailureThreshold:     &threshold,
			DeviceTimeoutSeconds: new(15),
		}),
	).is(t, 201)
	ask(admin.StartCampaign(ctx, campaign.Id)).is(t, 200)
	var now *edgeapi.Campaign
	within(t, 2*time.Minute, "the campaign ends", func() bool {
		now = got[edgeapi.Campaign](admin.GetCampaign(ctx, campaign.Id)).is(t, 200)
		return now.Status != edgeapi.CampaignStatusRunning
	})
	if c := now.Counts; now.Status != edgeapi.CampaignStatusCompleted || c.Total != devices ||
		c.Succeeded+c.Failed != devices {
		t.Errorf("the campaign is %s: %+v (%s)", now.Status, c, now.PausedReason)
	}
	fleet.stop()
	text := fleet.output.String()
	var said struct {
		Enrolled     int   `json:"sites_enrolled"`
		Acknowledged int64 `json:"events_acknowledged"`
		Made         int64 `json:"events_made"`
		Refused      int64 `json:"requests_refused"`
	}
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{\n"):]), &said); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	stored := 0
	for id, n := range e.events() {
		if stored++; n != 1 {
			t.Errorf("event %s is stored %d times", id, n)
		}
	}
	// Answers that chaos lost may never have been repeated before the end.
	if said.Enrolled != sites || said.Acknowledged == 0 || int64(stored) < said.Acknowledged ||
		int64(stored) > said.Made {
		t.Errorf("%d events are stored; the fleet says %+v", stored, said)
	}
}
