package httpapi

import (
	"context"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func (a *API) apiBackup(ctx context.Context, b record.Backup) vmapi.Backup {
	c := caller.From(ctx)
	out := vmapi.Backup{
		Id: b.ID, VmId: b.VM, VmName: b.VMName, Tenant: some(b.Tenant), BackupType: vmapi.BackupType(b.Kind),
		SizeBytes: b.SizeBytes, DiskBytes: b.DiskBytes, LeftOut: orEmpty(b.LeftOut.V), ReadBytes: b.ReadBytes,
		Compressed: true,
		Created:    b.CreatedAt.Time, Finished: b.FinishedAt.Ptr(), Status: vmapi.BackupStatus(b.Status),
		Consistency: b.Consistency, RetentionDays: b.RetentionDays, ExpiresAt: b.ExpiresAt.Ptr(),
		ProtectedUntil: b.ProtectedTill.Ptr(), Verified: b.VerifiedAt.Ptr(), Policy: some(b.Policy),
		Description: b.Description, Error: c.Public(b.Error),
	}
	if b.Boot != "" {
		out.Boot = &vmapi.BackupBoot{
			Status: vmapi.BackupBootStatus(b.Boot), At: b.BootedAt.Time, Error: c.Public(b.BootError),
		}
	}
	if c.SeesAll() && b.Restorable() {
		out.StorageLocation = ref(a.backups.Location() + "#" + b.RepoID)
	}
	return out
}

// ListBackups lists backups.
func (a *API) ListBackups(
	ctx context.Context, req vmapi.ListBackupsRequestObject,
) (vmapi.ListBackupsResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]record.Backup, error) {
			return a.store.Backups(ctx, value(req.Params.Vm), before, limit)
		},
		func(b record.Backup) string { return b.ID },
		func(b record.Backup) vmapi.Backup { return a.apiBackup(ctx, b) })
	return vmapi.ListBackups200JSONResponse{Body: out, Headers: vmapi.ListBackups200ResponseHeaders{Link: link}}, err
}

// CreateBackup begins a backup.
func (a *API) CreateBackup(
	ctx context.Context, req vmapi.CreateBackupRequestObject,
) (vmapi.CreateBackupResponseObject, error) {
	r, err := a.store.Named(ctx, req.Body.VmName, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b, job, err := a.backups.Create(ctx, r.ID, backup.Request{
		Kind: string(orElse(req.Body.BackupType, vmapi.BackupTypeFull)), Description: value(req.Body.Description),
		RetentionDays: value(req.Body.RetentionDays),
	})
	if err != nil {
		return nil, err
	}
	out := a.apiBackup(ctx, b)
	out.JobId = &job
	return vmapi.CreateBackup201JSONResponse(out), nil
}

// GetBackup returns a backup.
func (a *API) GetBackup(ctx context.Context, req vmapi.GetBackupRequestObject) (vmapi.GetBackupResponseObject, error) {
	b, err := a.store.Backup(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return vmapi.GetBackup200JSONResponse(a.apiBackup(ctx, b)), nil
}

// DeleteBackup removes a backup.
func (a *API) DeleteBackup(
	ctx context.Context, req vmapi.DeleteBackupRequestObject,
) (vmapi.DeleteBackupResponseObject, error) {
	if err := a.backups.Delete(ctx, req.Id); err != nil {
		return nil, err
	}
	a.browser.Drop(req.Id)
	return vmapi.DeleteBackup204Response{}, nil
}

// ProtectBackup keeps a backup from being removed.
func (a *API) ProtectBackup(
	ctx context.Context, req vmapi.ProtectBackupRequestObject,
) (vmapi.ProtectBackupResponseObject, error) {
	b, err := a.backups.Protect(ctx, req.Id, req.Body.Until)
	if err != nil {
		return nil, err
	}
	return vmapi.ProtectBackup200JSONResponse(a.apiBackup(ctx, b)), nil
}

// GetBackupStats counts backups.
func (a *API) GetBackupStats(
	ctx context.Context, _ vmapi.GetBackupStatsRequestObject,
) (vmapi.GetBackupStatsResponseObject, error) {
	s, err := a.store.CountBackups(ctx)
	if err != nil {
		return nil, err
	}
	return vmapi.GetBackupStats200JSONResponse{
		TotalBackups: int(s.Total), TotalSizeBytes: s.Bytes, ByType: s.ByKind, ByVm: s.ByVM,
		OldestBackup: s.Oldest.Ptr(), NewestBackup: s.Newest.Ptr(),
	}, nil
}

var backupOperations = map[string]vmapi.BackupJobOperation{
	record.JobBackup: vmapi.BackupJobOperationBackup, record.JobRestore: vmapi.BackupJobOperationRestore,
}

func apiBackupJob(ctx context.Context, j record.Job) vmapi.BackupJob {
	return vmapi.BackupJob{
		Id: j.ID, BackupId: j.Backup, VmName: j.VMName, Operation: backupOperations[j.Kind],
		Status: vmapi.BackupJobStatus(jobStates.Of(&j.Operation)), Progress: float32(j.Progress()),
		Created: j.CreatedAt.Time, Finished: j.Job.FinishedAt.Ptr(), Error: caller.From(ctx).Public(j.Job.Error),
	}
}

// ListBackupJobs lists the jobs that make backups or restore them.
func (a *API) ListBackupJobs(
	ctx context.Context, req vmapi.ListBackupJobsRequestObject,
) (vmapi.ListBackupJobsResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]record.Job, error) { return a.store.BackupJobs(ctx, before, limit) },
		func(j record.Job) string { return j.ID },
		func(j record.Job) vmapi.BackupJob { return apiBackupJob(ctx, j) })
	return vmapi.ListBackupJobs200JSONResponse{Body: out, Headers: vmapi.ListBackupJobs200ResponseHeaders{Link: link}}, err
}

