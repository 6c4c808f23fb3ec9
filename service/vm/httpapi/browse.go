package httpapi

import (
	"context"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// OpenBackupVolumes opens a backup, and returns its volumes.
func (a *API) OpenBackupVolumes(
	ctx context.Context, req vmapi.OpenBackupVolumesRequestObject,
) (vmapi.OpenBackupVolumesResponseObject, error) {
	all, err := a.browser.Volumes(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	out := vmapi.OpenBackupVolumes200JSONResponse{}
	for _, v := range all {
		out = append(out, vmapi.BackupVolume{Name: v.Name, SizeBytes: v.Size, Kind: v.Kind, Label: v.Label, Error: v.Error})
	}
	return out, nil
}

// CloseBackupVolumes closes a backup.
func (a *API) CloseBackupVolumes(
	ctx context.Context, req vmapi.CloseBackupVolumesRequestObject,
) (vmapi.CloseBackupVolumesResponseObject, error) {
	return vmapi.CloseBackupVolumes204Response{}, a.browser.Close(ctx, req.Id)
}

// ListBackupFiles lists a folder of a backup.
func (a *API) ListBackupFiles(
	ctx context.Context, req vmapi.ListBackupFilesRequestObject,
) (vmapi.ListBackupFilesResponseObject, error) {
	p := req.Params
	page, err := a.browser.Files(ctx, req.Id, p.Volume, orElse(p.Path, "/"), value(p.After))
	if err != nil {
		return nil, err
	}
	out := vmapi.ListBackupFiles200JSONResponse{Entries: []vmapi.BackupFile{}, More: page.More, Skipped: page.Skipped}
	for _, e := range page.Entries {
		out.Entries = append(out.Entries, vmapi.BackupFile{
			Name: e.Name, Type: vmapi.BackupFileType(e.Type), SizeBytes: e.Size, Mode: e.Mode, Uid: e.UID, Gid: e.GID,
			Modified: e.Modified, Target: some(e.Target),
		})
	}
	return out, nil
}

// backupFile answers with a file of a backup.
func (a *API) backupFile(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	query := r.URL.Query()
	name := query.Get("path")
	f, err := a.browser.Open(r.Context(), r.PathValue("id"), query.Get("volume"), name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	httpserve.Lasting(w, r)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(f.Size, 10))
	saveAs := map[string]string{"filename": path.Base(name)}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", saveAs))
	w.WriteHeader(http.StatusOK)
	if n, err := io.Copy(w, io.LimitReader(f, f.Size)); err != nil || n != f.Size {
		panic(http.ErrAbortHandler) // the caller must not take a part for the whole
	}
	return nil
}
