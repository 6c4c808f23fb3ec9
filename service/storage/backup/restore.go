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

// restore is the job that makes a volume of a backup.
func (m *Manager) restore(ctx context.Context, a record.RestoreArgs, progress func(float64)) error {
	v, err := m.store.Volume(ctx, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && v.State.AtRest() {
		return nil // an earlier run has stored its end
	}
	var seen *driver.Volume
	if err == nil {
		seen, err = m.restoreTo(ctx, &v, a.Backup, progress)
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	err = reason(ctx, err)
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, m.store.EndVolume(after, a.VolumeArgs, state.Create, seen, err))
}

func (m *Manager) restoreCancelled(ctx context.Context, a record.RestoreArgs) error {
	return m.store.EndVolume(ctx, a.VolumeArgs, state.Create, nil, errCancelled)
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
	view, item, err := m.view(ctx, &b)
	if err != nil {
		return nil, err
	}
	defer func() { _ = view.Close() }() // it was only read
	// Everything that the repository returns was authenticated.
	_, err = d.FillVolume(ctx, driver.VolumeSpec{Name: name, Kind: driver.Block, Size: v.Size}, func(w io.WriterAt) error {
		return item.WriteTo(ctx, w, repository.RestoreOptions{Progress: func(done, total int64) {
			progress(float64(done) / float64(total) * record.Verifying)
		}})
	})
	if err != nil {
		return nil, err
	}
	progress(record.Verifying)
	seen, err := d.Volume(ctx, name)
	if err == nil && seen.Size < v.Size {
		err = fault.New(fault.Unavailable, "the storage has made a volume of %d bytes, not %d", seen.Size, v.Size)
	}
	return &seen, err
}

// filling is what a driver needs to make volumes of backups.
type filling interface {
	driver.Volumes
	driver.Copier
}
