package vm

import (
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// State is a state in a VM's life cycle.
type State string

// The states.
const (
	Creating State = "creating" // its disks are being made
	Stopped  State = "stopped"
	Starting State = "starting" // its process is being started
	Running  State = "running"
	Paused   State = "paused"   // its processors are halted
	Stopping State = "stopping" // the guest was asked to shut down, or is being killed
	Failed   State = "failed"   // it ended otherwise than was wanted; its last error says how
	Deleting State = "deleting" // what it has on the host is being removed
)

// States returns all states.
func States() []State {
	return []State{Creating, Stopped, Starting, Running, Paused, Stopping, Failed, Deleting}
}

// HasProcess reports whether a VM in this state has, or may have, a process on the host.
func (s State) HasProcess() bool {
	switch s {
	case Starting, Running, Paused, Stopping:
		return true
	case Creating, Stopped, Failed, Deleting:
	}
	return false
}

// UnderWay reports whether the state is transitional.
func (s State) UnderWay() bool {
	switch s {
	case Creating, Starting, Stopping, Deleting:
		return true
	case Stopped, Running, Paused, Failed:
	}
	return false
}

// Move is a request of a caller, or something that happened to a VM.
type Move string

// Requests of callers.
const (
	Start Move = "start"
	Stop  Move = "stop"
	// Restart is a stop after which the VM is started again.
	Restart Move = "restart"
	Pause   Move = "pause"
	Resume  Move = "resume"
	// Reset restarts the guest. The VM's process goes on.
	Reset  Move = "reset"
	Delete Move = "delete"
)

// Things that happen.
const (
	Made    Move = "made"    // its disks are there
	CameUp  Move = "came up" // its process runs
	Ended   Move = "ended"   // its process ended as was wanted, or by the guest's own will
	Crashed Move = "crashed" // it ended otherwise, or could not be made or started
	Left    Move = "left"    // it is another host's now
)

// Moves returns all moves.
func Moves() []Move {
	return []Move{Start, Stop, Restart, Pause, Resume, Reset, Delete, Made, CameUp, Ended, Crashed, Left}
}

// legal maps each possible move from a state to the next state.
var legal = map[Move]map[State]State{
	Made:   {Creating: Stopped},
	Start:  {Stopped: Starting, Failed: Starting},
	CameUp: {Starting: Running},
	Pause:  {Running: Paused},
	Resume: {Paused: Running},
	Reset:  {Running: Running},
	// Asking twice is allowed, for example with a shorter grace period.
	Stop: {Starting: Stopping, Running: Stopping, Paused: Stopping, Stopping: Stopping},
	// The latest request counts: a stop becomes a restart, and the other way round.
	Restart: {Running: Stopping, Paused: Stopping, Stopping: Stopping},
	Ended:   {Starting: Stopped, Running: Stopped, Paused: Stopped, Stopping: Stopped},
	Left:    {Stopped: Deleting, Failed: Deleting},
	// A VM that could not be created is removed.
	Crashed: {Creating: Deleting, Starting: Failed, Running: Failed, Paused: Failed, Stopping: Failed},
	// Deleting twice is allowed: the first attempt may have ended with the daemon.
	Delete: {
		Creating: Deleting,
		Stopped:  Deleting,
		Starting: Deleting,
		Running:  Deleting,
		Paused:   Deleting,
		Stopping: Deleting,
		Failed:   Deleting,
		Deleting: Deleting,
	},
}

// Next returns the state after a move. If the state does not allow the move, it fails with a
// conflict that names both.
func Next(from State, move Move) (State, error) {
	to, ok := legal[move][from]
	if !ok {
		return from, fault.New(
			fault.Conflict, "the VM is %s; it cannot %s now", from, phrase(move),
		).WithCode("wrong_state")
	}
	return to, nil
}

// phrase returns a move as the end of a sentence that begins with "it cannot".
func phrase(m Move) string {
	switch m {
	case Start, Stop, Restart, Pause, Resume:
		return string(m)
	case Reset:
		return "be reset"
	case Delete:
		return "be deleted"
	case Made:
		return "be made"
	case CameUp:
		return "come up"
	case Ended:
		return "end"
	case Crashed:
		return "crash"
	case Left:
		return "move to another host"
	}
	return string(m)
}
