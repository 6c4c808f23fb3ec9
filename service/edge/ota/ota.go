// Package ota holds the rules of an over-the-air update of one device: its states and the
// transitions between them. It does no I/O.
//
//	pending ─► downloading ─► downloaded ─► installing ─► rebooting ─► verifying ─► succeeded
//	   │                                        │             │            │
//	   ├─► rejected                             └──────┬──────┴────────────┘
//	   └─► already_installed                           ▼
//	                                            rolling_back ─► rolled_back
//
// Further rules:
//
//   - Transitions along the upper line may skip states.
//   - failed, canceled and timed_out can be reached from every active state.
//   - Reporting the present state again is no transition and always allowed, so that
//     an agent may repeat a report.
//   - succeeded, rejected, already_installed, failed, canceled, timed_out and
//     rolled_back are terminal: only a new request leaves them.
//
// Check refuses a report on another request than the current one, since that update
// is no longer wanted.
package ota

import (
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// State is the state of a device's update.
type State string

// The states: those of an update without problems in order, then the others.
const (
	Pending          State = "pending"
	Downloading      State = "downloading"
	Downloaded       State = "downloaded"
	Installing       State = "installing"
	Rebooting        State = "rebooting"
	Verifying        State = "verifying"
	Succeeded        State = "succeeded"
	Rejected         State = "rejected"
	AlreadyInstalled State = "already_installed"
	Failed           State = "failed"
	Canceled         State = "canceled"
	TimedOut         State = "timed_out"
	RollingBack      State = "rolling_back"
	RolledBack       State = "rolled_back"
)

// line is the upper line of the diagram.
var line = []State{Pending, Downloading, Downloaded, Installing, Rebooting, Verifying, Succeeded}

// States returns all states.
func States() []State {
	return append(slices.Clone(line), Rejected, AlreadyInstalled, Failed, Canceled, TimedOut, RollingBack, RolledBack)
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Terminal reports whether s has no transitions to other states.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Rejected, AlreadyInstalled, Failed, Canceled, TimedOut, RolledBack:
		return true
	}
	return false
}

// Good reports whether the device runs the wanted version in this state.
func (s State) Good() bool { return s == Succeeded || s == AlreadyInstalled }

// CanMove reports whether a transition between two states is allowed. Staying in a
// state always is.
func CanMove(from, to State) bool {
	switch {
	case !from.Valid() || !to.Valid():
		return false
	case from == to:
		return true
	case from.Terminal():
		return false
	}
	switch to {
	case Failed, Canceled, TimedOut:
		return true
	case Rejected, AlreadyInstalled:
		return from == Pending
	case RollingBack:
		return slices.Index(line, from) >= slices.Index(line, Installing)
	case RolledBack:
		return from == RollingBack
	}
	was, is := slices.Index(line, from), slices.Index(line, to)
	return was >= 0 && is > was
}

// Check checks a report. request and to are the request ID (empty: the current one) and the state
// in the report; current and from are those of the device. It reports whether the state changes,
// and fails if the report is on another request or the transition is not allowed.
func Check(request string, to State, current string, from State) (changed bool, err error) {
	if !to.Valid() {
		return false, fault.InvalidField("status.state", "%q is not a state of an update", to)
	}
	if request != "" && request != current {
		return false, fault.New(
			fault.Conflict, "status.request_id: %s is not the device's current request (%s)", request, current,
		).WithCode("superseded")
	}
	if !CanMove(from, to) {
		return false, fault.New(fault.Conflict, "status.state: an update cannot go from %s to %s", from, to).WithCode(
			"illegal_transition",
		)
	}
	return from != to, nil
}