// RestoreBackup begins a restore.
func (a *API) RestoreBackup(
	ctx context.Context, req vmapi.RestoreBackupRequestObject,
) (vmapi.RestoreBackupResponseObject, error) {
	b := req.Body
	if value(b.RestoreState) {
		return nil, fault.InvalidField("restore_state", "must be false: backups hold no memory; take a full snapshot for that")
	}
	j, err := a.backups.Restore(ctx, backup.RestoreRequest{
		Backup: b.BackupId, Target: value(b.TargetVmName), Config: orElse(b.RestoreConfig, true),
		Disks: orElse(b.RestoreDisks, true),
	})
	if err != nil {
		return nil, err
	}
	return vmapi.RestoreBackup200JSONResponse(apiBackupJob(ctx, j)), nil
}

// BootBackup begins to boot a backup.
func (a *API) BootBackup(
	ctx context.Context, req vmapi.BootBackupRequestObject,
) (vmapi.BootBackupResponseObject, error) {
	j, err := a.backups.Boot(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return vmapi.BootBackup202JSONResponse(apiJob(ctx, j)), nil
}

// VerifyBackups begins to read the repository back.
func (a *API) VerifyBackups(
	ctx context.Context, _ vmapi.VerifyBackupsRequestObject,
) (vmapi.VerifyBackupsResponseObject, error) {
	j, err := a.backups.Verify(ctx)
	if err != nil {
		return nil, err
	}
	return vmapi.VerifyBackups202JSONResponse(apiJob(ctx, j)), nil
}

// ScanBackups takes in backups that are not known.
func (a *API) ScanBackups(
	ctx context.Context, _ vmapi.ScanBackupsRequestObject,
) (vmapi.ScanBackupsResponseObject, error) {
	found, err := a.backups.Scan(ctx)
	if err != nil {
		return nil, err
	}
	return vmapi.ScanBackups200JSONResponse{Found: found.Found, Added: found.Added, Damaged: found.Damaged}, nil
}

func apiPolicy(ctx context.Context, p record.Policy) vmapi.BackupPolicy {
	s := &p.Spec.V
	return vmapi.BackupPolicy{
		Id: p.ID, Name: p.Name, Tenant: some(p.Tenant), VmTags: s.Tags,
		ScheduleType: vmapi.BackupPolicyScheduleType(s.Schedule), Time: s.Time, Timezone: s.Timezone, Weekday: s.Weekday,
		Day: s.Day, BackupType: vmapi.BackupType(s.Kind), RetentionDays: s.RetentionDays, KeepLast: s.KeepLast,
		KeepDaily: s.KeepDaily, KeepWeekly: s.KeepWeekly, KeepMonthly: s.KeepMonthly, Enabled: p.Enabled,
		Created: p.CreatedAt.Time, NextRun: p.NextRunAt.Ptr(), LastRun: p.LastRunAt.Ptr(),
		LastResult: caller.From(ctx).Public(p.LastResult),
	}
}

// policyOf translates and checks a policy.
func (a *API) policyOf(ctx context.Context, b *vmapi.BackupPolicySpec) (record.Policy, error) {
	c := caller.From(ctx)
	p := record.Policy{Name: b.Name, Tenant: c.Tenant, Enabled: orElse(b.Enabled, true)}
	if b.Tenant != nil && *b.Tenant != c.Tenant {
		if !c.SeesAll() {
			return p, errTenant
		}
		if err := record.CheckTenant("tenant", *b.Tenant); err != nil {
			return p, err
		}
		p.Tenant = *b.Tenant
	}
	p.Spec.V = record.PolicySpec{
		Tags: distinct(b.VmTags), Schedule: string(b.ScheduleType), Time: orElse(b.Time, "02:00"),
		Timezone: orElse(b.Timezone, "UTC"), Weekday: string(orElse(b.Weekday, vmapi.BackupPolicySpecWeekdaySunday)), Day: orElse(b.Day, 1),
		Kind: string(orElse(b.BackupType, vmapi.BackupTypeIncremental)), RetentionDays: value(b.RetentionDays),
		KeepLast: value(b.KeepLast), KeepDaily: value(b.KeepDaily), KeepWeekly: value(b.KeepWeekly),
		KeepMonthly: value(b.KeepMonthly),
	}
	return p, a.backups.CheckPolicy(&p)
}

// ListBackupPolicies lists policies.
func (a *API) ListBackupPolicies(
	ctx context.Context, _ vmapi.ListBackupPoliciesRequestObject,
) (vmapi.ListBackupPoliciesResponseObject, error) {
	all, err := a.store.Policies(ctx)
	if err != nil {
		return nil, err
	}
	return vmapi.ListBackupPolicies200JSONResponse(
		orEmpty(list.Each(all, func(p record.Policy) vmapi.BackupPolicy { return apiPolicy(ctx, p) })),
	), nil
}

// CreateBackupPolicy adds a policy.
func (a *API) CreateBackupPolicy(
	ctx context.Context, req vmapi.CreateBackupPolicyRequestObject,
) (vmapi.CreateBackupPolicyResponseObject, error) {
	p, err := a.policyOf(ctx, req.Body)
	if err != nil {
		return nil, err
	}
	if p, err = a.store.AddPolicy(ctx, p); err != nil {
		return nil, err
	}
	return vmapi.CreateBackupPolicy201JSONResponse(apiPolicy(ctx, p)), nil
}

// UpdateBackupPolicy replaces a policy.
func (a *API) UpdateBackupPolicy(
	ctx context.Context, req vmapi.UpdateBackupPolicyRequestObject,
) (vmapi.UpdateBackupPolicyResponseObject, error) {
	p, err := a.policyOf(ctx, req.Body)
	if err != nil {
		return nil, err
	}
	if p, err = a.store.ReplacePolicy(ctx, req.Policy, p); err != nil {
		return nil, err
	}
	return vmapi.UpdateBackupPolicy200JSONResponse(apiPolicy(ctx, p)), nil
}

// DeleteBackupPolicy removes a policy.
func (a *API) DeleteBackupPolicy(
	ctx context.Context, req vmapi.DeleteBackupPolicyRequestObject,
) (vmapi.DeleteBackupPolicyResponseObject, error) {
	return vmapi.DeleteBackupPolicy204Response{}, a.store.RemovePolicy(ctx, req.Policy)
}
