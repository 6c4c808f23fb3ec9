// Package ota holds the rules of an over-the-air update of one device: the
// states it passes through and the moves between them. It knows no storage.
//
//	pending ─► downloading ─► downloaded ─► installing ─► rebooting ─► verifying ─► succeeded
//	   │                                        │             │            │
//	   ├─► rejected                             └──────┬──────┴────────────┘
//	   └─► already_installed                           ▼
//	                                            rolling_back ─► rolled_back
//
// Besides the arrows:
//
//   - forward moves along the upper line may leave states out;
//   - failed, canceled and timed_out can be reached from every active state;
//   - reporting the present state again is not a move and always legal, so that an
//     agent may repeat itself;
//   - succeeded, rejected, already_installed, failed, canceled, timed_out and
//     rolled_back are terminal: only a new request leaves them.
//
// A report about another request than the current one is refused (Check), since
// it speaks of an update that is no longer wanted.
package ota

import (
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// State is how far a device's update is.
type State string

// The states, in the order of a smooth update, then the ways it can end.
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

// States are all states.
func States() []State {
	return append(slices.Clone(line), Rejected, AlreadyInstalled, Failed, Canceled, TimedOut, RollingBack, RolledBack)
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { return slices.Contains(States(), s) }

// Terminal reports whether no move leaves s.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Rejected, AlreadyInstalled, Failed, Canceled, TimedOut, RolledBack:
		return true
	}
	return false
}

// Good reports whether the device runs the wanted version in this state.
func (s State) Good() bool { return s == Succeeded || s == AlreadyInstalled }

// CanMove reports whether a device may go from one state to another. Staying is
// always possible.
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

// Check decides on a report: request is the id that the report names (empty
// means the current one), current the id and the state that the device is in. It
// reports whether the state changes.
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
