package backup

import (
	"context"
	"errors"
	"io"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// restore is the job that makes a volume of a backup, or puts one back to it.
func (m *Manager) restore(ctx context.Context, a record.RestoreArgs, progress func(float64)) error {
	v, err := m.store.Volume(ctx, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && v.State.AtRest() {
		return nil // an earlier run has stored its end
	}
	var seen *driver.Volume
	replaced := true
	switch {
	case err != nil:
	case a.Beside != "":
		seen, replaced, err = m.putBack(ctx, &v, a, progress)
	default:
		seen, err = m.restoreTo(ctx, &v, a.Backup, progress)
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	if err = reason(ctx, err); err != nil && !replaced {
		err = record.Unchanged(err)
	}
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, m.store.EndVolume(after, a.VolumeArgs, actionOf(a), seen, err))
}

// actionOf returns what a job does to its volume.
func actionOf(a record.RestoreArgs) state.Action {
	if a.Beside != "" {
		return state.Restore
	}
	return state.Create
}

func (m *Manager) restoreCancelled(ctx context.Context, a record.RestoreArgs) error {
	err := error(errCancelled)
	if a.Beside != "" {
		err = record.Unchanged(err)
	}
	return m.store.EndVolume(ctx, a.VolumeArgs, actionOf(a), nil, err)
}

func (m *Manager) restoreTo(
	ctx context.Context, v *record.Volume, id string, progress func(float64),
) (*driver.Volume, error) {
	b, err := m.store.Backup(ctx, id)
	if err != nil {
		return nil, err
	}
	d, name, err := reach[filling](ctx, m, v)
	if err != nil {
		return nil, err
	}
	if err := m.fill(ctx, d, name, v.Size, &b, progress); err != nil {
		return nil, err
	}
	progress(record.Verifying)
	seen, err := d.Volume(ctx, name)
	if err == nil && seen.Size < v.Size {
		err = fault.New(fault.Unavailable, "the storage has made a volume of %d bytes, not %d", seen.Size, v.Size)
	}
	return &seen, err
}

// fill makes a volume of a size, in bytes, with the content of a backup, unless it is there.
func (m *Manager) fill(
	ctx context.Context, d filling, name driver.Name, size int64, b *record.Backup, progress func(float64),
) error {
	view, item, err := m.view(ctx, b)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close() }() // it was only read
	// Everything that the repository returns was authenticated.
	_, err = d.FillVolume(ctx, driver.VolumeSpec{Name: name, Kind: driver.Block, Size: size}, func(w io.WriterAt) error {
		return item.WriteTo(ctx, w, repository.RestoreOptions{Progress: func(done, total int64) {
			progress(float64(done) / float64(total) * record.Verifying)
		}})
	})
	return err
}

// putBack makes a volume of a backup beside the one that is put back, and then puts it in its place. It reports whether
// it may have begun with that. Until then, the volume has its own content.
func (m *Manager) putBack(
	ctx context.Context, v *record.Volume, a record.RestoreArgs, progress func(float64),
) (seen *driver.Volume, replaced bool, err error) {
	b, err := m.store.Backup(ctx, a.Backup)
	if err != nil {
		return nil, false, err
	}
	d, name, err := reach[replacing](ctx, m, v)
	if err != nil {
		return nil, false, err
	}
	beside := driver.Name{Pool: name.Pool, Native: driver.VolumeName(a.Beside)}
	err = m.fill(ctx, d, beside, v.Size, &b, progress)
	if err == nil {
		err = m.dropBasesOf(ctx, v.ID) // of what it held so far
	}
	if err == nil {
		err = d.ReplaceVolume(ctx, name, beside)
		replaced = err == nil || !fault.Is(err, fault.Conflict) // a conflict is found before anything is changed
	}
	if err != nil {
		if !job.BrokenOff(ctx) { // else the next run needs it
			after, cancel := ending(ctx)
			defer cancel()
			err = errors.Join(err, d.DeleteVolume(after, beside))
		}
		return m.asIs(ctx, d, name), replaced, err
	}
	progress(record.Verifying)
	now, err := d.Volume(ctx, name)
	if err != nil {
		return nil, true, err
	}
	return &now, true, nil
}

// asIs returns what the storage says of a volume after a failure; nil: it does not say.
func (m *Manager) asIs(ctx context.Context, d driver.Volumes, name driver.Name) *driver.Volume {
	after, cancel := ending(ctx)
	defer cancel()
	seen, err := d.Volume(after, name)
	if err != nil {
		return nil
	}
	return &seen
}

// filling is what a driver needs to make volumes of backups.
type filling interface {
	driver.Volumes
	driver.Copier
}

// replacing is what a driver needs to put volumes back to backups.
type replacing interface {
	filling
	driver.Replacer
}
