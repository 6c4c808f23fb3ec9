package provision

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// work does a job's work on a volume, and returns what the storage system says of the volume then.
type work func(ctx context.Context, v *record.Volume) (*driver.Volume, error)

// on does the work of a job on a volume that is in the state of its action, and stores how it ended.
func (m *Manager) on(ctx context.Context, a record.VolumeArgs, action state.Action, do work) error {
	v, err := m.store.Volume(ctx, a.ID)
	if fault.Is(err, fault.NotFound) {
		return nil // a repeated job has nothing left to do
	}
	if err != nil {
		return err
	}
	if v.State.AtRest() {
		return nil // an earlier run has stored its end
	}
	seen, err := do(ctx, &v)
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	err = reason(ctx, err)
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, m.store.EndVolume(after, a, action, seen, err))
}

func (m *Manager) create(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
	return m.on(ctx, a, state.Create, func(ctx context.Context, v *record.Volume) (*driver.Volume, error) {
		d, name, err := reach[driver.Volumes](ctx, m, v)
		if err != nil {
			return nil, err
		}
		if a.Replaces != "" { // what could not be made may be there after all
			old := driver.Name{Pool: name.Pool, Native: driver.VolumeName(a.Replaces)}
			if err := d.DeleteVolume(ctx, old); err != nil {
				return nil, err
			}
		}
		bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
		defer cancel()
		if _, err := d.CreateVolume(bounded, driver.VolumeSpec{Name: name, Kind: v.Kind, Size: v.Size}); err != nil {
			return nil, err
		}
		return m.verify(ctx, d, name, v, progress)
	})
}

var errSlow = fault.New(fault.Unavailable, "the storage has not answered within %s", callWithin)

// verify asks the storage system for a volume that was made, and compares it with what was asked for.
func (m *Manager) verify(
	ctx context.Context, d driver.Volumes, name driver.Name, v *record.Volume, progress func(float64),
) (*driver.Volume, error) {
	progress(record.Verifying)
	bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
	defer cancel()
	seen, err := d.Volume(bounded, name)
	if err != nil {
		return nil, err
	}
	if seen.Kind != v.Kind || seen.Size < v.Size {
		return &seen, fault.New(fault.Unavailable, "the storage has made a volume of the kind %s with %d bytes, not %s with %d",
			seen.Kind, seen.Size, v.Kind, v.Size)
	}
	return &seen, nil
}

func (m *Manager) expand(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
	return m.on(ctx, a, state.Expand, func(ctx context.Context, v *record.Volume) (*driver.Volume, error) {
		d, name, err := reach[driver.Volumes](ctx, m, v)
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeoutCause(ctx, callWithin, errSlow)
		defer cancel()
		if _, err := d.ExpandVolume(bounded, name, v.Size); err != nil {
			// The quota counts what the volume has.
			after, cancel := ending(ctx)
			defer cancel()
			if seen, again := d.Volume(after, name); again == nil {
				return &seen, err
			}
			return nil, err
		}
		return m.verify(ctx, d, name, v, progress)
	})
}

func (m *Manager) delete(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
	if a.Keep > 0 {
		return m.discard(ctx, a, progress)
	}
	return m.on(ctx, a, state.Delete, func(ctx context.Context, v *record.Volume) (*driver.Volume, error) {
		d, name, err := reach[driver.Volumes](ctx, m, v)
		if err != nil {
			return nil, err
		}
		if err := m.dropBases(ctx, v, name); err != nil {
			return nil, err
		}
		name.Complete = a.Before != state.Failed
		if err := d.DeleteVolume(ctx, name); err != nil {
			return nil, refusal(err)
		}
		progress(record.Verifying)
		return nil, gone(ctx, d, name)
	})
}

// refusal marks the error of a deletion that a storage system has refused, for example because clients have the volume
// open: it finds that before it changes anything.
func refusal(err error) error {
	if fault.Is(err, fault.Conflict) {
		return record.Unchanged(err)
	}
	return err
}

// gone checks with the storage system that a volume is not there any more.
func gone(ctx context.Context, d driver.Volumes, name driver.Name) error {
	switch _, err := d.Volume(ctx, name); {
	case err == nil:
		return fault.New(fault.Unavailable, "the storage still has the volume")
	case !fault.Is(err, fault.NotFound):
		return err
	}
	return nil
}

// dropBases removes the snapshots that backups of a volume are compared with: they go with the volume.
func (m *Manager) dropBases(ctx context.Context, v *record.Volume, name driver.Name) error {
	bases, err := m.store.BasesOf(ctx, v.ID)
	if err != nil || len(bases) == 0 {
		return err
	}
	d, _, err := reach[driver.Snapshots](ctx, m, v)
	for i := 0; i < len(bases) && err == nil; i++ {
		if err = d.DeleteSnapshot(ctx, driver.Name{Pool: name.Pool, Native: bases[i].Base}); err == nil {
			err = m.store.ForgetBase(ctx, bases[i].ID)
		}
	}
	return err
}

func (m *Manager) clone(ctx context.Context, a record.VolumeArgs, progress func(float64)) error {
	return m.on(ctx, a, state.Create, func(ctx context.Context, v *record.Volume) (*driver.Volume, error) {
		sn, err := m.store.Snapshot(ctx, v.SourceID)
		if err != nil {
			return nil, err
		}
		d, name, err := reach[driver.Volumes](ctx, m, v)
		if err != nil {
			return nil, err
		}
		c, _, err := reach[driver.Cloner](ctx, m, v)
		if err != nil {
			return nil, err
		}
		spec := driver.VolumeSpec{Name: name, Kind: v.Kind, Size: v.Size}
		of, err := m.store.SourceOf(ctx, &sn)
		if err != nil {
			return nil, err
		}
		if _, err := c.CloneSnapshot(ctx, sn.In(name.Pool, &of), spec, func(done float64) {
			progress(done * record.Verifying)
		}); err != nil {
			return nil, err
		}
		return m.verify(ctx, d, name, v, progress)
	})
}

// The jobs below were cancelled before they ran.

func (m *Manager) createCancelled(ctx context.Context, a record.VolumeArgs) error {
	return m.store.EndVolume(ctx, a, state.Create, nil, errCancelled)
}

func (m *Manager) expandCancelled(ctx context.Context, a record.VolumeArgs) error {
	v, err := m.store.Volume(ctx, a.ID)
	if err != nil {
		return err
	}
	d, name, err := reach[driver.Volumes](ctx, m, &v)
	if err != nil {
		return m.store.EndVolume(ctx, a, state.Expand, nil, errCancelled)
	}
	seen, err := d.Volume(ctx, name)
	if err != nil {
		return m.store.EndVolume(ctx, a, state.Expand, nil, errCancelled)
	}
	return m.store.EndVolume(ctx, a, state.Expand, &seen, errCancelled)
}

func (m *Manager) deleteCancelled(ctx context.Context, a record.VolumeArgs) error {
	return m.store.EndVolume(ctx, a, state.Delete, nil, errCancelled)
}
