package jobs

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
)

// State is the state of a job; see the package comment.
type State string

// The states.
const (
	Available State = "available" // waits until it is due and a worker is free
	Running   State = "running"   // a worker holds its lease
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Finished reports whether the job will never run again.
func (s State) Finished() bool { return s == Succeeded || s == Failed || s == Cancelled }

// event is a transition of a job.
type event uint8

const (
	claimed       event = iota
	cancelAsked         // a caller asked to stop it
	succeeded           // returned nil
	failed              // returned an error or panicked
	failedForGood       // returned a Permanent error
	handedBack          // stopped because its worker is shutting down
	leaseExpired        // its worker is gone
	numEvents
)

// status is the part of a job that the state machine uses.
type status struct {
	State           State `db:"state"`
	Attempt         int64 `db:"attempt"`
	MaxAttempts     int64 `db:"max_attempts"`
	CancelRequested bool  `db:"cancel_requested"`
}

// on returns the state after an event. It returns false, and the same state, if e cannot happen in
// this state.
func (s status) on(e event) (status, bool) {
	switch s.State {
	case Available:
		switch e {
		case claimed:
			s.State, s.Attempt = Running, s.Attempt+1
		case cancelAsked:
			s.State, s.CancelRequested = Cancelled, true
		default:
			return s, false
		}
		return s, true
	case Running:
		switch {
		case e == claimed:
			return s, false
		case e == cancelAsked:
			s.CancelRequested = true
		case e == succeeded:
			s.State = Succeeded
		case s.CancelRequested:
			s.State = Cancelled
		case e == handedBack:
			s.State, s.Attempt = Available, s.Attempt-1
		case e == failedForGood || s.Attempt >= s.MaxAttempts:
			s.State = Failed
		default:
			s.State = Available
		}
		return s, true
	}
	return s, false
}

// retries defines the delays between attempts.
var retries = backoff.Schedule{Base: time.Second, Max: 5 * time.Minute}
