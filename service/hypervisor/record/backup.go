package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Backup is a copy of a VM's disk at one moment. An incremental backup holds the changes since its
// parent and needs it.
type Backup struct {
	ID          string        `db:"id"`
	VM          string        `db:"vm_id"`
	VMName      string        `db:"vm_name"`
	Tenant      string        `db:"tenant"`
	Kind        string        `db:"kind"`
	Parent      string        `db:"parent_id"`
	Bitmap      string        `db:"bitmap"` // in the VM's disk; tracks changes since this backup
	Description string        `db:"description"`
	Spec        db.JSON[Spec] `db:"spec"`
	Backend     string        `db:"backend"`
	Base        string        `db:"base"` // the catalog content that the VM's kernel is from
	Size        int64         `db:"size"`
	VirtualSize int64         `db:"virtual_size"`
	SHA256      string        `db:"sha256"`
	CreatedAt   db.Time       `db:"created_at"`
	// LeftOut are the names of the disks that the VM had beside its system disk, which alone is backed up.
	LeftOut db.JSON[[]string] `db:"left_out"`
}

// Kinds of backups.
const (
	BackupFull        = "full"
	BackupIncremental = "incremental"
)

// Backup returns a backup in the caller's scope.
func (s *Store) Backup(ctx context.Context, id string) (Backup, error) {
	return backupIn(ctx, s.db, id)
}

func backupIn(ctx context.Context, q db.Querier, id string) (Backup, error) {
	var b Backup
	err := q.Get(ctx, &b, "SELECT * FROM backups WHERE id = ?", id)
	if err == nil && !caller.From(ctx).Sees(b.Tenant) {
		err = db.ErrNoRows
	}
	return b, db.NotFound(err, "there is no such backup")
}

// Backups lists backups in the caller's scope, newest first, starting before an id.
func (s *Store) Backups(ctx context.Context, vmID, before string, limit int) ([]Backup, error) {
	query, args := "SELECT * FROM backups WHERE 1 = 1", []any{}
	if c := caller.From(ctx); c.Tenant != "" {
		query, args = query+" AND tenant = ?", append(args, c.Tenant)
	}
	if vmID != "" {
		query, args = query+" AND vm_id = ?", append(args, vmID)
	}
	if before != "" {
		query, args = query+" AND id < ?", append(args, before)
	}
	var all []Backup
	err := s.db.Select(ctx, &all, query+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
	return all, err
}

// BackupIDs returns the ids of all backups.
func (s *Store) BackupIDs(ctx context.Context) (ids []string, err error) {
	return ids, s.db.Select(ctx, &ids, "SELECT id FROM backups")
}

// LastNoted returns the backup since which a bitmap in the VM's disk tracks changes, or nil.
func (s *Store) LastNoted(ctx context.Context, vmID string) (*Backup, error) {
	var b Backup
	err := s.db.Get(ctx, &b, "SELECT * FROM backups WHERE vm_id = ? AND bitmap <> '' ORDER BY id DESC LIMIT 1", vmID)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return &b, err
}

const forgetBitmaps = "UPDATE backups SET bitmap = '' WHERE vm_id = ?"

// ForgetBitmaps makes the next backup of a VM a full one.
func (s *Store) ForgetBitmaps(ctx context.Context, vmID string) error {
	return s.exec(ctx, forgetBitmaps, vmID)
}

// AddBackup stores a backup that is on disk. It forgets the bitmaps of earlier backups.
func (s *Store) AddBackup(ctx context.Context, b *Backup, how string) error {
	message := fmt.Sprintf("backup %s (%s), %s", b.ID, b.Kind, how)
	_, err := s.changeWith(ctx, b.VM, EventDisk, "", message, func(tx *db.Tx, _ *VM) error {
		if _, err := tx.Exec(ctx, forgetBitmaps, b.VM); err != nil {
			return err
		}
		return tx.Insert(ctx, "backups", *b)
	})
	return err
}

// RemoveBackup removes the row of a backup. It fails if another backup builds on it, or if a
// running operation may create one that does.
func (s *Store) RemoveBackup(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		b, err := backupIn(ctx, tx, id)
		if err != nil {
			return err
		}
		var children int
		if err := tx.Get(ctx, &children, "SELECT COUNT(*) FROM backups WHERE parent_id = ?", id); err != nil {
			return err
		}
		if children > 0 {
			return fault.New(fault.Conflict, "later backups build on this one; remove those first").
				WithCode("backup_in_use")
		}
		var using int
		if err := tx.Get(ctx, &using, `SELECT COUNT(*) FROM operations o JOIN jobs j ON j.id = o.id
			WHERE j.finished_at IS NULL AND (o.kind = ? AND o.backup_id = ? OR o.kind = ? AND o.vm_id = ?)`,
			OperationRestore, id, OperationBackup, b.VM); err != nil {
			return err
		}
		if using > 0 {
			return fault.New(fault.Conflict, "the backup is being restored, or another is being made of its VM; "+
				"wait for that operation, or cancel it").WithCode("backup_in_use")
		}
		if _, err := tx.Exec(ctx, "DELETE FROM backups WHERE id = ?", id); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "backup.delete", Target: id, Tenant: b.Tenant, Message: b.VMName})
	})
}

// SettleDisk stores that a VM's disk was replaced with another of size bytes. It removes the rows of
// failed snapshots, whose remains were in the old disk.
func (s *Store) SettleDisk(ctx context.Context, id string, size int64, message string) error {
	_, err := s.changeWith(ctx, id, EventDisk, "", message, func(tx *db.Tx, r *VM) error {
		r.Spec.V.DiskGiB = int((size + GiB - 1) / GiB)
		_, err := tx.Exec(ctx, "DELETE FROM snapshots WHERE vm_id = ?", id)
		return err
	})
	return err
}
