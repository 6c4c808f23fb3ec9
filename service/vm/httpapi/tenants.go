package httpapi

import (
	"context"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// ListTenants lists tenants by name.
func (a *API) ListTenants(
	ctx context.Context, req vmapi.ListTenantsRequestObject,
) (vmapi.ListTenantsResponseObject, error) {
	users, err := a.identity.CountByTenant(ctx)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Tenant, error) { return a.store.Tenants(ctx, after, limit) },
		func(t record.Tenant) string { return t.Name },
		func(t record.Tenant) vmapi.Tenant { return apiTenant(t, users[t.Name]) })
	return vmapi.ListTenants200JSONResponse{Body: out, Headers: vmapi.ListTenants200ResponseHeaders{Link: link}}, err
}

// GetTenant returns one tenant.
func (a *API) GetTenant(ctx context.Context, req vmapi.GetTenantRequestObject) (vmapi.GetTenantResponseObject, error) {
	t, err := a.store.Tenant(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	users, err := a.identity.CountByTenant(ctx)
	return vmapi.GetTenant200JSONResponse(apiTenant(t, users[t.Name])), err
}

// PutTenant adds a tenant, or replaces its description and quota.
func (a *API) PutTenant(ctx context.Context, req vmapi.PutTenantRequestObject) (vmapi.PutTenantResponseObject, error) {
	t := record.Tenant{Name: req.Name, Description: value(req.Body.Description)}
	quotaOf(req.Body.Quota, &t)
	t, err := a.store.PutTenant(ctx, t, value(req.Body.Revive))
	if err != nil {
		return nil, err
	}
	users, err := a.identity.CountByTenant(ctx)
	return vmapi.PutTenant200JSONResponse(apiTenant(t, users[t.Name])), err
}

// DeleteTenant removes a tenant that has no VMs and no users.
func (a *API) DeleteTenant(
	ctx context.Context, req vmapi.DeleteTenantRequestObject,
) (vmapi.DeleteTenantResponseObject, error) {
	return vmapi.DeleteTenant204Response{}, a.store.DeleteTenant(ctx, req.Name, func(tx *db.Tx) error {
		n, err := a.identity.CountInTenant(ctx, tx, req.Name)
		if err == nil && n > 0 {
			err = fault.New(fault.Conflict, "tenant %s has %d users; remove them first, or move them to another tenant",
				req.Name, n)
		}
		return err
	})
}
