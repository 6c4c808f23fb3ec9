package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Kinds of schedules.
const (
	ScheduleSnapshot = "snapshot"
	ScheduleBackup   = "backup"
	ScheduleVerify   = "verify"
	ScheduleRestore  = "test_restore"
)

// Schedule is something that is done at regular times.
type Schedule struct {
	ID        string  `db:"id"`
	Tenant    string  `db:"tenant"`
	Name      string  `db:"name"`
	Kind      string  `db:"kind"`
	Enabled   bool    `db:"enabled"`
	VolumeID  string  `db:"volume_id"`
	GroupID   string  `db:"group_id"`
	BucketID  string  `db:"bucket_id"`
	Mode      string  `db:"mode"`
	KeyRef    string  `db:"key_ref"`
	FullEvery int64   `db:"full_every"`
	Every     int64   `db:"every_secs"`
	FirstAt   db.Time `db:"first_at"`
	Keep      int64   `db:"keep"`
	MaxAge    int64   `db:"max_age"` // seconds
	CreatedAt db.Time `db:"created_at"`
	NextAt    db.Time `db:"next_at"`
	BegunAt   db.Time `db:"begun_at"`
	LastAt    db.Time `db:"last_at"`
	LastJob   string  `db:"last_job"`
	LastError string  `db:"last_error"`
}

var errNoSchedule = fault.New(fault.NotFound, "there is no such schedule")

// ScheduleFilter selects schedules. Empty fields select all.
type ScheduleFilter struct {
	Tenant, Kind, Volume string
	Before               string // only schedules before this id
}

// Schedules lists schedules in the caller's scope, newest first.
func (s *Store) Schedules(ctx context.Context, f ScheduleFilter, limit int) (all []Schedule, err error) {
	scope := caller.From(ctx).Scope()
	for _, c := range []struct{ condition, value string }{
		{"tenant = ?", f.Tenant}, {"kind = ?", f.Kind}, {"volume_id = ?", f.Volume}, {"id < ?", f.Before},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM schedules WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, limit)...)
}

// Schedule returns a schedule in the caller's scope.
func (s *Store) Schedule(ctx context.Context, id string) (Schedule, error) {
	return scheduleIn(ctx, s.db, id, "")
}

