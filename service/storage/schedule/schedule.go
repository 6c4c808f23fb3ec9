// Package schedule does at regular times what schedules say: takes snapshots, makes and checks backups, and removes
// those that are kept no longer.
//
// # Invariants
//
//   - A run is taken by one replica. It begins its job once; if the process ends before that is stored, the run is
//     taken again, and a snapshot that it has begun already is a conflict, which its schedule shows.
//   - What was missed while the service was down is made up for once.
//   - Only what a schedule had made itself is removed for it, and the newest complete one never for its number.
//
// It imports backup, caller, provision and record.
package schedule

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/backup"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/provision"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store   *record.Store
	Volumes *provision.Manager
	Backups *backup.Manager
	Log     *slog.Logger
}

// Manager runs schedules.
type Manager struct{ cfg Config }

// New returns a Manager.
func New(c Config) *Manager { return &Manager{c} }

// Run begins what is due, and the removal of what is kept no longer.
func (m *Manager) Run(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	due, err := m.cfg.Store.DueSchedules(ctx)
	problems := []error{err}
	for i := range due {
		job, err := m.begin(ctx, &due[i])
		if ctx.Err() != nil {
			return context.Cause(ctx) // it is taken again
		}
		problems = append(problems, m.cfg.Store.EndRun(ctx, &due[i], job, err))
	}
	return errors.Join(append(problems, m.tidy(ctx))...)
}

// timestamp is how the time of a run stands in names.
const timestamp = "20060102-150405"

// begin begins the job of a run.
func (m *Manager) begin(ctx context.Context, c *record.Schedule) (job string, err error) {
	name := c.Name + "-" + c.NextAt.UTC().Format(timestamp)
	var j record.Job
	switch {
	case c.Kind == record.ScheduleSnapshot && c.GroupID != "":
		_, j, err = m.cfg.Volumes.SnapshotGroup(ctx, c.GroupID, name, c.ID)
	case c.Kind == record.ScheduleSnapshot:
		_, j, err = m.cfg.Volumes.Snapshot(ctx, record.SnapshotRequest{
			Volume: c.VolumeID, Kind: record.JobSnapshot, Name: name, Schedule: c.ID,
		})
	case c.Kind == record.ScheduleBackup:
		return m.backup(ctx, c)
	case c.Kind == record.ScheduleVerify, c.Kind == record.ScheduleRestore:
		return m.verify(ctx, c)
	}
	return j.ID, err
}

func (m *Manager) backup(ctx context.Context, c *record.Schedule) (string, error) {
	whole := false
	if c.FullEvery > 0 {
		n, err := m.cfg.Store.RunsOf(ctx, c.ID)
		if err != nil {
			return "", err
		}
		whole = n%c.FullEvery == 0
	}
	_, j, err := m.cfg.Backups.Create(ctx, record.BackupRequest{
		Volume: c.VolumeID, Bucket: c.BucketID, Mode: c.Mode, Whole: whole, KeyRef: c.KeyRef, Schedule: c.ID,
		MaxAge: time.Duration(c.MaxAge) * time.Second,
	})
	return j.ID, err
}

// verify checks the newest backup of a volume: by a restore, or against its snapshot if that is kept.
func (m *Manager) verify(ctx context.Context, c *record.Schedule) (string, error) {
	b, err := m.cfg.Store.NewestBackup(ctx, c.VolumeID, c.BucketID)
	if err != nil {
		return "", err
	}
	method := record.MethodSource
	switch {
	case c.Kind == record.ScheduleRestore:
		method = record.MethodRestore
	case b.Base == "":
		method = record.MethodStored
	}
	_, j, err := m.cfg.Backups.Verify(ctx, b.ID, method)
	return j.ID, err
}

// tidy begins the removal of what schedules keep no longer.
func (m *Manager) tidy(ctx context.Context) error {
	all, err := m.cfg.Store.KeptSchedules(ctx)
	problems := []error{err}
	for i := range all {
		problems = append(problems, m.tidyOf(ctx, &all[i]))
	}
	return errors.Join(problems...)
}

func (m *Manager) tidyOf(ctx context.Context, c *record.Schedule) error {
	surplus, err := m.cfg.Store.Surplus(ctx, c)
	if err != nil {
		return err
	}
	var problems []error
	for _, id := range surplus.Snapshots {
		_, _, err := m.cfg.Volumes.DeleteSnapshot(ctx, id, record.JobDeleteSnapshot, false)
		problems = append(problems, err)
	}
	for _, sn := range surplus.Groups {
		_, _, err := m.cfg.Volumes.DeleteGroupSnapshot(ctx, sn.GroupID, sn.ID)
		problems = append(problems, err)
	}
	for _, id := range surplus.Backups {
		_, _, err := m.cfg.Backups.Delete(ctx, id)
		problems = append(problems, err)
	}
	for _, err := range problems {
		// One of which volumes were made stays as long as they.
		if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}
