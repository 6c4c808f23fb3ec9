package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Replicas on one database share the shards by leases. Each replica renews its presence every few
// seconds; the live replicas, sorted by name, get every n-th shard each. Leases use the database's
// clock, since those of the replicas may differ. A replica takes a shard only if nobody holds it,
// and releases one only after its last request on it is settled. A replica that cannot renew its
// leases stops sending well before they expire. One that is cut off from the database for longer
// than a lease counts as crashed, and another replica may send again what it had in flight.
const (
	leaseTime     = 15 * time.Second
	leaseRenewal  = 3 * time.Second
	leaseDeadline = 9 * time.Second // stop if the leases were not renewed for this long
)

func allShards() []int64 {
	all := make([]int64, shardCount)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

// shareShards works on the shards that this replica holds, until ctx ends.
func (e *Engine) shareShards(ctx context.Context) {
	var held []int64
	stop := func() {}     // ends the work on held and waits for it
	var renewed time.Time // by the monotonic clock
	ticker := time.NewTicker(leaseRenewal)
	defer ticker.Stop()
	for {
		want, err := e.renew(ctx)
		if ctx.Err() == nil {
			e.renewing.Report(err)
		}
		switch {
		case err == nil:
			renewed = time.Now()
			if !slices.Equal(want, held) {
				e.holding(ctx, stop)
				if held, err = e.exchange(ctx, want); err != nil {
					held = nil
				}
				stop = e.startWork(ctx, held)
			}
		case ctx.Err() == nil:
			if time.Since(renewed) > leaseDeadline && len(held) > 0 {
				stop()
				stop, held = func() {}, nil
			}
		}
		select {
		case <-ctx.Done():
			e.holding(context.WithoutCancel(ctx), stop)
			e.leave()
			return
		case <-ticker.C:
		}
	}
}

// holding keeps renewing the leases while stop waits for requests in flight, which may take longer
// than a lease.
func (e *Engine) holding(ctx context.Context, stop func()) {
	stopped := make(chan struct{})
	routine.Go(e.Log, "delivery handover", func() { defer close(stopped); stop() })
	ticker := time.NewTicker(leaseRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-ticker.C:
			_, err := e.renew(ctx)
			e.renewing.Report(err)
		}
	}
}

func (e *Engine) startWork(ctx context.Context, shards []int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	routine.Go(e.Log, "delivery", func() {
		defer close(done)
		routine.Keep(ctx, e.Log, "delivery", func(ctx context.Context) { e.work(ctx, shards) })
	})
	return func() { cancel(); <-done }
}

// renew renews this replica's presence and its leases. It returns the shards that the replica
// should hold: those of its share that are free or already its own.
func (e *Engine) renew(ctx context.Context) (want []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenewal)
	defer cancel()
	err = e.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO delivery_replicas (id, expires_at) VALUES (?, ?)
			ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at`, e.Replica, db.At(now.Add(leaseTime))); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM delivery_replicas WHERE expires_at < ?", db.At(now)); err != nil {
			return err
		}
		var living []string
		if err := tx.Select(ctx, &living, "SELECT id FROM delivery_replicas ORDER BY id"); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx, "UPDATE delivery_shards SET expires_at = ? WHERE owner = ?", db.At(now.Add(leaseTime)), e.Replica,
		); err != nil {
			return err
		}
		var taken []struct {
			Shard int64  `db:"shard"`
			Owner string `db:"owner"`
		}
		if err := tx.Select(
			ctx, &taken, "SELECT shard, owner FROM delivery_shards WHERE expires_at >= ?", db.At(now),
		); err != nil {
			return err
		}
		owner := map[int64]string{}
		for _, t := range taken {
			owner[t.Shard] = t.Owner
		}
		want = nil
		for _, shard := range share(living, e.Replica) {
			if owner[shard] == "" || owner[shard] == e.Replica {
				want = append(want, shard)
			}
		}
		return nil
	})
	return want, err
}

// share returns a replica's share of the shards among the live replicas.
func share(living []string, replica string) []int64 {
	rank := slices.Index(living, replica)
	var mine []int64
	for _, shard := range allShards() {
		if rank >= 0 && int(shard)%len(living) == rank {
			mine = append(mine, shard)
		}
	}
	return mine
}

// exchange releases all shards but those wanted, and takes the wanted ones that nobody holds. It
// must not be called while requests are in flight.
func (e *Engine) exchange(ctx context.Context, want []int64) (held []int64, err error) {
	err = e.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		held = nil
		var own []int64
		if err := tx.Select(ctx, &own, "SELECT shard FROM delivery_shards WHERE owner = ?", e.Replica); err != nil {
			return err
		}
		for _, shard := range own {
			if slices.Contains(want, shard) {
				continue
			}
			if _, err := tx.Exec(
				ctx, "DELETE FROM delivery_shards WHERE shard = ? AND owner = ?", shard, e.Replica,
			); err != nil {
				return err
			}
		}
		for _, shard := range want {
			n, err := tx.Exec(ctx, `INSERT INTO delivery_shards (shard, owner, expires_at) VALUES (?, ?, ?)
				ON CONFLICT (shard) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
				WHERE delivery_shards.owner = excluded.owner OR delivery_shards.expires_at < ?`,
				shard, e.Replica, db.At(now.Add(leaseTime)), db.At(now))
			if err != nil {
				return err
			}
			if n > 0 {
				held = append(held, shard)
			}
		}
		return nil
	})
	return held, err
}

// leave releases the shards of a replica that stops, so that the others need not wait for its
// leases to expire.
func (e *Engine) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := e.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM delivery_shards WHERE owner = ?", e.Replica); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM delivery_replicas WHERE id = ?", e.Replica)
		return err
	})
	if err != nil {
		e.Log.Warn("delivery: could not free shards; others take them over when the leases run out", "error", err)
	}
}
