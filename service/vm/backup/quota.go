package backup

import (
	"context"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// inFlight counts what the backups that this replica is making have written, by tenant, so that backups that run at
// once do not exceed a quota together.
type inFlight struct {
	mu      sync.Mutex
	written map[string]int64 // bytes
}

// add counts more bytes of a tenant, and returns the sum of its backups.
func (r *inFlight) add(tenant string, more int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written == nil {
		r.written = map[string]int64{}
	}
	r.written[tenant] += more
	all := r.written[tenant]
	if all == 0 {
		delete(r.written, tenant)
	}
	return all
}

// quotaStep is how many bytes a backup writes between two checks of the quota.
const quotaStep = 16 << 20

// meter checks one backup against its tenant's quota while it is written.
type meter struct {
	m      *Manager
	ctx    context.Context
	tenant string
	end    context.CancelCauseFunc

	mu      sync.Mutex
	written int64
	next    int64
}

// wrote records how much the backup has written so far. It ends the backup if the tenant may not have that much.
func (t *meter) wrote(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.m.inFlight.add(t.tenant, bytes-t.written)
	if t.written = bytes; bytes < t.next {
		return
	}
	t.next = bytes + quotaStep
	t.check(all)
}

// check ends the backup if what the tenant's backups have written exceeds what is left of its quota.
func (t *meter) check(all int64) {
	left, err := t.m.store.BackupBytesLeft(t.ctx, t.tenant)
	switch {
	case err != nil:
		t.end(err)
	case left != nil && all > *left:
		t.end(fault.New(fault.Denied, "quota backup_bytes of tenant %s: the backup needs more than the %d bytes that are left",
			t.tenant, max(0, *left)))
	}
}

// last checks once more, before the backup is committed.
func (t *meter) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(t.m.inFlight.add(t.tenant, 0))
	return context.Cause(t.ctx)
}

// done ends the count.
func (t *meter) done() { t.m.inFlight.add(t.tenant, -t.written) }
