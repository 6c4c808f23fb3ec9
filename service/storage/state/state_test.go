package state_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

var (
	all = []state.Volume{
		state.Creating, state.Available, state.InUse, state.Expanding, state.Restoring, state.Maintenance, state.Deleting,
		state.Failed, state.DeletionFailed, state.GrowthFailed, state.Missing, state.Trashed,
	}
	actions = []state.Action{
		state.Create, state.Expand, state.Restore, state.Change, state.Move, state.Delete, state.Discard, state.Undelete,
		state.Purge,
	}
)

func TestActionsBeginOnlyInTheStatesThatAllowThem(t *testing.T) {
	t.Parallel()
	allowed := map[state.Action]map[state.Volume]state.Volume{
		state.Create: {"": state.Creating},
		state.Expand: {
			state.Available: state.Expanding, state.InUse: state.Expanding, state.GrowthFailed: state.Expanding,
		},
		state.Restore: {state.Available: state.Restoring, state.Failed: state.Restoring},
		state.Change:  {state.Available: state.Maintenance, state.InUse: state.Maintenance},
		state.Move:    {state.Available: state.Maintenance, state.Missing: state.Maintenance},
		state.Delete: {
			state.Available: state.Deleting, state.Failed: state.Deleting, state.DeletionFailed: state.Deleting,
			state.GrowthFailed: state.Deleting, state.Missing: state.Deleting,
		},
		state.Discard: {
			state.Available: state.Deleting, state.DeletionFailed: state.Deleting, state.GrowthFailed: state.Deleting,
		},
		state.Undelete: {state.Trashed: state.Restoring},
		state.Purge:    {state.Trashed: state.Deleting},
	}
	for _, a := range actions {
		for _, v := range append([]state.Volume{""}, all...) {
			got, err := v.Begin(a)
			want, ok := allowed[a][v]
			if ok && (err != nil || got != want) || !ok && (!fault.Is(err, fault.Conflict) || got != v) {
				t.Errorf("%s of %q: %s, %v", a, v, got, err)
			}
		}
	}
}

// Whatever happens, a volume that is at rest can be deleted or has users, and no action is left half
// done in a state that nothing leads out of.
func TestNoVolumeIsStuck(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		v, err := state.Volume("").Begin(state.Create)
		if err != nil {
			t.Fatal(err)
		}
		before, doing := state.Volume(""), state.Create
		for range 40 {
			switch {
			case doing != "":
				v, doing = v.End(doing, before, random.IntN(2) == 0), ""
				if !v.AtRest() && v != state.Deleting {
					t.Fatalf("seed %d: after its job it is %s", seed, v)
				}
				if v == state.Deleting {
					t.Fatalf("seed %d: a deletion that succeeds leaves no volume", seed)
				}
			case random.IntN(3) == 0:
				v = v.Seen(random.IntN(2) == 0)
			default:
				a := actions[1+random.IntN(len(actions)-1)]
				next, err := v.Begin(a)
				if err != nil {
					break
				}
				if (a == state.Delete || a == state.Purge) && random.IntN(2) == 0 {
					return // it is gone
				}
				before, v, doing = v, next, a
				if v.AtRest() {
					t.Fatalf("seed %d: while %s it is %s", seed, a, v)
				}
				if a == state.Delete { // it fails: the other end is above
					v, doing = v.End(a, before, false), ""
				}
			}
		}
		if v.AtRest() && v != state.InUse {
			last := state.Delete
			if v == state.Trashed {
				last = state.Purge
			}
			if _, err := v.Begin(last); err != nil {
				t.Errorf("seed %d: %s cannot be deleted: %v", seed, v, err)
			}
		}
	}
}

func TestAnActionEndsInTheStateBeforeOrOneThatTells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action    state.Action
		before    state.Volume
		succeeded bool
		want      state.Volume
	}{
		{state.Create, "", true, state.Available},
		{state.Create, "", false, state.Failed},
		{state.Expand, state.InUse, true, state.InUse},
		{state.Expand, state.Available, false, state.GrowthFailed},
		{state.Expand, state.GrowthFailed, true, state.Available},
		{state.Change, state.InUse, false, state.InUse},
		{state.Change, state.Available, true, state.Available},
		{state.Move, state.Available, false, state.Available},
		{state.Move, state.Missing, true, state.Available},
		{state.Restore, state.Available, false, state.Failed},
		{state.Restore, state.Failed, true, state.Available},
		{state.Delete, state.Available, false, state.DeletionFailed},
	} {
		during, err := c.before.Begin(c.action)
		if err != nil {
			t.Fatal(err)
		}
		if got := during.End(c.action, c.before, c.succeeded); got != c.want {
			t.Errorf("%s of %q, succeeded %t: %s, want %s", c.action, c.before, c.succeeded, got, c.want)
		}
	}
	// A job that ends late does not undo what has happened meanwhile.
	if got := state.Deleting.End(state.Expand, state.Available, true); got != state.Deleting {
		t.Error(got)
	}
}

func TestVolumesThatTheirStorageDoesNotTellAreMissing(t *testing.T) {
	t.Parallel()
	for _, v := range all {
		if got := v.Seen(true); got != v && (v != state.Missing || got != state.Available) {
			t.Errorf("%s that is told is %s", v, got)
		}
		if got := v.Seen(false); got != v && got != state.Missing {
			t.Errorf("%s that is not told is %s", v, got)
		}
		if got := v.Seen(false); !v.AtRest() && got != v {
			t.Errorf("%s, which a job changes, became %s", v, got)
		}
	}
}

func TestSnapshotsAreTakenOfWhatHasContentAndUsedWhenTheyAreReady(t *testing.T) {
	t.Parallel()
	for _, v := range all {
		want := v == state.Available || v == state.InUse || v == state.Maintenance || v == state.Expanding ||
			v == state.GrowthFailed
		if err := v.Readable(); (err == nil) != want {
			t.Errorf("%s: %v", v, err)
		}
	}
	for _, s := range []state.Snapshot{state.SnapshotCreating, state.SnapshotDeleting, state.SnapshotFailed} {
		if err := s.Usable(); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if err := state.SnapshotReady.Usable(); err != nil {
		t.Error(err)
	}
}
