package backup

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// remove is the job that removes a backup. What others need of its data stays.
func (m *Manager) remove(ctx context.Context, a record.BackupArgs, _ func(float64)) error {
	b, err := m.store.Backup(ctx, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && b.State != state.BackupDeleting {
		return nil
	}
	if err == nil {
		err = m.removeOf(ctx, &b)
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	err = reason(ctx, err)
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, m.store.EndBackupDeletion(after, a, err))
}

func (m *Manager) removeCancelled(ctx context.Context, a record.BackupArgs) error {
	return m.store.EndBackupDeletion(ctx, a, errCancelled)
}

func (m *Manager) removeOf(ctx context.Context, b *record.Backup) error {
	if err := m.dropBase(ctx, b); err != nil {
		return err
	}
	if b.RepositoryID != "" {
		if err := m.removeData(ctx, b); err != nil {
			return err
		}
	}
	s, err := m.bucket(ctx, b.BucketID)
	if err != nil {
		return err
	}
	if err := s.Delete(ctx, b.Key); err != nil {
		m.forget(b.BucketID)
		return unavailable(err)
	}
	return nil
}

func (m *Manager) removeData(ctx context.Context, b *record.Backup) error {
	id, err := repository.ParseID(b.RepositoryID)
	if err != nil {
		return err
	}
	repo, err := m.repository(ctx, record.BackupBucket{Bucket: b.BucketID, KeyRef: b.KeyRef}, false)
	if err != nil {
		return err
	}
	if err := repo.Delete(ctx, owner(b.Tenant), id); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// dropBases removes snapshots that no backup will be compared with any more.
func (m *Manager) dropBases(ctx context.Context) error {
	all, err := m.store.Bases(ctx)
	var problems []error
	for i := range all {
		problems = append(problems, m.dropBase(ctx, &all[i]))
	}
	return errors.Join(append(problems, err)...)
}

// dropBasesOf removes the snapshots that backups of a volume are compared with.
func (m *Manager) dropBasesOf(ctx context.Context, volume string) error {
	all, err := m.store.BasesOf(ctx, volume)
	for i := 0; i < len(all) && err == nil; i++ {
		err = m.dropBase(ctx, &all[i])
	}
	return err
}

// dropGone removes what is left of backups that went with their bucket.
func (m *Manager) dropGone(ctx context.Context) error {
	all, err := m.store.BackupsOfGoneBuckets(ctx)
	var problems []error
	for i := range all {
		m.forget(all[i].BucketID)
		err := m.dropBase(ctx, &all[i])
		if err == nil {
			err = m.store.EndBackupDeletion(ctx, record.BackupArgs{ID: all[i].ID}, nil)
		}
		problems = append(problems, err)
	}
	return errors.Join(append(problems, err)...)
}

// dropBase removes the snapshot of a backup.
func (m *Manager) dropBase(ctx context.Context, b *record.Backup) error {
	if b.Base == "" {
		return nil
	}
	v, pool, err := m.store.Whereabouts(ctx, b.VolumeID)
	if err == nil {
		var d driver.Snapshots
		if d, _, err = reach[driver.Snapshots](ctx, m, &v); err == nil {
			err = d.DeleteSnapshot(ctx, driver.Name{Pool: pool, Native: b.Base})
		}
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	b.Base = ""
	return m.store.ForgetBase(ctx, b.ID)
}

// Prune frees what no backup needs in the repositories of all buckets. One that fails does not keep the others from
// being pruned.
func (m *Manager) Prune(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	all, err := m.store.BackupBuckets(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, at := range all {
		repo, err := m.repository(ctx, at, false)
		if notCreated(err) {
			continue // its first backup is being made
		}
		if err == nil {
			_, err = repo.Prune(ctx, repository.PruneOptions{})
		}
		if err != nil {
			m.forget(at.Bucket)
			m.log.Warn("what no backup needs in a bucket was not removed", "bucket", at.Bucket, "error", err)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