func scheduleIn(ctx context.Context, q db.Querier, id, lock string) (c Schedule, err error) {
	err = q.Get(ctx, &c, "SELECT * FROM schedules WHERE id = ?"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(c.Tenant) {
		return Schedule{}, errNoSchedule
	}
	return c, err
}

// PutSchedule stores a schedule: a new one if it has no id, else in the place of that one.
func (s *Store) PutSchedule(ctx context.Context, asked Schedule) (c Schedule, err error) {
	action := "schedule.create"
	err = s.update(ctx, func(tx *db.Tx) error {
		c = asked // this may run again
		now := s.now()
		if err := c.check(ctx, tx); err != nil {
			return err
		}
		c.NextAt = db.Time{}
		if c.Enabled {
			c.NextAt = db.At(c.next(now))
		}
		if c.ID == "" {
			c.ID, c.CreatedAt = NewID(), db.At(now)
			if err := tx.Insert(ctx, "schedules", &c); err != nil {
				return err
			}
		} else {
			action = "schedule.update"
			old, err := scheduleIn(ctx, tx, c.ID, tx.ForUpdate())
			if err != nil {
				return err
			}
			c.CreatedAt, c.LastAt, c.LastJob, c.LastError = old.CreatedAt, old.LastAt, old.LastJob, old.LastError
			if _, err := tx.Exec(ctx, "DELETE FROM schedules WHERE id = ?", c.ID); err != nil {
				return err
			}
			if err := tx.Insert(ctx, "schedules", &c); err != nil {
				return err
			}
		}
		return s.note(ctx, tx, audit.Entry{Action: action, Target: c.ID, Tenant: c.Tenant, Message: c.Kind + " " + c.Name})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a schedule named %s already", c.Name).WithField("name")
	}
	return c, err
}

// check checks what a schedule is for, and takes over its tenant.
func (c *Schedule) check(ctx context.Context, tx *db.Tx) error {
	if (c.VolumeID == "") == (c.GroupID == "") {
		return fault.InvalidField("volume_id", "one of volume_id and group_id is needed")
	}
	if c.GroupID != "" {
		if c.Kind != ScheduleSnapshot {
			return fault.InvalidField("group_id", "is for snapshots only")
		}
		g, err := groupIn(ctx, tx, c.GroupID, "")
		c.Tenant = g.Tenant
		return err
	}
	v, err := volumeIn(ctx, tx, c.VolumeID, "")
	if err != nil {
		return err
	}
	c.Tenant = v.Tenant
	switch {
	case v.Foreign:
		return errForeign
	case c.Kind == ScheduleBackup && c.BucketID == "":
		return fault.InvalidField("bucket_id", "is needed for backups")
	case c.BucketID == "":
		return nil
	}
	b, err := bucketIn(ctx, tx, c.BucketID, "")
	if err == nil && b.Tenant != "" && b.Tenant != v.Tenant {
		err = fault.InvalidField("bucket_id", "the bucket belongs to another tenant than the volume")
	}
	return err
}

// next returns when the first run after now is due: at a multiple of Every after FirstAt.
func (c *Schedule) next(now time.Time) time.Time {
	first := c.FirstAt.Time
	if first.IsZero() {
		return now // at once
	}
	if !first.Before(now) {
		return first
	}
	every := time.Duration(c.Every) * time.Second
	return first.Add((now.Sub(first)/every + 1) * every)
}

// DeleteSchedule removes a schedule. What it had made stays.
func (s *Store) DeleteSchedule(ctx context.Context, id string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		c, err := scheduleIn(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM schedules WHERE id = ?", id); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "schedule.delete", Target: id, Tenant: c.Tenant, Message: c.Name})
	})
}

// runWithin is how long a run may take to begin its job. One that has not stored its end by then was interrupted.
const runWithin = time.Minute

// DueSchedules takes the schedules whose time has come: nobody else gets them until runWithin is over. A run that was
// missed is made up for once.
func (s *Store) DueSchedules(ctx context.Context) (all []Schedule, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		all = nil
		now := s.now()
		if err := tx.Select(ctx, &all, `SELECT * FROM schedules WHERE next_at <= ? AND (begun_at IS NULL OR begun_at < ?)
			ORDER BY next_at, id LIMIT 50`+tx.ForUpdate(), db.At(now), db.At(now.Add(-runWithin))); err != nil {
			return err
		}
		for i := range all {
			if _, err := tx.Exec(ctx, "UPDATE schedules SET begun_at = ? WHERE id = ?", db.At(now), all[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

// EndRun stores that a run of a schedule has begun its job, or why it has not.
func (s *Store) EndRun(ctx context.Context, c *Schedule, job string, failed error) error {
	now, message := s.now(), ""
	if failed != nil {
		message = fault.From(failed).Message
	}
	after := *c
	if after.FirstAt.IsZero() { // runs follow the first one, which was at once
		after.FirstAt = c.NextAt
	}
	return s.update(ctx, func(tx *db.Tx) error {
		// Whoever has replaced the schedule meanwhile has said when the next run is.
		_, err := tx.Exec(ctx, `UPDATE schedules SET begun_at = NULL, last_at = ?, last_job = ?, last_error = ?, next_at = ?,
			first_at = ? WHERE id = ? AND next_at = ?`, db.At(now), job, message, db.At(after.next(now)), after.FirstAt, c.ID, c.NextAt)
		return err
	})
}

// RunsOf returns how many backups a schedule has had made.
func (s *Store) RunsOf(ctx context.Context, schedule string) (n int64, err error) {
	return n, s.db.Get(ctx, &n, "SELECT COUNT(*) FROM backups WHERE schedule_id = ? AND state = ?", schedule, state.BackupCompleted)
}

// NewestBackup returns the newest backup with data of a volume, in a bucket or in any.
func (s *Store) NewestBackup(ctx context.Context, volume, bucket string) (b Backup, err error) {
	err = s.db.Get(ctx, &b, `SELECT * FROM backups WHERE volume_id = ? AND (? = '' OR bucket_id = ?) AND mode = ? AND state = ?
		ORDER BY id DESC LIMIT 1`, volume, bucket, bucket, ModeData, state.BackupCompleted)
	return b, db.NotFound(err, "the volume has no backup with data")
}

// Surplus is what schedules had made and keep no longer.
type Surplus struct {
	Snapshots, Backups []string
	Groups             []GroupSnapshot
}

// Surplus returns some of what a schedule had made and keeps no longer, oldest first.
func (s *Store) Surplus(ctx context.Context, c *Schedule) (out Surplus, err error) {
	if c.Keep == 0 && c.MaxAge == 0 {
		return out, nil
	}
	const atOnce = 20
	since, oldest := db.At(s.now().Add(-removeAgain)), db.Time{}
	if c.MaxAge > 0 {
		oldest = db.At(s.now().Add(-time.Duration(c.MaxAge) * time.Second))
	}
	keep := c.Keep
	if keep == 0 {
		keep = 1 << 40
	}
	// Those that are complete, but for the newest ones that are kept, and those that could not be removed lately.
	surplus := func(into any, columns, table, complete string) error {
		return s.db.Select(ctx, into, `SELECT `+columns+` FROM `+table+` t WHERE t.schedule_id = ? AND `+complete+` AND
			`+fmt.Sprintf(rested, "t")+` AND (t.created_at < ?
			OR (SELECT COUNT(*) FROM `+table+` n WHERE n.schedule_id = t.schedule_id AND n.id > t.id AND n.state = t.state) >= ?)
			ORDER BY t.id LIMIT ?`, c.ID, since, oldest, keep, atOnce)
	}
	if err := surplus(&out.Snapshots, "t.id", "snapshots", `t.state = 'ready' AND t.deleted_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM volumes v WHERE v.source_id = t.id AND v.deleted_at IS NULL)`); err != nil {
		return out, err
	}
	if err := surplus(&out.Groups, "t.*", "group_snapshots", "t.state = 'ready'"); err != nil {
		return out, err
	}
	return out, surplus(&out.Backups, "t.id", "backups", "t.state = 'completed'")
}

// KeptSchedules lists schedules that do not keep everything.
func (s *Store) KeptSchedules(ctx context.Context) (all []Schedule, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM schedules WHERE keep > 0 OR max_age > 0 ORDER BY id")
}
