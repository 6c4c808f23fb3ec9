package record

import (
	"cmp"
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Unreached stores that a backend could not be asked.
func (s *Store) Unreached(ctx context.Context, backend, why string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE backends SET last_error = ? WHERE id = ?", why, backend); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE clusters SET health = ?, summary = ? WHERE backend_id = ?", driver.Unknown, why, backend)
		return err
	})
}

// SeeCluster stores what a storage system tells about itself. It fails with a Conflict fault if that is another one
// than before.
func (s *Store) SeeCluster(
	ctx context.Context, backend string, can driver.Capabilities, seen driver.Cluster,
) (c Cluster, err error) {
	now := db.At(s.now())
	err = s.update(ctx, func(tx *db.Tx) error {
		c = Cluster{}
		b, err := backendIn(ctx, tx, backend, tx.ForUpdate())
		if err != nil {
			return err
		}
		err = tx.Get(ctx, &c, "SELECT * FROM clusters WHERE backend_id = ?", backend)
		known := err == nil
		if err := db.NotFound(err, "unknown"); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if known && c.NativeID != seen.NativeID {
			return fault.New(fault.Conflict, "behind the backend %s is another storage system (%s) than before (%s); "+
				"check its connection", b.Name, seen.NativeID, c.NativeID)
		}
		id := c.ID
		if !known {
			id = NewID()
		}
		c = Cluster{
			ID: id, BackendID: backend, NativeID: seen.NativeID, Name: cmp.Or(seen.Name, b.Name),
			Health: seen.Health, Summary: seen.Summary,
			Raw: seen.Raw, Used: seen.Used, Available: seen.Available, Recovering: seen.Recovering,
			DegradedObjects: seen.DegradedObjects, SeenAt: now,
		}
		if err := putCluster(ctx, tx, &c, known); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE backends SET capabilities = ?, last_error = '' WHERE id = ?",
			db.JSON[driver.Capabilities]{V: can}, backend); err != nil {
			return err
		}
		if err := seePools(ctx, tx, c.ID, seen.Pools); err != nil {
			return err
		}
		return seeOSDs(ctx, tx, c.ID, seen.OSDs)
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "the storage system %s is that of another backend already", seen.NativeID)
	}
	return c, err
}

func putCluster(ctx context.Context, tx *db.Tx, c *Cluster, known bool) error {
	if !known {
		return tx.Insert(ctx, "clusters", c)
	}
	_, err := tx.Exec(ctx, `UPDATE clusters SET name = ?, health = ?, summary = ?, raw_bytes = ?, used_bytes = ?,
		available_bytes = ?, recovering = ?, degraded_objects = ?, seen_at = ? WHERE id = ?`,
		c.Name, c.Health, c.Summary, c.Raw, c.Used, c.Available, c.Recovering, c.DegradedObjects, c.SeenAt, c.ID)
	return err
}

func seePools(ctx context.Context, tx *db.Tx, cluster string, pools []driver.Pool) error {
	if _, err := tx.Exec(ctx, "UPDATE pools SET missing = TRUE WHERE cluster_id = ?", cluster); err != nil {
		return err
	}
	for _, p := range pools {
		if _, err := tx.Exec(ctx, `INSERT INTO pools (id, cluster_id, name, kind, device_class, replicas, used_bytes, max_bytes,
			health, missing) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, FALSE) ON CONFLICT (cluster_id, name) DO UPDATE SET
			kind = excluded.kind, device_class = excluded.device_class, replicas = excluded.replicas,
			used_bytes = excluded.used_bytes, max_bytes = excluded.max_bytes, health = excluded.health, missing = FALSE`,
			NewID(), cluster, p.Name, p.Kind, p.DeviceClass, p.Replicas, p.Used, p.Max, p.Health); err != nil {
			return err
		}
	}
	return nil
}

func seeOSDs(ctx context.Context, tx *db.Tx, cluster string, osds []driver.OSD) error {
	if _, err := tx.Exec(ctx, "DELETE FROM osds WHERE cluster_id = ?", cluster); err != nil {
		return err
	}
	for _, o := range osds {
		if err := tx.Insert(ctx, "osds", &OSD{
			ClusterID: cluster, Number: int64(o.ID), Up: o.Up, In: o.In, DeviceClass: o.DeviceClass, Host: o.Host, Used: o.Used,
			Capacity: o.Capacity, Weight: o.Weight,
		}); err != nil {
			return err
		}
	}
	return nil
}

// SeeVolumes stores what a storage system tells about some of its volumes. Those that are not known are taken in;
// fresh is how many these are.
func (s *Store) SeeVolumes(ctx context.Context, cluster string, seen []driver.Volume) (fresh int64, err error) {
	now := db.At(s.now())
	err = s.update(ctx, func(tx *db.Tx) error {
		fresh = 0
		pools := map[string]string{}
		var all []Pool
		if err := tx.Select(ctx, &all, "SELECT * FROM pools WHERE cluster_id = ?", cluster); err != nil {
			return err
		}
		for _, p := range all {
			pools[p.Name] = p.ID
		}
		for i := range seen {
			pool, ok := pools[seen[i].Pool]
			if !ok {
				continue // the pool is newer than the pass
			}
			added, err := s.seeVolume(ctx, tx, cluster, pool, &seen[i], now)
			if err != nil {
				return err
			}
			if added {
				fresh++
			}
		}
		return nil
	})
	return fresh, err
}

func (s *Store) seeVolume(
	ctx context.Context, tx *db.Tx, cluster, pool string, seen *driver.Volume, now db.Time,
) (added bool, err error) {
	var v Volume
	err = tx.Get(ctx, &v, "SELECT * FROM volumes WHERE pool_id = ? AND native = ? AND deleted_at IS NULL"+tx.ForUpdate(),
		pool, seen.Native)
	if err == nil {
		v.State = v.State.Seen(true)
		if !v.State.AtRest() { // a job changes it, and stores what it leads to
			_, err = tx.Exec(ctx, "UPDATE volumes SET seen_at = ? WHERE id = ?", now, v.ID)
			return false, err
		}
		if v.observe(seen, now); v.Foreign {
			v.Asked = v.Size
		}
		return false, s.save(ctx, tx, &v)
	}
	if err := db.NotFound(err, "unknown"); !fault.Is(err, fault.NotFound) {
		return false, err
	}
	if !seen.Foreign {
		return false, nil // the gateway's own, of which the deletion is under way or the database is older than it
	}
	v = Volume{
		ID: NewID(), Name: seen.Native, ClusterID: cluster, PoolID: pool, Native: seen.Native, Kind: seen.Kind,
		State: state.Available, Asked: seen.Size, Foreign: true, CreatedAt: now, UpdatedAt: now,
	}
	v.belongs(Owner{})
	v.observe(seen, now)
	return true, tx.Insert(ctx, "volumes", &v)
}

// EndPass stores that a pass over a storage system, which began at a time, has told all volumes: those that it has not
// told, and that nobody has changed since, are missing.
func (s *Store) EndPass(ctx context.Context, backend, cluster string, begun db.Time) (missing int64, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		missing, err = tx.Exec(ctx, `UPDATE volumes SET state = ?, updated_at = ? WHERE cluster_id = ? AND deleted_at IS NULL
			AND (seen_at IS NULL OR seen_at < ?) AND updated_at < ? AND state IN (?, ?, ?)`,
			state.Missing, db.At(s.now()), cluster, begun, begun, state.Available, state.InUse, state.GrowthFailed)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE backends SET discovered_at = ? WHERE id = ?", begun, backend)
		return err
	})
	return missing, err
}
