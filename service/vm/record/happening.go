package record

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// The types of happenings: what the world outside may be told.
const (
	VMCreated = "vm.created"
	VMStarted = "vm.started"
	VMStopped = "vm.stopped"
	VMPaused  = "vm.paused"
	VMResumed = "vm.resumed"
	VMFailed  = "vm.failed"  // it ended badly, or could not be made or started
	VMMissing = "vm.missing" // the daemon does not know it any more
	VMFound   = "vm.found"   // the daemon knows it again
	VMDeleted = "vm.deleted"

	BackupWasCompleted = "backup.completed"
	BackupHasFailed    = "backup.failed"
	BackupWasDamaged   = "backup.damaged"
)

// Happenings lists the types.
func Happenings() []string {
	return []string{
		VMCreated, VMStarted, VMStopped, VMPaused, VMResumed, VMFailed, VMMissing, VMFound, VMDeleted,
		BackupWasCompleted, BackupHasFailed, BackupWasDamaged,
	}
}

// Happening is a change of a VM's or backup's state, as it is stored.
type Happening struct {
	Type   string
	At     time.Time
	VM     *VM     // nil: it is about a backup
	Was    State   // the VM's state before
	Backup *Backup // nil: it is about a VM
	Actor  string  // who caused it; empty: nobody
}

// OnHappening has f called in the transaction of each change of a VM's or backup's state, which fails if
// f fails. It must be called before the store is used.
func (s *Store) OnHappening(f func(ctx context.Context, tx *db.Tx, h Happening) error) {
	s.happened = f
}

// tellWorld passes a happening on; an empty type means that nothing has happened. It comes before the
// audit entry, which is written last everywhere: changes of webhooks lock in the same order.
func (s *Store) tellWorld(ctx context.Context, tx *db.Tx, h Happening) error {
	if s.happened == nil || h.Type == "" {
		return nil
	}
	h.At, h.Actor = s.now(), caller.From(ctx).Person()
	return s.happened(ctx, tx, h)
}

// prior is what a VM's row held that a change may turn into a happening.
type prior struct {
	State     State   `db:"state"`
	LastError string  `db:"last_error"`
	DeletedAt db.Time `db:"deleted_at"`
}

// beforeSave reads what a VM's row holds before it is saved, with the row locked.
func (s *Store) beforeSave(ctx context.Context, tx *db.Tx, id string) (p prior, err error) {
	if s.happened == nil {
		return p, nil
	}
	return p, tx.Get(ctx, &p, "SELECT state, last_error, deleted_at FROM vms WHERE id = ?", id)
}

// happening returns the type of what has happened to a VM, or "" if nothing has.
func happening(was prior, now *VM) string {
	switch {
	case !was.DeletedAt.IsZero():
		return ""
	case !now.DeletedAt.IsZero():
		return VMDeleted
	case now.State == was.State:
		if now.State == Stopped && now.LastError != "" && now.LastError != was.LastError {
			return VMFailed // it could not be made
		}
		return ""
	case now.State == Missing:
		return VMMissing
	case was.State == Missing:
		return VMFound
	case now.State == Failed:
		return VMFailed
	case now.State == Paused:
		return VMPaused
	case now.State == Running && was.State == Paused:
		return VMResumed
	case now.State == Running && was.State != Stopping: // the guest may refuse to stop
		return VMStarted
	case now.State == Stopped && was.State == Starting:
		return VMFailed
	case now.State == Stopped && was.State != Failed:
		return VMStopped
	}
	return ""
}

// backupHappening returns the type of what has happened to a backup, or "" if nothing has.
func backupHappening(was, now *Backup) string {
	switch {
	case now.Status == BackupCompleted && was.Status != BackupCompleted && was.Status != BackupDamaged:
		return BackupWasCompleted
	case now.Status == BackupFailed && was.Status != BackupFailed:
		return BackupHasFailed
	case now.Status == BackupDamaged && was.Status != BackupDamaged:
		return BackupWasDamaged
	case now.Boot == BootFailed && now.BootedAt != was.BootedAt:
		return BackupHasFailed // it cannot be relied on
	}
	return ""
}

// Noted makes a change outside of this package's tables with its audit entry, which f returns.
func (s *Store) Noted(ctx context.Context, f func(tx *db.Tx) (audit.Entry, error)) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		e, err := f(tx)
		if err != nil {
			return err
		}
		return s.note(ctx, tx, e)
	})
}

// OnTenantDeleted has f called in the transaction that removes a tenant. It must be called before the
// store is used.
func (s *Store) OnTenantDeleted(f func(ctx context.Context, tx *db.Tx, tenant string) error) {
	s.tenantDeleted = append(s.tenantDeleted, f)
}

func (s *Store) deleteOfTenant(ctx context.Context, tx *db.Tx, tenant string) error {
	for _, f := range s.tenantDeleted {
		if err := f(ctx, tx, tenant); err != nil {
			return err
		}
	}
	return nil
}

// TagsOf returns the tags of the VM that a happening is about. A backup whose VM is deleted has none.
func TagsOf(ctx context.Context, tx *db.Tx, h Happening) ([]string, error) {
	if h.Backup == nil {
		return h.VM.Tags.V, nil
	}
	var tags db.JSON[[]string]
	err := tx.Get(ctx, &tags, "SELECT tags FROM vms WHERE id = ? AND deleted_at IS NULL", h.Backup.VM)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return tags.V, err
}
