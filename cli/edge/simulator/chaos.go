package simulator

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Failures with chaos enabled. A site is offline for about a twentieth of the time; rates are per
// occasion.
const (
	outageRate    = 0.015 // a heartbeat finds the link down
	lostRate      = 0.02  // the response to events is lost
	repeatRate    = 0.02  // events are sent again although they were acknowledged
	hangRate      = 0.01  // a device hangs in the middle of an update
	outageBeats   = 6     // the longest outage, in heartbeats
	minimumOutage = 1
)

var errChaos = errors.New("the answer was lost on purpose")

// chaos decides what fails. If false, nothing does.
type chaos bool

// outage returns how long the link is down from now, usually 0.
func (c chaos) outage(rnd *rand.Rand, heartbeat time.Duration) time.Duration {
	if !c || rnd.Float64() >= outageRate {
		return 0
	}
	beats := minimumOutage + rnd.Float64()*(outageBeats-minimumOutage)
	return time.Duration(beats * float64(heartbeat))
}

func (c chaos) happens(rnd *rand.Rand, rate float64) bool { return bool(c) && rnd.Float64() < rate }
