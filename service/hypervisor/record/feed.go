package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// FeedEvent is an event of any VM, as it was then. It outlives the VM.
type FeedEvent struct {
	ID      int64    `db:"id"` // increases with each commit
	At      db.Time  `db:"at"`
	VM      string   `db:"vm_id"`
	Name    string   `db:"name"`
	Tenant  string   `db:"tenant"`
	Kind    string   `db:"kind"`
	State   vm.State `db:"state"` // empty: the VM is gone
	Message string   `db:"message"`
	Actor   string   `db:"actor"`
}

// maxFeed is the number of events that are kept for streams.
const maxFeed = 10_000

// publish inserts an event of a VM for streams, in the transaction of what happened.
func (s *Store) publish(ctx context.Context, tx *db.Tx, r *VM, kind, message string, state vm.State) error {
	var last int64
	if err := tx.Get(ctx, &last, "SELECT COALESCE(MAX(id), 0) FROM vm_feed"); err != nil {
		return err
	}
	e := FeedEvent{
		ID: last + 1, At: db.At(s.now()), VM: r.ID, Name: r.Name, Tenant: r.Tenant, Kind: kind, State: state,
		Message: message, Actor: caller.From(ctx).Name,
	}
	if err := tx.Insert(ctx, "vm_feed", e); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM vm_feed WHERE id <= ?", e.ID-maxFeed)
	return err
}

// update runs a transaction and wakes those who follow events.
func (s *Store) update(ctx context.Context, f func(tx *db.Tx) error) error {
	err := s.db.Update(ctx, f)
	if err == nil {
		s.bell.Ring()
	}
	return err
}

// FeedBell rings when there may be new events of VMs.
func (s *Store) FeedBell() *feed.Bell { return &s.bell }

// FeedBounds returns the ids of the oldest and the newest event that are kept, of all tenants; 0: there
// is none.
func (s *Store) FeedBounds(ctx context.Context) (oldest, newest int64, err error) {
	var b struct {
		Oldest int64 `db:"oldest"`
		Newest int64 `db:"newest"`
	}
	err = s.db.Get(ctx, &b, "SELECT COALESCE(MIN(id), 0) AS oldest, COALESCE(MAX(id), 0) AS newest FROM vm_feed")
	return b.Oldest, b.Newest, err
}

// FeedAfter returns events in the caller's scope above an id, oldest first.
func (s *Store) FeedAfter(ctx context.Context, after int64, limit int) (found []FeedEvent, err error) {
	where, args := caller.From(ctx).Scope().And("id > ?", after).SQL()
	return found, s.db.Select(
		ctx, &found, "SELECT * FROM vm_feed WHERE "+where+" ORDER BY id LIMIT ?", append(args, limit)...,
	)
}
