package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// itemName is what the data of a volume is in a backup of a repository.
const itemName = "volume"

// uploaded is the part of a job's progress after which it compares, up to record.Verifying.
const uploaded = 0.8

// make is the job that makes a backup.
func (m *Manager) make(ctx context.Context, a record.BackupArgs, progress func(float64)) error {
	b, err := m.store.Backup(ctx, a.ID)
	if fault.Is(err, fault.NotFound) || err == nil && b.State.AtRest() {
		return nil // an earlier run has stored its end
	}
	if err == nil {
		err = m.makeOf(ctx, &b, progress)
	}
	if err == nil || job.BrokenOff(ctx) {
		return err
	}
	err = reason(ctx, err)
	after, cancel := ending(ctx)
	defer cancel()
	return errors.Join(err, m.store.FailBackup(after, a.ID, err))
}

func (m *Manager) makeCancelled(ctx context.Context, a record.BackupArgs) error {
	return m.store.FailBackup(ctx, a.ID, errCancelled)
}

func (m *Manager) makeOf(ctx context.Context, b *record.Backup, progress func(float64)) error {
	v, err := m.store.Volume(ctx, b.VolumeID)
	if err != nil {
		return err
	}
	about, err := m.describe(ctx, b, &v)
	if err != nil {
		return err
	}
	if b.Mode == record.ModeData {
		if err := m.copyData(ctx, b, &v, &about, progress); err != nil {
			return err
		}
	}
	if err := m.put(ctx, b, about); err != nil {
		return err
	}
	b.State, b.LastError, b.FinishedAt = state.BackupCompleted, "", db.At(m.cfg.Now())
	if err := m.store.SaveBackup(ctx, b); err != nil {
		return err
	}
	if err := m.dropBases(ctx); err != nil {
		m.log.Warn("snapshots that no backup needs any more are still there", "error", err)
	}
	return nil
}

// copyData copies the data of a volume to the repository, and compares.
func (m *Manager) copyData(
	ctx context.Context, b *record.Backup, v *record.Volume, about *manifest, progress func(float64),
) error {
	d, of, err := reach[copying](ctx, m, v)
	if err != nil {
		return err
	}
	in := record.BackupBucket{Bucket: b.BucketID, KeyRef: b.KeyRef}
	repo, err := m.repository(ctx, in, true)
	if err != nil {
		return err
	}
	if err := m.mend(ctx, in, repo); err != nil {
		return err
	}
	name := driver.Name{Pool: of.Pool, Native: driver.SnapshotName(b.ID)}
	b.State, b.Base = state.BackupUploading, name.Native
	if err := m.store.SaveBackup(ctx, b); err != nil { // so that the snapshot is removed, whatever happens
		return err
	}
	// Where a snapshot is a copy, that takes as long as the volume is large.
	sn, err := d.CreateSnapshot(ctx, of, name, func(float64) {})
	if err != nil {
		return err
	}
	b.Size, b.Consistency, b.BaseID = sn.Size, sn.Consistency, sn.ID
	about.Size, about.Consistency, about.TakenAt = sn.Size, string(sn.Consistency), sn.CreatedAt
	compares := false
	err = d.ReadSnapshot(ctx, name, func(c driver.Content) error {
		compares = c.Compares()
		parent, err := m.parentOf(ctx, d, of, c, b, repo)
		if err != nil {
			return err
		}
		changed, err := m.ranges(ctx, c, b, parent)
		if err != nil {
			return err
		}
		done, err := m.upload(ctx, repo, c, b, parent, changed, func(done float64) { progress(done * uploaded) })
		if err != nil {
			return err
		}
		item := done.Items[0]
		hash := sha256.Sum256(item.Segments)
		b.RepositoryID, b.Stored, b.Checksum = done.ID.String(), item.Stored, "blocks:"+hex.EncodeToString(hash[:])
		about.RepositoryID, about.Checksum = b.RepositoryID, b.Checksum
		b.State = state.BackupVerifying
		if err := m.store.SaveBackup(ctx, b); err != nil {
			return err
		}
		return m.compare(ctx, repo, b, c, changed, func(done float64) { progress(uploaded + done*(1-uploaded)) })
	})
	if err == nil && !compares {
		err = m.dropBase(ctx, b) // no backup will be compared with it
	}
	return err
}

// copying is what a driver needs for backups with data.
type copying interface {
	driver.Snapshots
	driver.Copier
}

// parent is a backup that another one is compared with.
type parent struct {
	backup   record.Backup
	id       repository.ID
	snapshot string // native name
}

