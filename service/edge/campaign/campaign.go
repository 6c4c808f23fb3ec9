// Package campaign holds the rules of staged updates as pure functions: what a
// stage is, and what the outcomes of its devices mean. It knows no storage.
//
//	        start                     last stage done
//	draft ────────► running ────────────────────────────► completed
//	  │             │  ▲ │ promote: next stage
//	  │             │  └─┘ (by a person, or by itself)
//	  │             │
//	  └──── abort ──┴──► aborted
//
// While it runs, a campaign may be paused: it waits for a person, who promotes
// or aborts it. Devices that go away leave both sides of every fraction, so a
// threshold means the same whatever happens to the fleet meanwhile.
package campaign

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Status is where a campaign is.
type Status string

// The statuses.
const (
	Draft     Status = "draft"
	Running   Status = "running"
	Completed Status = "completed"
	Aborted   Status = "aborted"
)

// CheckStages refuses stages that are not rising percentages ending with 100.
func CheckStages(stages []int) error {
	last := 0
	for i, p := range stages {
		if p <= last || p > 100 {
			return fault.InvalidField(
				fmt.Sprintf("stages.%d", i), "must be greater than the one before and at most 100",
			)
		}
		last = p
	}
	if last != 100 {
		return fault.InvalidField("stages", "must end with 100")
	}
	return nil
}

// Position places a device in a campaign's rollout: as good as random, and the
// same however often it is asked.
func Position(campaignID, deviceID string) string {
	sum := sha256.Sum256([]byte(campaignID + "\x00" + deviceID))
	return hex.EncodeToString(sum[:12])
}

// Upto is how many of total devices belong to the stages up to and including the
// given one: its percentage, rounded up, and at least one device for each stage
// as long as there are any.
func Upto(stages []int, stage int, total int64) int64 {
	n := int64(math.Ceil(float64(total) * float64(stages[stage]) / 100))
	return min(total, max(n, int64(stage)+1))
}

// Counts are a campaign's devices by outcome.
type Counts struct {
	Waiting, Pending, InProgress, Succeeded, Failed, Removed int64
}

// Total counts the devices that count: all but the removed ones.
func (c Counts) Total() int64 { return c.Waiting + c.Pending + c.InProgress + c.Succeeded + c.Failed }

// Plan is what a campaign's author decided.
type Plan struct {
	SuccessThreshold float64 // share of the devices asked so far that must succeed
	FailureThreshold float64 // share of failures that is too much
	MinDevices       int64   // devices that must have finished before failures are judged
	Soak             time.Duration
	AutoPromote      bool
	AutoAbort        bool
}

// State is where a campaign is when it is judged.
type State struct {
	Asked      Counts // of the devices of all stages so far
	FinalStage bool
	Paused     bool
	Soaked     time.Duration // since the stage met its success threshold
}

// Decision is what is to be done with a running campaign.
type Decision uint8

// The decisions.
const (
	Wait     Decision = iota
	Met               // the stage has met its success threshold: the soak begins
	Promote           // continue to the next stage
	Pause             // wait for a person
	Abort             // stop for good
	Complete          // all is done
)

// Decide judges a stage whose devices have all been asked. The reason is for
// people, when the decision is Pause or Abort.
func Decide(p Plan, s State) (d Decision, reason string) {
	asked := s.Asked.Total()
	finished := s.Asked.Succeeded + s.Asked.Failed
	open := asked - finished
	failed := share(s.Asked.Failed, asked)

	// A last stage with fewer devices than MinDevices is judged when it is done.
	if failed > p.FailureThreshold && (finished >= p.MinDevices || open == 0) {
		reason = fmt.Sprintf(
			"%d of %d devices failed, more than %.4g %%", s.Asked.Failed, asked, 100*p.FailureThreshold,
		)
		switch {
		case p.AutoAbort:
			return Abort, reason
		case s.Paused:
			return Wait, ""
		}
		return Pause, reason
	}
	if s.Paused {
		return Wait, ""
	}
	if asked > 0 && share(s.Asked.Succeeded, asked) < p.SuccessThreshold {
		if open == 0 {
			return Pause, fmt.Sprintf(
				"%d of %d devices succeeded, less than %.4g %%", s.Asked.Succeeded, asked, 100*p.SuccessThreshold,
			)
		}
		return Wait, ""
	}
	switch {
	case s.FinalStage && open == 0:
		return Complete, ""
	case s.FinalStage:
		return Wait, "" // the threshold is met, but some devices are still at it
	case s.Soaked < 0:
		return Met, ""
	case p.AutoPromote && s.Soaked >= p.Soak:
		return Promote, ""
	}
	return Wait, ""
}

// share is n of total; of nothing, nothing.
func share(n, total int64) float64 {
	return float64(n) / float64(cmp.Or(total, 1))
}
