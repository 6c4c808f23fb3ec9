package httpapi

import (
	"cmp"
	"context"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

func apiBackup(b record.Backup) storageapi.Backup {
	out := storageapi.Backup{
		Id: b.ID, TenantId: b.Tenant, VolumeId: b.VolumeID, VolumeName: b.VolumeName, BucketId: b.BucketID, ObjectKey: b.Key,
		Mode: storageapi.BackupMode(b.Mode), State: storageapi.BackupState(b.State), Incremental: b.Incremental,
		FullReason: b.FullReason, Parent: b.Parent, SizeBytes: b.Size, StoredBytes: b.Stored, Checksum: b.Checksum,
		Encrypted: b.KeyRef != "", Consistency: storageapi.Consistency(cmp.Or(b.Consistency, driver.NotConsistent)),
		Error: b.LastError, CreatedAt: b.CreatedAt.Time, FinishedAt: b.FinishedAt.Ptr(), ExpiresAt: b.ExpiresAt.Ptr(),
	}
	if b.KeyRef != "" {
		out.KeyRef = &b.KeyRef
	}
	if b.VerifiedBy != "" {
		out.Verification = &storageapi.BackupVerification{
			Method: storageapi.BackupVerifyMethod(b.VerifiedBy), Ok: b.VerifiedOK, Detail: b.VerifiedWhat,
			At: b.VerifiedAt.Time, JobId: b.VerifiedJob,
		}
	}
	return out
}

func (a *API) listBackups(
	ctx context.Context, f record.BackupFilter, limit *int, cursor *string,
) ([]storageapi.Backup, *string, error) {
	return list.Rows(ctx, limit, cursor, 100,
		func(from string, limit int) ([]record.Backup, error) {
			f.From = from
			return a.store.Backups(ctx, f, limit)
		},
		func(b record.Backup) string { return b.ID }, apiBackup)
}

// ListBackups lists backups.
func (a *API) ListBackups(
	ctx context.Context, req storageapi.ListBackupsRequestObject,
) (storageapi.ListBackupsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.BackupFilter{
		Tenant: tenant, Volume: value(q.VolumeId), Bucket: value(q.BucketId), State: string(value(q.State)),
	}
	out, link, err := a.listBackups(ctx, f, q.Limit, q.Cursor)
	return storageapi.ListBackups200JSONResponse{
		Body: out, Headers: storageapi.ListBackups200ResponseHeaders{Link: link},
	}, err
}

// ListOrphans lists the backups whose volume is gone.
func (a *API) ListOrphans(
	ctx context.Context, req storageapi.ListOrphansRequestObject,
) (storageapi.ListOrphansResponseObject, error) {
	tenant, err := tenantFilter(ctx, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.BackupFilter{Tenant: tenant, Orphans: true}
	out, link, err := a.listBackups(ctx, f, req.Params.Limit, req.Params.Cursor)
	return storageapi.ListOrphans200JSONResponse{
		Body: out, Headers: storageapi.ListOrphans200ResponseHeaders{Link: link},
	}, err
}

// GetBackup returns one backup.
func (a *API) GetBackup(
	ctx context.Context, req storageapi.GetBackupRequestObject,
) (storageapi.GetBackupResponseObject, error) {
	b, err := a.store.Backup(ctx, req.Id)
	return storageapi.GetBackup200JSONResponse(apiBackup(b)), err
}

// acceptedBackup answers with a job about a backup, which the job may have removed already.
func (a *API) acceptedBackup(ctx context.Context, j *record.Job) (storageapi.BackupAccepted, error) {
	out := storageapi.BackupAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.BackupRef{BackupId: j.ResourceID},
	}
	b, err := a.store.Backup(ctx, j.ResourceID)
	if fault.Is(err, fault.NotFound) {
		return out, nil
	}
	out.Resource.BucketId, out.Resource.ObjectKey = b.BucketID, b.Key
	return out, err
}

// CreateBackup begins to back up a volume.
func (a *API) CreateBackup(
	ctx context.Context, req storageapi.CreateBackupRequestObject,
) (storageapi.CreateBackupResponseObject, error) {
	b := req.Body
	spec := record.BackupRequest{
		Volume: b.VolumeId, Bucket: b.BucketId, Mode: string(orElse(b.Mode, record.ModeManifest)), Whole: value(b.Full),
		KeyRef: value(b.KeyRef), Keep: int64(value(b.Keep)), MaxAge: time.Duration(value(b.MaxAgeSecs)) * time.Second,
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "CreateBackup", b, func(ctx context.Context) (record.Job, error) {
		return begun(a.backups.Create(ctx, spec))
	})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedBackup(ctx, &j)
	return storageapi.CreateBackup202JSONResponse(out), err
}

// DeleteBackup begins to remove a backup.
func (a *API) DeleteBackup(
	ctx context.Context, req storageapi.DeleteBackupRequestObject,
) (storageapi.DeleteBackupResponseObject, error) {
	j, err := a.once(ctx, req.Params.IdempotencyKey, "DeleteBackup "+req.Id, nil,
		func(ctx context.Context) (record.Job, error) { return begun(a.backups.Delete(ctx, req.Id)) })
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedBackup(ctx, &j)
	return storageapi.DeleteBackup202JSONResponse(out), err
}

// VerifyBackup begins to check a backup.
func (a *API) VerifyBackup(
	ctx context.Context, req storageapi.VerifyBackupRequestObject,
) (storageapi.VerifyBackupResponseObject, error) {
	method := record.MethodStored
	if req.Body != nil {
		method = string(orElse(req.Body.Method, record.MethodStored))
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "VerifyBackup "+req.Id, method,
		func(ctx context.Context) (record.Job, error) { return begun(a.backups.Verify(ctx, req.Id, method)) })
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedBackup(ctx, &j)
	return storageapi.VerifyBackup202JSONResponse(out), err
}

// RestoreBackup begins to make a volume as a backup is.
func (a *API) RestoreBackup(
	ctx context.Context, req storageapi.RestoreBackupRequestObject,
) (storageapi.RestoreBackupResponseObject, error) {
	b := req.Body
	if b == nil {
		b = &storageapi.BackupRestoreSpec{}
	}
	if value(b.InPlace) {
		return a.restoreInPlace(ctx, &req, b)
	}
	if b.KeyRef != nil {
		return nil, fault.InvalidField("key_ref", "the backup says which key it is encrypted with; give that entry the key")
	}
	if err := checkNoClaims([]string{"namespace", "storage_class"}, b.Namespace, b.StorageClass); err != nil {
		return nil, err
	}
	spec := record.RestoreRequest{Name: value(b.Name), Policy: value(b.Policy), Size: value(b.SizeBytes)}
	if spec.Name == "" {
		spec.NameFrom = "restore-%s-" + a.cfg.Now().UTC().Format(timestamp)
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "RestoreBackup "+req.Id, b,
		func(ctx context.Context) (record.Job, error) { return begun(a.backups.Restore(ctx, req.Id, spec)) })
	return storageapi.RestoreBackup202JSONResponse(acceptedCopy(&j, storageapi.CopyRefModeRestore)), err
}

// restoreInPlace begins to put a volume back to a backup.
func (a *API) restoreInPlace(
	ctx context.Context, req *storageapi.RestoreBackupRequestObject, b *storageapi.BackupRestoreSpec,
) (storageapi.RestoreBackupResponseObject, error) {
	if err := a.admit(ctx, restoredInPlace, req.Id); err != nil {
		return nil, err
	}
	if !value(b.Confirm) {
		return nil, fault.InvalidField("confirm", "must be true: what was written to the volume since the backup is lost")
	}
	for field, given := range map[string]bool{
		"name": b.Name != nil, "policy": b.Policy != nil, "size_bytes": b.SizeBytes != nil, "key_ref": b.KeyRef != nil,
		"namespace": b.Namespace != nil, "storage_class": b.StorageClass != nil,
	} {
		if given {
			return nil, fault.InvalidField(field, "is for new volumes, not for in_place")
		}
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "RestoreBackup "+req.Id, b,
		func(ctx context.Context) (record.Job, error) { return begun(a.backups.RestoreInPlace(ctx, req.Id)) })
	return storageapi.RestoreBackup202JSONResponse(acceptedCopy(&j, storageapi.CopyRefModeRestore)), err
}

// ImportBackups begins to take in the backups of a bucket that are not known.
func (a *API) ImportBackups(
	ctx context.Context, req storageapi.ImportBackupsRequestObject,
) (storageapi.ImportBackupsResponseObject, error) {
	args := record.ImportArgs{Bucket: req.Id}
	if req.Body != nil {
		args.KeyRef, args.Tenant = value(req.Body.KeyRef), req.Body.TenantId
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "ImportBackups "+req.Id, args,
		func(ctx context.Context) (record.Job, error) { return begun(a.backups.Import(ctx, args)) })
	return storageapi.ImportBackups202JSONResponse(acceptedBucket(&j)), err
}
