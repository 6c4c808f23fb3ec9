package vm_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// The table of moves is written again, from the point of view of a state, by what an
// operator expects.
func TestEachStateAllowsExactlyItsMoves(t *testing.T) {
	t.Parallel()
	want := map[vm.State]string{
		vm.Creating: "delete, made, crashed",
		vm.Stopped:  "start, delete, left",
		vm.Starting: "stop, delete, came up, ended, crashed",
		vm.Running:  "stop, restart, pause, reset, delete, ended, crashed",
		vm.Paused:   "stop, restart, resume, delete, ended, crashed",
		vm.Stopping: "stop, restart, delete, ended, crashed",
		vm.Failed:   "start, delete, left",
		vm.Deleting: "delete",
	}
	for _, s := range vm.States() {
		var allowed []string
		for _, m := range vm.Moves() {
			if _, err := vm.Next(s, m); err == nil {
				allowed = append(allowed, string(m))
			}
		}
		if got := strings.Join(allowed, ", "); got != want[s] {
			t.Errorf("%s allows %s, want %s", s, got, want[s])
		}
	}
}

func TestAnIllegalMoveIsAConflictThatNamesTheStateAndChangesNothing(t *testing.T) {
	t.Parallel()
	got, err := vm.Next(vm.Stopped, vm.Pause)
	if got != vm.Stopped || !fault.Is(err, fault.Conflict) || fault.From(err).PublicCode() != "wrong_state" ||
		err.Error() != "the VM is stopped; it cannot pause now" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := vm.Next(vm.Paused, vm.Reset); err == nil || err.Error() != "the VM is paused; it cannot be reset now" {
		t.Error(err)
	}
	if _, err := vm.Next("nonsense", vm.Start); !fault.Is(err, fault.Conflict) {
		t.Errorf("an unknown state: %v", err)
	}
}

// Random walks: whatever happens in whatever order, a VM is always in a state that is
// known, a process exists only where a start led to, and nothing leaves deleting.
func TestRandomWalksKeepTheRulesOfLife(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		state, process, deleting, made := vm.Creating, false, false, false
		for range 60 {
			move := vm.Moves()[random.IntN(len(vm.Moves()))]
			next, err := vm.Next(state, move)
			if err != nil {
				if next != state {
					t.Fatalf("a refused %s moved the VM from %s to %s", move, state, next)
				}
				continue
			}
			if !slices.Contains(vm.States(), next) {
				t.Fatalf("%s leads from %s to %q", move, state, next)
			}
			switch move {
			case vm.Made:
				made = true
			case vm.Start:
				process = true
			case vm.Ended, vm.Crashed:
				process = false
			case vm.Delete:
				deleting = true
			case vm.Stop, vm.Pause, vm.Resume, vm.Reset, vm.CameUp:
			}
			if next.HasProcess() && !process {
				t.Fatalf("%s in %s: there is no process", next, state)
			}
			deleting = deleting || state == vm.Creating && move == vm.Crashed
			if deleting && next != vm.Deleting {
				t.Fatalf("a VM that was being deleted is %s", next)
			}
			if next == vm.Stopped && !made {
				t.Fatalf("a VM is stopped that was never made")
			}
			state = next
		}
	}
}

func TestWhatIsUnderWayDoesNotLast(t *testing.T) {
	t.Parallel()
	for _, s := range vm.States() {
		// Something that happens by itself, or asking again, leads out of what is under way
		// and nothing but a request or an end leads out of the rest.
		leaves := false
		for _, m := range []vm.Move{vm.Made, vm.CameUp} {
			if next, err := vm.Next(s, m); err == nil && next != s {
				leaves = true
			}
		}
		if leaves && !s.UnderWay() {
			t.Errorf("%s is left by itself, and is not under way", s)
		}
	}
	for _, s := range []vm.State{vm.Stopped, vm.Running, vm.Paused, vm.Failed} {
		if s.UnderWay() {
			t.Errorf("%s lasts", s)
		}
	}
}
