package httpapi

import (
	"context"
	"net/http"
	"regexp"
	"strconv"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

func apiImage(i record.Image) hypervisorapi.Image {
	return hypervisorapi.Image{
		Name: i.Name, Kind: hypervisorapi.ImageKind(i.Kind), Source: i.Source, Sha256: i.SHA256, SizeBytes: i.Size,
		VirtualSizeBytes: i.VirtualSize, SignatureValid: i.SignatureValid, SignedAt: i.SignedAt.Ptr(),
		ReadOnly: i.ReadOnly, Locked: i.Locked, AddedAt: i.AddedAt.Time,
	}
}

// ListImages lists the catalog.
func (a *API) ListImages(
	ctx context.Context, req hypervisorapi.ListImagesRequestObject,
) (hypervisorapi.ListImagesResponseObject, error) {
	p := req.Params
	var order list.Order
	read := func(after string, limit int) (all []record.Image, err error) {
		all, order, err = a.store.Images(ctx, record.ImageFilter{
			Text: value(p.Q), Sort: string(value(p.Sort)), After: after, Limit: limit,
		})
		return all, err
	}
	key := func(i record.Image) string { return record.ImageKey(order, i) }
	out, link, err := list.Rows(ctx, p.Limit, p.Cursor, 100, read, key, apiImage)
	return hypervisorapi.ListImages200JSONResponse{
		Body: out, Headers: hypervisorapi.ListImages200ResponseHeaders{Link: link},
	}, err
}

// GetImage returns an image.
func (a *API) GetImage(
	ctx context.Context, req hypervisorapi.GetImageRequestObject,
) (hypervisorapi.GetImageResponseObject, error) {
	i, err := a.store.Image(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetImage200JSONResponse(apiImage(i)), nil
}

// AddImage starts the import of an image from the host's files.
func (a *API) AddImage(
	ctx context.Context, req hypervisorapi.AddImageRequestObject,
) (hypervisorapi.AddImageResponseObject, error) {
	b := req.Body
	op, err := a.operate.Once(ctx, value(req.Params.IdempotencyKey), []any{"AddImage", b},
		func(ctx context.Context) (record.Operation, error) {
			return a.catalog.Add(ctx, catalog.Addition{
				Name: b.Name, Path: value(b.Path), Kernel: value(b.Kernel), Initrd: value(b.Initrd),
				KernelArgs: value(b.KernelArgs), Signature: value(b.Signature),
			})
		})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.AddImage202JSONResponse(apiOperation(op)), nil
}

// BuildDemoImage starts building the demo guest.
func (a *API) BuildDemoImage(
	ctx context.Context, _ hypervisorapi.BuildDemoImageRequestObject,
) (hypervisorapi.BuildDemoImageResponseObject, error) {
	op, err := a.catalog.Add(ctx, catalog.Addition{Name: catalog.DemoImage, Demo: true})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.BuildDemoImage202JSONResponse(apiOperation(op)), nil
}

var validImageName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.:-]{0,126}[A-Za-z0-9])?$`)

// UploadImage stores the image in the request body and starts its import.
func (a *API) UploadImage(
	ctx context.Context, req hypervisorapi.UploadImageRequestObject,
) (hypervisorapi.UploadImageResponseObject, error) {
	if !validImageName.MatchString(req.Name) {
		return nil, fault.InvalidField("name", "must be 1 to 128 letters, digits, dots, colons, dashes and underscores")
	}
	if len(value(req.Params.Signature)) > 4096 {
		return nil, fault.InvalidField("signature", "is longer than 4096 bytes")
	}
	op, err := a.catalog.Upload(ctx, req.Name, value(req.Params.Signature), req.Body)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.UploadImage202JSONResponse(apiOperation(op)), nil
}

// RemoveImage removes an image.
func (a *API) RemoveImage(
	ctx context.Context, req hypervisorapi.RemoveImageRequestObject,
) (hypervisorapi.RemoveImageResponseObject, error) {
	return hypervisorapi.RemoveImage204Response{}, a.store.RemoveImage(ctx, req.Name)
}

// CloneImage adds a second name for an image.
func (a *API) CloneImage(
	ctx context.Context, req hypervisorapi.CloneImageRequestObject,
) (hypervisorapi.CloneImageResponseObject, error) {
	i, err := a.store.CloneImage(ctx, req.Name, req.Body.Name)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CloneImage201JSONResponse(apiImage(i)), nil
}

// RenameImage renames an image.
func (a *API) RenameImage(
	ctx context.Context, req hypervisorapi.RenameImageRequestObject,
) (hypervisorapi.RenameImageResponseObject, error) {
	i, err := a.store.RenameImage(ctx, req.Name, req.Body.Name)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.RenameImage200JSONResponse(apiImage(i)), nil
}

// SetImageReadOnly protects an image from changes, or unprotects it.
func (a *API) SetImageReadOnly(
	ctx context.Context, req hypervisorapi.SetImageReadOnlyRequestObject,
) (hypervisorapi.SetImageReadOnlyResponseObject, error) {
	i, err := a.store.SetReadOnly(ctx, req.Name, req.Body.ReadOnly)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.SetImageReadOnly200JSONResponse(apiImage(i)), nil
}

// LockImage prevents creating VMs from an image.
func (a *API) LockImage(
	ctx context.Context, req hypervisorapi.LockImageRequestObject,
) (hypervisorapi.LockImageResponseObject, error) {
	i, err := a.store.SetLocked(ctx, req.Name, true)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.LockImage200JSONResponse(apiImage(i)), nil
}

// UnlockImage undoes LockImage.
func (a *API) UnlockImage(
	ctx context.Context, req hypervisorapi.UnlockImageRequestObject,
) (hypervisorapi.UnlockImageResponseObject, error) {
	i, err := a.store.SetLocked(ctx, req.Name, false)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.UnlockImage200JSONResponse(apiImage(i)), nil
}

// CleanImages removes unused contents.
func (a *API) CleanImages(
	ctx context.Context, _ hypervisorapi.CleanImagesRequestObject,
) (hypervisorapi.CleanImagesResponseObject, error) {
	files, bytes, err := a.catalog.Clean(ctx)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CleanImages200JSONResponse{Files: files, Bytes: bytes}, nil
}

// ExportImage sends the disk of an image.
func (a *API) ExportImage(
	ctx context.Context, req hypervisorapi.ExportImageRequestObject,
) (hypervisorapi.ExportImageResponseObject, error) {
	file, err := a.catalog.Export(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	return download{file, req.Name + ".qcow2"}, nil
}

func setLength(w http.ResponseWriter, n int64) {
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
}

// ResizeImage starts making the disk of an image larger.
func (a *API) ResizeImage(
	ctx context.Context, req hypervisorapi.ResizeImageRequestObject,
) (hypervisorapi.ResizeImageResponseObject, error) {
	op, err := a.catalog.Resize(ctx, req.Name, req.Body.SizeBytes)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ResizeImage202JSONResponse(apiOperation(op)), nil
}