// parentOf returns the backup that b is compared with. Without one it returns nil, and b says why.
func (m *Manager) parentOf(
	ctx context.Context, d driver.Snapshots, of driver.Name, c driver.Content, b *record.Backup,
	repo *repository.Repository,
) (*parent, error) {
	switch {
	case b.Whole:
		b.FullReason = "it was asked for"
		return nil, nil
	case !c.Compares():
		b.FullReason = "the storage cannot tell what has changed"
		return nil, nil
	}
	last, found, err := m.store.LastBackup(ctx, b)
	if err != nil {
		return nil, err
	}
	if !found {
		b.FullReason = "the bucket has no earlier backup of the volume with this key"
		return nil, nil
	}
	id, err := repository.ParseID(last.RepositoryID)
	if err != nil {
		return nil, err
	}
	if _, err := repo.Get(ctx, owner(b.Tenant), id); fault.Is(err, fault.NotFound) {
		b.FullReason = "the earlier backup is not in the bucket any more"
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	sn, err := d.Snapshot(ctx, driver.Name{Pool: of.Pool, Native: last.Base})
	switch {
	case fault.Is(err, fault.NotFound):
		b.FullReason = "the storage does not have the snapshot of the earlier backup any more"
		return nil, nil
	case err == nil && last.BaseID != "" && sn.ID != last.BaseID:
		b.FullReason = "the storage has another snapshot in the place of that of the earlier backup"
		return nil, nil
	}
	return &parent{last, id, last.Base}, err
}

// ranges returns what is to be read of a snapshot. Without a parent it is all that the snapshot holds.
func (m *Manager) ranges(
	ctx context.Context, c driver.Content, b *record.Backup, p *parent,
) ([]repository.Range, error) {
	if p != nil {
		all, err := collect(c.Extents(ctx, p.snapshot))
		if !fault.Is(err, fault.NotFound) {
			b.Incremental, b.Parent, b.FullReason = true, p.backup.ID, ""
			return all, err
		}
		b.FullReason = "the storage does not have the snapshot of the earlier backup any more"
	}
	b.Incremental, b.Parent = false, ""
	return collect(c.Extents(ctx, ""))
}

// collect returns extents as ranges, of which neighbours are one.
func collect(all iter.Seq2[driver.Extent, error]) (ranges []repository.Range, err error) {
	for e, err := range all {
		if err != nil {
			return nil, err
		}
		if n := len(ranges); n > 0 && ranges[n-1].Offset+ranges[n-1].Length == e.Offset {
			ranges[n-1].Length += e.Length
			continue
		}
		ranges = append(ranges, repository.Range(e))
	}
	return ranges, nil
}

// upload makes the backup in the repository, unless an earlier attempt has made it.
func (m *Manager) upload(
	ctx context.Context, repo *repository.Repository, c driver.Content, b *record.Backup, p *parent,
	changed []repository.Range, progress func(float64),
) (*repository.Backup, error) {
	if done, err := committed(ctx, repo, b); done != nil || err != nil {
		return done, err
	}
	settings, err := json.Marshal(settingsOf{Volume: b.VolumeName})
	if err != nil {
		return nil, err
	}
	info := repository.Info{
		Tenant: owner(b.Tenant), Of: b.VolumeID, Name: b.ID, Type: "full", Consistency: string(b.Consistency),
		Taken: m.cfg.Now(), Config: settings,
	}
	var from *repository.ID
	if p != nil && b.Incremental {
		info.Type, from = "incremental", &p.id
	}
	w, err := repo.Begin(ctx, info, from, func(q repository.Progress) {
		if q.Total > 0 {
			progress(min(1, float64(q.Done)/float64(q.Total)))
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Abort() }() // after Commit it does nothing
	if err := w.Disk(repository.Disk{Name: itemName, Size: c.Size(), Reader: c, Changed: changed}); err != nil {
		return nil, err
	}
	return w.Commit()
}

// settingsOf is what a repository keeps about the volume of a backup.
type settingsOf struct {
	Volume string `json:"volume"` // its name
}

// committed returns what an earlier attempt has made in the repository, or nil.
func committed(ctx context.Context, repo *repository.Repository, b *record.Backup) (*repository.Backup, error) {
	all, _, err := repo.List(ctx, owner(b.Tenant))
	if err != nil {
		return nil, err
	}
	for _, found := range all {
		if found.Name == b.ID && found.Of == b.VolumeID && len(found.Items) == 1 && found.Items[0].Size == b.Size {
			return found, nil
		}
	}
	return nil, nil
}
