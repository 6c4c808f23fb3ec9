package simulator

import (
	"errors"
	"math/rand/v2"
	"time"
)

// What may go wrong with chaos on. A site is away for about a twentieth of the
// time; rates are per occasion.
const (
	outageRate    = 0.015 // a heartbeat finds the link cut
	lostRate      = 0.02  // the answer to events is lost on the way
	repeatRate    = 0.02  // events are sent again though they were acknowledged
	hangRate      = 0.01  // a device hangs in the middle of an update
	outageBeats   = 6     // the longest outage, in heartbeats
	minimumOutage = 1
)

var errChaos = errors.New("the answer was lost on purpose")

// chaos decides what goes wrong. Without it nothing does.
type chaos bool

// outage says for how long the link is cut now, mostly not at all.
func (c chaos) outage(rnd *rand.Rand, heartbeat time.Duration) time.Duration {
	if !c || rnd.Float64() >= outageRate {
		return 0
	}
	beats := minimumOutage + rnd.Float64()*(outageBeats-minimumOutage)
	return time.Duration(beats * float64(heartbeat))
}

func (c chaos) happens(rnd *rand.Rand, rate float64) bool { return bool(c) && rnd.Float64() < rate }
