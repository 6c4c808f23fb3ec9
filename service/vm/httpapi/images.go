package httpapi

import (
	"context"
	"strings"

	"github.com/google/uuid"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/image"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func (a *API) apiImage(ctx context.Context, i record.Image) (vmapi.Image, error) {
	c, s := caller.From(ctx), &i.Spec.V
	id, err := uuid.Parse(i.ID)
	if err != nil {
		return vmapi.Image{}, err
	}
	out := vmapi.Image{
		Id: id, Name: i.Name, Kind: vmapi.ImageKind(i.Kind), Distribution: s.Distribution, Version: s.Version,
		State: vmapi.ImageState(i.State), Image: i.Catalog, Error: some(c.Public(i.Error)), Started: i.StartedAt.Ptr(),
		Completed: i.CompletedAt.Ptr(), Created: i.CreatedAt.Time, SizeBytes: i.Size, VirtualSizeBytes: i.VirtualSize,
		Format: s.Format, Checksum: i.SHA256, Tenant: some(i.Tenant), Shared: i.Shared, JobId: some(i.Job),
		Packages: orEmpty(s.Packages), Autologin: s.Autologin, Agent: s.Agent, CloudInit: s.CloudInit,
	}
	if !c.Sees(i.Tenant) {
		out.JobId = nil // it is not in the caller's scope
	}
	if c.SeesAll() && i.State == record.ImageCompleted {
		out.OutputPath = ref(a.driver.ImageURL(i.Catalog))
	}
	return out, nil
}

func (a *API) listImages(
	ctx context.Context, offset, limit *int, f record.ImageFilter,
) (out vmapi.ImageList, err error) {
	const usual = 200
	n := min(orElse(limit, usual), list.MaxRows)
	if f.Offset, err = list.ParseOffset(offset, &n, usual); err != nil {
		return out, err
	}
	rows, total, err := a.store.Images(ctx, f)
	if err != nil {
		return out, err
	}
	out = vmapi.ImageList{Items: []vmapi.Image{}, Total: total, Offset: f.Offset.Offset, Limit: f.Limit}
	for _, r := range rows {
		i, err := a.apiImage(ctx, r)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, i)
	}
	return out, nil
}

// ListImages lists images.
func (a *API) ListImages(
	ctx context.Context, req vmapi.ListImagesRequestObject,
) (vmapi.ListImagesResponseObject, error) {
	p := req.Params
	out, err := a.listImages(ctx, p.Offset, p.Limit, record.ImageFilter{
		Tenant: p.Tenant, State: record.ImageState(value(p.State)), Text: value(p.Q),
	})
	return vmapi.ListImages200JSONResponse(out), err
}

// ListISOImages lists images that are installation media.
func (a *API) ListISOImages(
	ctx context.Context, req vmapi.ListISOImagesRequestObject,
) (vmapi.ListISOImagesResponseObject, error) {
	p := req.Params
	out, err := a.listImages(ctx, p.Offset, p.Limit, record.ImageFilter{Tenant: p.Tenant, Kind: record.ImageISO})
	return vmapi.ListISOImages200JSONResponse(out), err
}

// GetImage returns an image.
func (a *API) GetImage(ctx context.Context, req vmapi.GetImageRequestObject) (vmapi.GetImageResponseObject, error) {
	i, err := a.store.Image(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	out, err := a.apiImage(ctx, i)
	return vmapi.GetImage200JSONResponse(out), err
}

// BuildImage begins to build an image.
func (a *API) BuildImage(
	ctx context.Context, req vmapi.BuildImageRequestObject,
) (vmapi.BuildImageResponseObject, error) {
	b := req.Body
	i, err := a.images.Build(ctx, image.Request{Name: b.Name, Tenant: value(b.Tenant), Spec: record.ImageSpec{
		Distribution: string(b.Distribution), Version: value(b.Version), Packages: distinct(value(b.Packages)),
		Autologin: value(b.Autologin), CloudInit: value(b.CloudInit),
	}})
	if err != nil {
		return nil, err
	}
	out, err := a.apiImage(ctx, i)
	return vmapi.BuildImage201JSONResponse(out), err
}

// ListImageDownloads lists what can be downloaded.
func (a *API) ListImageDownloads(
	context.Context, vmapi.ListImageDownloadsRequestObject,
) (vmapi.ListImageDownloadsResponseObject, error) {
	return vmapi.ListImageDownloads200JSONResponse(list.Each(a.images.Sources(), func(s image.Source) vmapi.ImageDownload {
		return vmapi.ImageDownload{
			Distribution: vmapi.Distribution(s.Distribution), Version: s.Version, Format: vmapi.ImageDownloadFormat(s.Format),
			Title: s.Title, Url: s.URL(s.File),
		}
	})), nil
}

// DownloadImage begins to download an image.
func (a *API) DownloadImage(
	ctx context.Context, req vmapi.DownloadImageRequestObject,
) (vmapi.DownloadImageResponseObject, error) {
	b := req.Body
	i, err := a.images.Download(ctx, image.Request{Name: value(b.Name), Tenant: value(b.Tenant), Spec: record.ImageSpec{
		Distribution: string(b.Distribution), Version: b.Version, Format: string(orElse(b.Format, "qcow2")),
	}})
	if err != nil {
		return nil, err
	}
	out, err := a.apiImage(ctx, i)
	return vmapi.DownloadImage201JSONResponse(out), err
}

// ImportImage begins to take in a file of the host.
func (a *API) ImportImage(
	ctx context.Context, req vmapi.ImportImageRequestObject,
) (vmapi.ImportImageResponseObject, error) {
	b := req.Body
	i, err := a.images.Import(ctx, image.Request{Name: b.Name, Tenant: value(b.Tenant), Spec: record.ImageSpec{
		Path: b.Path, Format: string(orElse(b.Format, "qcow2")),
	}})
	if err != nil {
		return nil, err
	}
	out, err := a.apiImage(ctx, i)
	return vmapi.ImportImage201JSONResponse(out), err
}

// ResizeImage makes the disk of an image larger.
func (a *API) ResizeImage(
	ctx context.Context, req vmapi.ResizeImageRequestObject,
) (vmapi.ResizeImageResponseObject, error) {
	i, err := a.images.Resize(ctx, req.Id, int64(req.Body.SizeGb)<<30)
	if err != nil {
		return nil, err
	}
	out, err := a.apiImage(ctx, i)
	return vmapi.ResizeImage200JSONResponse(out), err
}

// DeleteImage removes an image.
func (a *API) DeleteImage(
	ctx context.Context, req vmapi.DeleteImageRequestObject,
) (vmapi.DeleteImageResponseObject, error) {
	return vmapi.DeleteImage204Response{}, a.images.Delete(ctx, req.Id)
}

// GetImageLog returns a part of what the tools print that make an image.
func (a *API) GetImageLog(
	ctx context.Context, req vmapi.GetImageLogRequestObject,
) (vmapi.GetImageLogResponseObject, error) {
	i, err := a.store.Image(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	l, err := a.store.ReadImageLog(ctx, i.ID, value(req.Params.Offset))
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for line := range strings.Lines(l.Text) {
		text.WriteString(caller.From(ctx).Public(line))
	}
	return vmapi.GetImageLog200JSONResponse{
		Text: text.String(), Offset: l.Offset, Next: l.Next, Complete: i.State.Ended() && !l.More,
	}, nil
}
