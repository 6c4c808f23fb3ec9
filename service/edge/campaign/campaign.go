// Package campaign holds the rules of staged updates as pure functions: how stages divide the
// devices, and what the outcomes of the devices mean. It does no I/O.
//
//	        start                     last stage done
//	draft ────────► running ────────────────────────────► completed
//	  │             │  ▲ │ promote: next stage
//	  │             │  └─┘ (by a person, or by itself)
//	  │             │
//	  └──── abort ──┴──► aborted
//
// A running campaign may be paused: it waits until a person promotes or aborts it. Removed devices
// are left out of both the numerator and the denominator of every fraction, so a threshold means
// the same whatever happens to the fleet.
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

// Status is the status of a campaign.
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

// Position returns a device's position in a campaign's rollout. It is effectively random, but
// always the same for the same campaign and device.
func Position(campaignID, deviceID string) string {
	sum := sha256.Sum256([]byte(campaignID + "\x00" + deviceID))
	return hex.EncodeToString(sum[:12])
}

// Upto returns how many of total devices belong to the stages up to and including the given one:
// its percentage, rounded up, and at least one device per stage as long as there are enough.
func Upto(stages []int, stage int, total int64) int64 {
	n := int64(math.Ceil(float64(total) * float64(stages[stage]) / 100))
	return min(total, max(n, int64(stage)+1))
}

// Counts holds the number of a campaign's devices by outcome.
type Counts struct {
	Waiting, Pending, InProgress, Succeeded, Failed, Removed int64
}

// Total returns the number of devices without the removed ones.
func (c Counts) Total() int64 { return c.Waiting + c.Pending + c.InProgress + c.Succeeded + c.Failed }

// Plan holds the settings that a campaign's author chose.
type Plan struct {
	SuccessThreshold float64 // share of the devices asked so far that must succeed
	FailureThreshold float64 // share of failures above which the campaign pauses or aborts
	MinDevices       int64   // devices that must have finished before failures are judged
	Soak             time.Duration
	AutoPromote      bool
	AutoAbort        bool
}

// State is the progress of a campaign on which Decide bases its decision.
type State struct {
	Asked      Counts // the devices of all stages so far
	FinalStage bool
	Paused     bool
	Soaked     time.Duration // time since the stage met its success threshold; negative: not met yet
}

// Decision is the next step of a running campaign.
type Decision uint8

// The decisions.
const (
	Wait     Decision = iota
	Met               // the stage has met its success threshold: start the soak
	Promote           // continue to the next stage
	Pause             // wait for a person
	Abort             // end the campaign
	Complete          // all devices are done
)

// Decide judges a stage whose devices have all been asked. It returns a reason, for people to read,
// with Pause and Abort.
func Decide(p Plan, s State) (d Decision, reason string) {
	asked := s.Asked.Total()
	finished := s.Asked.Succeeded + s.Asked.Failed
	open := asked - finished
	failed := share(s.Asked.Failed, asked)

	// A last stage with fewer devices than MinDevices is judged once all of them have finished.
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
		return Wait, "" // the threshold is met, but some devices are still updating
	case s.Soaked < 0:
		return Met, ""
	case p.AutoPromote && s.Soaked >= p.Soak:
		return Promote, ""
	}
	return Wait, ""
}

// share returns n/total, or 0 if both are 0.
func share(n, total int64) float64 {
	return float64(n) / float64(cmp.Or(total, 1))
}
