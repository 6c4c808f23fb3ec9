package provision

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// purgeAgain is how long a volume whose removal from the trash has failed is left alone.
const purgeAgain = 10 * time.Minute

func (m *Manager) registerTrash() {
	job.Register(m.jobs, record.JobPurge, m.trashKind(state.Purge, m.purge))
	job.Register(m.jobs, record.JobUndelete, m.trashKind(state.Undelete, m.undelete))
}

// Undelete begins to bring a volume back out of the trash, under a name; empty: the one that it had.
func (m *Manager) Undelete(ctx context.Context, id, name string) (record.Discarded, record.Job, error) {
	return m.store.Undelete(ctx, id, name, m.jobs.Begin)
}

// Purge begins to remove a volume in the trash for ever.
func (m *Manager) Purge(ctx context.Context, id string) (record.Discarded, record.Job, error) {
	return m.store.Purge(ctx, id, m.jobs.Begin)
}

// EmptyTrash begins to remove what was in the trash for long enough.
func (m *Manager) EmptyTrash(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	due, err := m.store.DueTrash(ctx, purgeAgain)
	problems := []error{err}
	for i := range due {
		_, _, err := m.Purge(ctx, due[i].ID)
		if !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) { // somebody else was quicker
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// hasTrash returns a fault unless the storage of a volume can keep it after its deletion.
func (m *Manager) hasTrash(ctx context.Context, id string) error {
	v, err := m.store.Volume(ctx, id)
	if err != nil {
		return err
	}
	_, _, err = reach[driver.Trash](ctx, m, &v)
	if f := fault.From(err); err != nil && f.PublicCode() == "unsupported" {
		err = fault.InvalidField("trash_secs", "%s: it has no trash", f.Message).WithCode("unsupported")
	}
	return err
}

func (m *Manager) discard(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
	return m.on(ctx, a, state.Discard, func(ctx context.Context, v *record.Volume) (*driver.Volume, error) {
		d, name, err := reach[driver.Trash](ctx, m, v)
		if err != nil {
			return nil, err
		}
		if err := m.dropBases(ctx, v, name); err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
		defer cancel()
		if err := d.DiscardVolume(bounded, name, time.Duration(a.Keep)*time.Second); err != nil {
			return nil, refusal(err)
		}
		progress(record.Verifying)
		volumes, name, err := reach[driver.Volumes](ctx, m, v)
		if err != nil {
			return nil, err
		}
		return nil, gone(bounded, volumes, name)
	})
}

// trashKind is a kind of jobs that do something about a volume in the trash.
func (m *Manager) trashKind(
	action state.Action, do func(ctx context.Context, v *record.Volume, progress func(float64)) (*driver.Volume, error),
) job.Kind[record.VolumeArgs] {
	return job.Kind[record.VolumeArgs]{
		Run: func(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
			d, err := m.store.InTrash(ctx, a.ID)
			if fault.Is(err, fault.NotFound) || err == nil && d.State.AtRest() {
				return nil // an earlier run has stored its end
			}
			if err != nil {
				return err
			}
			seen, err := do(ctx, &d.Volume, progress)
			if err != nil && job.BrokenOff(ctx) {
				return err
			}
			err = reason(ctx, err)
			after, cancel := ending(ctx)
			defer cancel()
			return errors.Join(err, m.store.EndTrash(after, a, action, seen, err))
		},
		Cancelled: func(ctx context.Context, a record.VolumeArgs) error {
			return m.store.EndTrash(ctx, a, action, nil, errCancelled)
		},
	}
}

func (m *Manager) undelete(
	ctx context.Context, v *record.Volume, progress func(float64),
) (*driver.Volume, error) {
	d, name, err := reach[driver.Trash](ctx, m, v)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
	defer cancel()
	if _, err := d.UndeleteVolume(bounded, name); err != nil {
		return nil, err
	}
	volumes, name, err := reach[driver.Volumes](ctx, m, v)
	if err != nil {
		return nil, err
	}
	return m.verify(ctx, volumes, name, v, progress)
}

func (m *Manager) purge(ctx context.Context, v *record.Volume, progress func(float64)) (*driver.Volume, error) {
	d, name, err := reach[driver.Volumes](ctx, m, v)
	if err != nil {
		return nil, err
	}
	name.Complete = true
	if err := d.DeleteVolume(ctx, name); err != nil {
		return nil, err
	}
	progress(record.Verifying)
	return nil, gone(ctx, d, name)
}

// endLostTrash ends what a lost job has left of a volume in the trash.
func (m *Manager) endLostTrash(ctx context.Context, v *record.Volume, lost error) error {
	action := state.Purge
	if v.State == state.Restoring {
		action = state.Undelete
	}
	a := record.VolumeArgs{ID: v.ID, Before: state.Trashed, DeletedAt: v.DeletedAt}
	if a.DeletedAt.IsZero() { // it was on its way out
		a.DeletedAt = v.UpdatedAt
	}
	return m.store.EndTrash(ctx, a, action, nil, lost)
}
