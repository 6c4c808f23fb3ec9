package httpapi

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/template"
)

func (a *API) apiTemplate(ctx context.Context, t *record.Template) (hypervisorapi.Template, error) {
	why, err := a.templates.Stale(ctx, t)
	traits := &t.Traits.V
	return hypervisorapi.Template{
		Id: t.ID, Name: t.Name, Image: t.Image, Sha256: t.Content, Vcpus: t.VCPUs, MemoryMib: t.MemoryMiB,
		Network: t.Network, DiskBytes: t.DiskBytes, BackendVersion: traits.Version, Machine: traits.Machine,
		Cpu: traits.CPU, Accelerator: traits.Accelerator, AgentVersion: t.AgentVersion, SizeBytes: t.Size,
		CreatedAt: t.CreatedAt.Time, Usable: why == "", Detail: why,
	}, err
}

// ListTemplates lists the templates.
func (a *API) ListTemplates(
	ctx context.Context, req hypervisorapi.ListTemplatesRequestObject,
) (hypervisorapi.ListTemplatesResponseObject, error) {
	read := func(after string, limit int) (out []hypervisorapi.Template, err error) {
		all, err := a.store.Templates(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		out = make([]hypervisorapi.Template, len(all))
		for i := range all {
			if out[i], err = a.apiTemplate(ctx, &all[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	name := func(t hypervisorapi.Template) string { return t.Name }
	same := func(t hypervisorapi.Template) hypervisorapi.Template { return t }
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100, read, name, same)
	return hypervisorapi.ListTemplates200JSONResponse{
		Body: out, Headers: hypervisorapi.ListTemplates200ResponseHeaders{Link: link},
	}, err
}

// CreateTemplate starts making a template.
func (a *API) CreateTemplate(
	ctx context.Context, req hypervisorapi.CreateTemplateRequestObject,
) (hypervisorapi.CreateTemplateResponseObject, error) {
	b := req.Body
	op, err := a.operate.Once(ctx, value(req.Params.IdempotencyKey), []any{"CreateTemplate", b},
		func(ctx context.Context) (record.Operation, error) {
			return a.templates.Create(ctx, template.Request{
				Name: value(b.Name), Image: b.Image, VCPUs: orElse(b.Vcpus, 1), MemoryMiB: orElse(b.MemoryMib, 512),
				Network: orElse(b.Network, true),
			})
		})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CreateTemplate202JSONResponse(apiOperation(op)), nil
}

// GetTemplate returns a template.
func (a *API) GetTemplate(
	ctx context.Context, req hypervisorapi.GetTemplateRequestObject,
) (hypervisorapi.GetTemplateResponseObject, error) {
	t, err := a.store.Template(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	out, err := a.apiTemplate(ctx, &t)
	return hypervisorapi.GetTemplate200JSONResponse(out), err
}

// DeleteTemplate deletes a template.
func (a *API) DeleteTemplate(
	ctx context.Context, req hypervisorapi.DeleteTemplateRequestObject,
) (hypervisorapi.DeleteTemplateResponseObject, error) {
	return hypervisorapi.DeleteTemplate204Response{}, a.templates.Delete(ctx, req.Name)
}
