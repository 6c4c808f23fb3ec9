package record

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// ranks orders healths, so that the worst of a step can be kept.
var ranks = []driver.Health{driver.Healthy, driver.Warning, driver.Critical}

// capacitySteps are the lengths of the steps that are kept, and for how long each is.
var capacitySteps = []struct{ step, keep time.Duration }{
	{time.Minute, 48 * time.Hour}, {time.Hour, 60 * 24 * time.Hour}, {24 * time.Hour, 10 * 366 * 24 * time.Hour},
}

// Capacity is how full a cluster was in one step.
type Capacity struct {
	ClusterID string  `db:"cluster_id"`
	At        db.Time `db:"at"` // when the step begins
	Raw       int64   `db:"raw_bytes"`
	Used      int64   `db:"used_bytes"`
	Rank      int64   `db:"health"`
}

// Health returns the worst health of the step.
func (c Capacity) Health() driver.Health { return ranks[c.Rank] }

// SampleCapacity stores how full the clusters are that have answered when they were last asked.
func (s *Store) SampleCapacity(ctx context.Context) error {
	now := s.now()
	return s.update(ctx, func(tx *db.Tx) error {
		for _, k := range capacitySteps {
			if _, err := tx.Exec(ctx, `INSERT INTO capacity (cluster_id, step, at, raw_bytes, used_bytes, health)
				SELECT id, CAST(? AS BIGINT), CAST(? AS BIGINT), raw_bytes, used_bytes,
				CASE health WHEN ? THEN 0 WHEN ? THEN 1 ELSE 2 END FROM clusters WHERE health <> ?
				ON CONFLICT (cluster_id, step, at) DO UPDATE SET raw_bytes = excluded.raw_bytes,
				used_bytes = excluded.used_bytes,
				health = CASE WHEN excluded.health > capacity.health THEN excluded.health ELSE capacity.health END`,
				int64(k.step/time.Second), db.At(now.UTC().Truncate(k.step)), driver.Healthy, driver.Warning,
				driver.Unknown); err != nil {
				return err
			}
		}
		return nil
	})
}

// ExpireCapacity deletes what is kept no longer.
func (s *Store) ExpireCapacity(ctx context.Context) error {
	var all []error
	for _, k := range capacitySteps {
		_, err := s.db.DeletePages(ctx, 500, `DELETE FROM capacity WHERE (cluster_id, step, at) IN
			(SELECT cluster_id, step, at FROM capacity WHERE step = ? AND at < ? LIMIT ?)`,
			int64(k.step/time.Second), db.At(s.now().Add(-k.keep)))
		all = append(all, err)
	}
	return errors.Join(all...)
}

// CapacityHistory returns how full a cluster was, or all (empty), from a time until another, in order of time. The
// steps are the longest that are kept which are not longer than step, or shorter ones where those are gone.
func (s *Store) CapacityHistory(
	ctx context.Context, cluster string, from, to time.Time, step time.Duration,
) (all []Capacity, err error) {
	kept := capacitySteps[0]
	for _, k := range capacitySteps[1:] {
		if k.step <= step || from.Before(s.now().Add(-kept.keep)) {
			kept = k
		}
	}
	return all, s.db.Select(ctx, &all, `SELECT cluster_id, at, raw_bytes, used_bytes, health FROM capacity
		WHERE (? = '' OR cluster_id = ?) AND step = ? AND at >= ? AND at < ? ORDER BY at, cluster_id`,
		cluster, cluster, int64(kept.step/time.Second), db.At(from), db.At(to))
}

// Forecast says when a cluster is full if its use goes on growing as it did.
type Forecast struct {
	ClusterID string  `db:"cluster_id"`
	Days      int64   `db:"days"`   // that are known
	Growth    float64 `db:"growth"` // bytes per day
	Error     float64 `db:"error"`  // of Growth, in 95 of 100 cases
	FullAt    db.Time `db:"full_at"`
	Earliest  db.Time `db:"full_earliest_at"`
}

// Forecasts lists the forecasts of a cluster, or of all (empty).
func (s *Store) Forecasts(ctx context.Context, cluster string) (all []Forecast, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM forecasts WHERE ? = '' OR cluster_id = ? ORDER BY cluster_id",
		cluster, cluster)
}

// PutForecast stores the forecast of a cluster in the place of the one before.
func (s *Store) PutForecast(ctx context.Context, f Forecast) error {
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO forecasts (cluster_id, days, growth, error, full_at, full_earliest_at)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (cluster_id) DO UPDATE SET days = excluded.days, growth = excluded.growth,
			error = excluded.error, full_at = excluded.full_at, full_earliest_at = excluded.full_earliest_at`,
			f.ClusterID, f.Days, f.Growth, f.Error, f.FullAt, f.Earliest)
		return err
	})
}

// Totals are the capacity of clusters together, and how many things there are in the caller's scope.
type Totals struct {
	Raw       int64 `db:"raw_bytes"`
	Used      int64 `db:"used_bytes"`
	Available int64 `db:"available_bytes"`
	Clusters  int64 `db:"clusters"`
	Pools     int64 `db:"pools"`
	Volumes   int64 `db:"volumes"`
}

// Totals returns the totals of a cluster, or of all (empty).
func (s *Store) Totals(ctx context.Context, cluster string) (t Totals, err error) {
	if err := s.db.Get(ctx, &t, `SELECT CAST(COALESCE(SUM(raw_bytes), 0) AS BIGINT) AS raw_bytes,
		CAST(COALESCE(SUM(used_bytes), 0) AS BIGINT) AS used_bytes,
		CAST(COALESCE(SUM(available_bytes), 0) AS BIGINT) AS available_bytes, COUNT(*) AS clusters,
		(SELECT COUNT(*) FROM pools p WHERE (? = '' OR p.cluster_id = ?) AND NOT p.missing) AS pools
		FROM clusters WHERE ? = '' OR id = ?`, cluster, cluster, cluster, cluster); err != nil {
		return t, err
	}
	condition, args := caller.From(ctx).Scope().And("? = '' OR cluster_id = ?", cluster, cluster).SQL()
	return t, s.db.Get(ctx, &t.Volumes, "SELECT COUNT(*) FROM volumes WHERE deleted_at IS NULL AND "+condition, args...)
}
