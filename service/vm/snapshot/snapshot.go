// Package snapshot takes snapshots of VMs, returns VMs to them, and keeps their tree.
//
// The daemon keeps the snapshots of a VM in its disk, under the ids that this service gives them,
// and this service keeps what each was taken after. A snapshot's parent is the one that the disk
// stood on. Deleting a snapshot gives its children its parent; returning to one makes it the parent
// of the next.
//
// # States of a snapshot
//
//	        the daemon has it
//	pending ─────────────────► ready
//	   │
//	   └── it failed, or the service was killed: deleted (Sweep)
//
// It imports driver and record.
package snapshot

import (
	"context"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Manager does what can be done with snapshots.
type Manager struct {
	store  *record.Store
	driver *driver.Driver
	log    *slog.Logger
}

// New returns a Manager.
func New(store *record.Store, d *driver.Driver, log *slog.Logger) *Manager {
	return &Manager{store, d, log}
}

// Request is what a snapshot is to be.
type Request struct {
	Name, Description string
	Full              bool // with memory
}

// Take takes a snapshot of a VM, and returns when the daemon has it.
func (m *Manager) Take(ctx context.Context, vm string, q Request) (record.Snapshot, error) {
	kind := "disk"
	if q.Full {
		kind = "full"
	}
	s := record.Snapshot{ID: record.NewID(), Name: q.Name, Kind: kind, Description: q.Description}
	r, err := m.store.AddSnapshot(ctx, vm, &s)
	if err != nil {
		return s, err
	}
	size, err := m.driver.Snapshot(ctx, driver.PlaceOf(&r), s.ID, s.Name, q.Full)
	after := context.WithoutCancel(ctx)
	if err != nil {
		if abandoned := m.abandon(after, &r, s.ID); abandoned != nil {
			m.log.Warn("a failed snapshot was not removed yet", "vm", r.ID, "snapshot", s.ID, "error", abandoned)
		}
		return s, err
	}
	if err := m.store.SnapshotTaken(after, r.ID, s.ID, size); err != nil {
		return s, err
	}
	return m.store.Snapshot(after, r.ID, s.ID)
}

// abandon removes a snapshot that was not finished.
func (m *Manager) abandon(ctx context.Context, r *record.VM, id string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := m.driver.DeleteSnapshot(ctx, driver.PlaceOf(r), id); err != nil {
		return err
	}
	return m.store.SnapshotDeleted(ctx, r.ID, id)
}

// Delete removes a snapshot.
func (m *Manager) Delete(ctx context.Context, vm, id string) error {
	r, err := m.store.BeginSnapshot(ctx, vm, id, "snapshot.delete")
	if err != nil {
		return err
	}
	if err := m.driver.DeleteSnapshot(ctx, driver.PlaceOf(&r), id); err != nil {
		return err
	}
	return m.store.SnapshotDeleted(context.WithoutCancel(ctx), r.ID, id)
}

// Revert returns a VM to a snapshot.
func (m *Manager) Revert(ctx context.Context, vm, id string) error {
	r, err := m.store.BeginSnapshot(ctx, vm, id, "snapshot.revert")
	if err != nil {
		return err
	}
	at := driver.PlaceOf(&r)
	if err := m.driver.Revert(ctx, at, id); err != nil {
		return err
	}
	after := context.WithoutCancel(ctx)
	if err := m.store.SnapshotReverted(after, r.ID, id); err != nil {
		return err
	}
	if seen, err := m.driver.Get(after, at); err == nil {
		return m.store.Observed(after, r.ID, seen, true)
	}
	return nil
}

// Sweep removes snapshots that were not finished because the service was killed.
func (m *Manager) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	pending, err := m.store.Unfinished(ctx, unfinishedAge)
	for i := 0; i < len(pending) && err == nil; i++ {
		r, err := m.store.VM(ctx, pending[i].VM)
		if err == nil {
			err = m.abandon(ctx, &r, pending[i].ID)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			m.log.Warn("an unfinished snapshot was not removed yet", "snapshot", pending[i].ID, "error", err)
		}
	}
	return err
}

// unfinishedAge is the age at which a pending snapshot is certainly not being taken any more: longer
// than the request to the daemon may last.
const unfinishedAge = 15 * time.Minute

// Node is a snapshot with those that were taken after it.
type Node struct {
	Snapshot record.Snapshot
	Children []*Node
}

// Tree returns the roots of the tree of a VM's snapshots, in the order of all.
func Tree(all []record.Snapshot) []*Node {
	nodes := make(map[string]*Node, len(all))
	for _, s := range all {
		nodes[s.ID] = &Node{Snapshot: s}
	}
	var roots []*Node
	for _, s := range all {
		if parent := nodes[s.Parent]; parent != nil {
			parent.Children = append(parent.Children, nodes[s.ID])
		} else {
			roots = append(roots, nodes[s.ID])
		}
	}
	return roots
}
