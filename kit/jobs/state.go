package jobs

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
)

// State is where a job is in its life; see the package comment.
type State string

// The states.
const (
	Available State = "available" // waits for its time and a free worker
	Running   State = "running"   // a worker holds its lease
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Finished reports whether the job will never run again.
func (s State) Finished() bool { return s == Succeeded || s == Failed || s == Cancelled }

// event is what can happen to a job.
type event uint8

const (
	claimed       event = iota
	cancelAsked         // someone wants it stopped
	succeeded           // returned nil
	failed              // returned an error or panicked
	failedForGood       // returned a Permanent error
	handedBack          // stopped because its worker shuts down
	leaseExpired        // its worker is gone
	numEvents
)

// status is the part of a job that decides what an event does to it.
type status struct {
	State           State `db:"state"`
	Attempt         int64 `db:"attempt"`
	MaxAttempts     int64 `db:"max_attempts"`
	CancelRequested bool  `db:"cancel_requested"`
}

// on is the state machine. It is false when e cannot happen in this state, and
// then nothing changes.
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

// retries spaces the attempts at a job.
var retries = backoff.Schedule{Base: time.Second, Max: 5 * time.Minute}
