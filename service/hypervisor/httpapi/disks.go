package httpapi

import (
	"context"
	"io"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

func apiSnapshot(s record.Snapshot) hypervisorapi.Snapshot {
	return hypervisorapi.Snapshot{
		Name: s.Name, Kind: hypervisorapi.SnapshotKind(s.Kind), Description: s.Description,
		MemoryBytes: s.MemoryBytes, CreatedAt: s.CreatedAt.Time,
	}
}

// ListSnapshots lists a VM's snapshots.
func (a *API) ListSnapshots(
	ctx context.Context, req hypervisorapi.ListSnapshotsRequestObject,
) (hypervisorapi.ListSnapshotsResponseObject, error) {
	all, err := a.store.Snapshots(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	out := make(hypervisorapi.ListSnapshots200JSONResponse, len(all))
	for i, one := range all {
		out[i] = apiSnapshot(one)
	}
	return out, nil
}

// CreateSnapshot creates a snapshot.
func (a *API) CreateSnapshot(
	ctx context.Context, req hypervisorapi.CreateSnapshotRequestObject,
) (hypervisorapi.CreateSnapshotResponseObject, error) {
	b := req.Body
	snap, err := a.disk.CreateSnapshot(ctx, req.Id, record.Snapshot{
		Name: b.Name, Kind: string(orElse(b.Kind, record.SnapshotDisk)), Description: value(b.Description),
	})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CreateSnapshot201JSONResponse(apiSnapshot(snap)), nil
}

// DeleteSnapshot deletes a snapshot.
func (a *API) DeleteSnapshot(
	ctx context.Context, req hypervisorapi.DeleteSnapshotRequestObject,
) (hypervisorapi.DeleteSnapshotResponseObject, error) {
	return hypervisorapi.DeleteSnapshot204Response{}, a.disk.DeleteSnapshot(ctx, req.Id, req.Snapshot)
}

// RevertSnapshot reverts a VM to a snapshot.
func (a *API) RevertSnapshot(
	ctx context.Context, req hypervisorapi.RevertSnapshotRequestObject,
) (hypervisorapi.RevertSnapshotResponseObject, error) {
	r, err := a.disk.RevertSnapshot(ctx, req.Id, req.Snapshot)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.RevertSnapshot200JSONResponse(a.apiVM(r)), nil
}

// ResizeVM grows a VM's disk.
func (a *API) ResizeVM(
	ctx context.Context, req hypervisorapi.ResizeVMRequestObject,
) (hypervisorapi.ResizeVMResponseObject, error) {
	r, err := a.disk.Resize(ctx, req.Id, req.Body.DiskGib)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ResizeVM200JSONResponse(a.apiVM(r)), nil
}

// CloneVM starts a clone.
func (a *API) CloneVM(
	ctx context.Context, req hypervisorapi.CloneVMRequestObject,
) (hypervisorapi.CloneVMResponseObject, error) {
	op, err := a.operate.Once(ctx, value(req.Params.IdempotencyKey), []any{"CloneVM", req.Id, req.Body},
		func(ctx context.Context) (record.Operation, error) {
			return a.disk.Clone(ctx, req.Id, req.Body.Name, value(req.Body.Linked))
		})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CloneVM202JSONResponse(apiOperation(op)), nil
}

func apiBackup(b record.Backup) hypervisorapi.Backup {
	return hypervisorapi.Backup{
		Id: b.ID, VmId: b.VM, VmName: b.VMName, Tenant: b.Tenant, Kind: hypervisorapi.BackupKind(b.Kind),
		ParentId: some(b.Parent), Description: b.Description, CreatedAt: b.CreatedAt.Time, SizeBytes: b.Size,
		VirtualSizeBytes: b.VirtualSize, Sha256: b.SHA256, LeftOut: append([]string{}, b.LeftOut.V...),
	}
}

// CreateBackup starts a backup.
func (a *API) CreateBackup(
	ctx context.Context, req hypervisorapi.CreateBackupRequestObject,
) (hypervisorapi.CreateBackupResponseObject, error) {
	kind, description := record.BackupFull, ""
	if b := req.Body; b != nil {
		kind, description = string(orElse(b.Kind, record.BackupFull)), value(b.Description)
	}
	op, err := a.operate.Once(ctx, value(req.Params.IdempotencyKey), []any{"CreateBackup", req.Id, kind, description},
		func(ctx context.Context) (record.Operation, error) {
			return a.disk.CreateBackup(ctx, req.Id, kind, description)
		})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CreateBackup202JSONResponse(apiOperation(op)), nil
}

// ListBackups lists backups.
func (a *API) ListBackups(
	ctx context.Context, req hypervisorapi.ListBackupsRequestObject,
) (hypervisorapi.ListBackupsResponseObject, error) {
	backups := func(before string, limit int) ([]record.Backup, error) {
		return a.store.Backups(ctx, value(req.Params.Vm), before, limit)
	}
	id := func(b record.Backup) string { return b.ID }
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100, backups, id, apiBackup)
	return hypervisorapi.ListBackups200JSONResponse{
		Body: out, Headers: hypervisorapi.ListBackups200ResponseHeaders{Link: link},
	}, err
}

// GetBackup returns a backup.
func (a *API) GetBackup(
	ctx context.Context, req hypervisorapi.GetBackupRequestObject,
) (hypervisorapi.GetBackupResponseObject, error) {
	b, err := a.store.Backup(ctx, req.Backup)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetBackup200JSONResponse(apiBackup(b)), nil
}

// DeleteBackup deletes a backup.
func (a *API) DeleteBackup(
	ctx context.Context, req hypervisorapi.DeleteBackupRequestObject,
) (hypervisorapi.DeleteBackupResponseObject, error) {
	return hypervisorapi.DeleteBackup204Response{}, a.disk.DeleteBackup(ctx, req.Backup)
}

// RestoreBackup starts a restore.
func (a *API) RestoreBackup(
	ctx context.Context, req hypervisorapi.RestoreBackupRequestObject,
) (hypervisorapi.RestoreBackupResponseObject, error) {
	op, err := a.operate.Once(ctx, value(req.Params.IdempotencyKey), []any{"RestoreBackup", req.Backup, req.Body},
		func(ctx context.Context) (record.Operation, error) {
			return a.disk.RestoreBackup(ctx, req.Backup, value(req.Body.Name), value(req.Body.Vm))
		})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.RestoreBackup202JSONResponse(apiOperation(op)), nil
}

// download is a response that sends a file and closes it.
type download struct {
	file io.ReadCloser
	name string
}

func (d download) visit(w http.ResponseWriter) error {
	defer func() { _ = d.file.Close() }() // it was only read
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
	if sized, ok := d.file.(io.Seeker); ok {
		if size, err := sized.Seek(0, io.SeekEnd); err == nil {
			setLength(w, size)
			if _, err := sized.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
	}
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, d.file); err != nil {
		panic(http.ErrAbortHandler) // so that a partial file does not look complete
	}
	return nil
}

// VisitExportBackupResponse implements the contract's answer.
func (d download) VisitExportBackupResponse(w http.ResponseWriter) error { return d.visit(w) }

// VisitExportImageResponse implements the contract's answer.
func (d download) VisitExportImageResponse(w http.ResponseWriter) error { return d.visit(w) }

// ExportBackup sends a backup as one file.
func (a *API) ExportBackup(
	ctx context.Context, req hypervisorapi.ExportBackupRequestObject,
) (hypervisorapi.ExportBackupResponseObject, error) {
	file, err := a.disk.ExportBackup(ctx, req.Backup)
	if err != nil {
		return nil, err
	}
	return download{file, req.Backup + ".qcow2"}, nil
}
