package record

import (
	"context"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// Job is work that takes long, and what it is about.
type Job struct {
	operation.Operation
	ResourceType string `db:"resource_type"`
	ResourceID   string `db:"resource_id"`
}

// Verifying is the progress of a job whose work is done, while it asks the storage system whether it is.
const Verifying = 0.95

// Verifies reports whether a job asks the storage system whether its work is done.
func (j *Job) Verifies() bool { return j.Job.State == jobs.Running && j.Progress() >= Verifying }

// Kinds of jobs.
const (
	JobCreateVolume   = "volume.create"
	JobExpandVolume   = "volume.expand"
	JobDeleteVolume   = "volume.delete"
	JobSnapshot       = "snapshot.create"
	JobDeleteSnapshot = "snapshot.delete"
	JobClone          = "snapshot.clone"
	JobRestore        = "snapshot.restore" // to a new volume
	JobRevert         = "snapshot.revert"  // its own volume, in place

	JobCreateImage     = "image.create"
	JobDeleteImage     = "image.delete"
	JobCloneImage      = "image.clone"
	JobResizeImage     = "image.resize" // to a larger size
	JobShrinkImage     = "image.shrink"
	JobFlattenImage    = "image.flatten"
	JobLimitImage      = "image.qos"
	JobMoveImage       = "image.migrate"
	JobRevertImage     = "image.rollback"
	JobSnapshotImage   = "image.snapshot.create"
	JobUnsnapshotImage = "image.snapshot.delete"
	JobCountUsage      = "image.refresh_usage"

	JobPurge    = "trash.purge"
	JobUndelete = "trash.restore"

	JobOSDOut      = "osd.out"
	JobOSDIn       = "osd.in"
	JobReweightOSD = "osd.reweight"

	JobCreateBucket = "bucket.create" // or to take it in
	JobDeleteBucket = "bucket.delete" // or to forget it

	JobSnapshotGroup   = "group.snapshot.create"
	JobUnsnapshotGroup = "group.snapshot.delete"
	JobRevertGroup     = "group.rollback"

	JobBackup        = "backup.create"
	JobDeleteBackup  = "backup.delete"
	JobVerifyBackup  = "backup.verify"
	JobRestoreBackup = "backup.restore" // to a new volume
	JobImportBackups = "backup.import"

	JobEnableMirror  = "mirror.enable"
	JobDisableMirror = "mirror.disable"
	JobPromote       = "mirror.promote"
	JobDemote        = "mirror.demote"
	JobResync        = "mirror.resync"
	JobFailover      = "mirror.failover"
	JobRehearse      = "mirror.rehearse"
)

// AdminJobs are the kinds that only admins start.
var AdminJobs = map[string]bool{
	JobDeleteVolume: true, JobDeleteImage: true, JobShrinkImage: true, JobMoveImage: true,
	JobOSDOut: true, JobOSDIn: true, JobReweightOSD: true,
	JobImportBackups: true, JobRevertGroup: true, JobPurge: true,
	JobPromote: true, JobDemote: true, JobResync: true, JobFailover: true, JobRehearse: true,
}

// Types of what jobs are about.
const (
	TypeVolume        = "volume"
	TypeSnapshot      = "snapshot"
	TypeImage         = "image"
	TypeImageSnapshot = "image_snapshot"
	TypeCluster       = "cluster"
	TypeOSD           = "osd"
	TypeBucket        = "bucket"
	TypeBackup        = "backup"
	TypeGroupSnapshot = "group_snapshot"
	TypeMirror        = "mirror"
	TypeTrash         = "trash"
)

func newJob(kind, tenant, resourceType, resourceID string) Job {
	if strings.HasPrefix(kind, "image.") { // images are volumes
		switch resourceType {
		case TypeVolume:
			resourceType = TypeImage
		case TypeSnapshot:
			resourceType = TypeImageSnapshot
		}
	}
	return Job{
		Operation: operation.Operation{Kind: kind, Tenant: tenant}, ResourceType: resourceType, ResourceID: resourceID,
	}
}

// Begin starts a job in the transaction of the change that it belongs to.
type Begin func(ctx context.Context, tx *db.Tx, j *Job, args any) error

// JobFilter selects jobs. Empty fields select all.
type JobFilter struct {
	Kind, ResourceType, ResourceID, Tenant string
	Before                                 string // only jobs before this id
}

// Jobs lists jobs in the caller's scope, newest first.
func (s *Store) Jobs(ctx context.Context, f JobFilter, limit int) ([]Job, error) {
	scope := caller.From(ctx).Scope()
	for _, c := range []struct{ condition, value string }{
		{"kind = ?", f.Kind}, {"resource_type = ?", f.ResourceType}, {"resource_id = ?", f.ResourceID},
		{"tenant = ?", f.Tenant}, {"id < ?", f.Before},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	var all []Job
	if err := s.db.Select(ctx, &all,
		"SELECT * FROM operations WHERE "+condition+" ORDER BY id DESC LIMIT ?", append(args, limit)...); err != nil {
		return nil, err
	}
	for i := range all {
		if err := operation.ReadJob(ctx, s.db, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Job returns a job in the caller's scope.
func (s *Store) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	if err := operation.Get(ctx, s.db, id, &j); err != nil {
		return j, err
	}
	if !caller.From(ctx).Sees(j.Tenant) {
		return Job{}, operation.ErrUnknown
	}
	return j, nil
}

// CancelJob calls cancel, which cancels the job, and writes an audit entry, in one transaction.
func (s *Store) CancelJob(ctx context.Context, j *Job, cancel func(tx *db.Tx) error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if err := cancel(tx); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "job.cancel", Target: j.ID, Tenant: j.Tenant, Message: j.Kind})
	})
}

// NewestJob returns the newest job of a kind about something; without an id if there is none.
func (s *Store) NewestJob(ctx context.Context, kind, resourceID string) (Job, error) {
	return newest(ctx, s.db, kind, resourceID)
}

// newest returns the newest job of a kind about something, if there still is one.
func newest(ctx context.Context, q db.Querier, kind, resourceID string) (Job, error) {
	var all []Job
	if err := q.Select(ctx, &all,
		"SELECT * FROM operations WHERE resource_id = ? AND kind = ? ORDER BY id DESC LIMIT 1", resourceID, kind); err != nil {
		return Job{}, err
	}
	if len(all) == 0 {
		return Job{}, nil // it ended long ago
	}
	return all[0], operation.ReadJob(ctx, q, &all[0])
}
