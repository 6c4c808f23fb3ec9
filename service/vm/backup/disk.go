package backup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Disk is the disk of a VM in a backup. It is safe for concurrent use, and must be closed.
type Disk struct {
	*repository.Reader
	view    *repository.View
	damaged func(why error) // is called at the first damage

	mu     sync.Mutex
	damage error
}

// ReadAtContext reads what is at an offset, as io.ReaderAt does, and notes damage of the repository.
func (d *Disk) ReadAtContext(ctx context.Context, p []byte, offset int64) (int, error) {
	n, err := d.Reader.ReadAtContext(ctx, p, offset)
	if codeOf(err) == codeDamaged {
		d.mu.Lock()
		first := d.damage == nil
		if first {
			d.damage = fault.Wrap(fault.Conflict, err, "%s", fault.From(err).Message).WithCode(codeDamaged)
		}
		d.mu.Unlock()
		if first {
			d.damaged(err)
		}
	}
	return n, err
}

// Damage returns the first damage of the repository that was read, or nil.
func (d *Disk) Damage() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.damage
}

// codeDamaged is the code of what the repository returns where it is not what was written.
const codeDamaged = "backup_damaged"

// Close frees what the disk holds.
func (d *Disk) Close() error { return d.view.Close() }

// OpenDisk opens the disk of a backup for reading.
func (m *Manager) OpenDisk(ctx context.Context, b *record.Backup) (*Disk, error) {
	v, _, err := m.view(ctx, b)
	if err != nil {
		return nil, err
	}
	r, err := v.Item(systemDisk)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return &Disk{Reader: r, view: v, damaged: func(why error) { m.noteDamage(ctx, b.ID, why) }}, nil
}

// noteDamage stores that a backup is damaged, as a verification does.
func (m *Manager) noteDamage(ctx context.Context, id string, why error) {
	reason := fault.From(why).Message
	m.log.Warn("a backup is damaged", "backup", id, "error", why)
	ctx, cancel := context.WithTimeout(caller.ByItself(context.WithoutCancel(ctx)), time.Minute)
	defer cancel()
	_, err := m.store.ChangeBackup(ctx, id, "backup "+id+" is damaged: "+reason, func(b *record.Backup) error {
		if b.Restorable() {
			b.Status, b.Error = record.BackupDamaged, reason
		}
		return nil
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		m.log.Error("that a backup is damaged was not stored", "backup", id, "error", err)
	}
}
