package backup

import (
	"context"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// rooms counts what the backups of tenants that are being made by this replica have written, so that those that run
// at once do not exceed a quota together.
type rooms struct {
	mu      sync.Mutex
	writing map[string]int64 // bytes, by tenant
}

// add counts more bytes of a tenant, and returns all of those that its backups are writing.
func (r *rooms) add(tenant string, more int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing == nil {
		r.writing = map[string]int64{}
	}
	r.writing[tenant] += more
	all := r.writing[tenant]
	if all == 0 {
		delete(r.writing, tenant)
	}
	return all
}

// roomStep is how much a backup writes between two looks at its tenant's quota, in bytes.
const roomStep = 16 << 20

// meter watches what one backup writes.
type meter struct {
	m      *Manager
	ctx    context.Context
	tenant string
	end    context.CancelCauseFunc

	mu      sync.Mutex
	written int64
	next    int64
}

// wrote is told how much the backup has written so far. If that is more than the tenant may have, it ends the backup.
func (t *meter) wrote(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.m.rooms.add(t.tenant, bytes-t.written)
	if t.written = bytes; bytes < t.next {
		return
	}
	t.next = bytes + roomStep
	t.check(all)
}

// check ends the backup if all that the tenant's backups are writing is more than it may have.
func (t *meter) check(all int64) {
	left, err := t.m.store.BackupRoom(t.ctx, t.tenant)
	switch {
	case err != nil:
		t.end(err)
	case left != nil && all > *left:
		t.end(fault.New(fault.Denied, "quota backup_bytes of tenant %s: the backup needs more than the %d bytes that are left",
			t.tenant, max(0, *left)))
	}
}

// last is called before the backup is committed.
func (t *meter) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(t.m.rooms.add(t.tenant, 0))
	return context.Cause(t.ctx)
}

// done ends the count.
func (t *meter) done() { t.m.rooms.add(t.tenant, -t.written) }
