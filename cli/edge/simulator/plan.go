package simulator

import (
	"math/rand/v2"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
)

// step is one report of an update, and the delay after the previous one.
type step struct {
	after    time.Duration
	state    edgeapi.OTAState
	progress int
	message  string
}

// planUpdate plans the course of a device's update: successful or, with the probability failRate,
// one of the failures that occur in the field. The steps of a successful update take about duration
// in total.
func planUpdate(rnd *rand.Rand, failRate float64, duration time.Duration) []step {
	part := func(percent float64) time.Duration {
		return time.Duration(float64(duration) * percent / 100 * (0.5 + rnd.Float64()))
	}
	smooth := []step{
		{part(5), "downloading", 0, ""},
		{part(30), "downloading", 60, ""},
		{part(25), "installing", 100, ""},
		{part(30), "verifying", 100, ""},
		{part(10), "succeeded", 100, ""},
	}
	if rnd.Float64() >= failRate {
		return smooth
	}
	switch rnd.IntN(4) {
	case 0:
		return []step{{part(5), "rejected", 0, "battery at 11 %, updates need 30 %"}}
	case 1:
		return append(smooth[:2:2], step{part(10), "failed", 60, "the artifact's SHA-256 is not the one requested"})
	case 2:
		return append(smooth[:3:3], step{part(10), "failed", 100, "no space left on device"})
	}
	return append(smooth[:4:4],
		step{part(10), "rolling_back", 100, "the self-test failed: sensor bus silent"},
		step{part(10), "rolled_back", 100, "back on the previous version: the self-test had failed"})
}
