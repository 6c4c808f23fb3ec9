package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

func apiPolicy(p record.Policy) storageapi.Policy {
	return storageapi.Policy{
		Name: p.Name, Description: p.Description, BackendId: p.BackendID, Pool: p.Pool, Kind: storageapi.VolumeKind(p.Kind),
		CreatedAt: p.CreatedAt.Time,
	}
}

// ListPolicies lists policies.
func (a *API) ListPolicies(
	ctx context.Context, req storageapi.ListPoliciesRequestObject,
) (storageapi.ListPoliciesResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Policy, error) { return a.store.Policies(ctx, after, limit) },
		func(p record.Policy) string { return p.Name }, apiPolicy)
	return storageapi.ListPolicies200JSONResponse{
		Body: out, Headers: storageapi.ListPolicies200ResponseHeaders{Link: link},
	}, err
}

// GetPolicy returns one policy.
func (a *API) GetPolicy(
	ctx context.Context, req storageapi.GetPolicyRequestObject,
) (storageapi.GetPolicyResponseObject, error) {
	p, err := a.store.Policy(ctx, req.Name)
	return storageapi.GetPolicy200JSONResponse(apiPolicy(p)), err
}

// PutPolicy adds or replaces a policy.
func (a *API) PutPolicy(
	ctx context.Context, req storageapi.PutPolicyRequestObject,
) (storageapi.PutPolicyResponseObject, error) {
	if err := checkNoClaims(
		[]string{"storage_class", "snapshot_class"}, req.Body.StorageClass, req.Body.SnapshotClass,
	); err != nil {
		return nil, err
	}
	p, err := a.store.PutPolicy(ctx, record.Policy{
		Name: req.Name, Description: value(req.Body.Description), BackendID: req.Body.BackendId, Pool: value(req.Body.Pool),
		Kind: driver.Kind(req.Body.Kind),
	})
	return storageapi.PutPolicy200JSONResponse(apiPolicy(p)), err
}

// DeletePolicy removes a policy.
func (a *API) DeletePolicy(
	ctx context.Context, req storageapi.DeletePolicyRequestObject,
) (storageapi.DeletePolicyResponseObject, error) {
	return storageapi.DeletePolicy204Response{}, a.store.DeletePolicy(ctx, req.Name)
}

func apiTenant(t record.Tenant) storageapi.Tenant {
	return storageapi.Tenant{
		Name: t.Name, Description: t.Description, CreatedAt: t.CreatedAt.Time,
		Quota: storageapi.Quota{Volumes: t.MaxVolumes, Bytes: t.MaxBytes, Snapshots: t.MaxSnapshots},
		Used: storageapi.TenantUse{
			Volumes: t.Used.Volumes, Bytes: t.Used.Bytes, Snapshots: t.Used.Snapshots, Buckets: t.Used.Buckets,
			BackupBytes: t.Used.BackupBytes,
		},
	}
}

// ListTenants lists tenants.
func (a *API) ListTenants(
	ctx context.Context, req storageapi.ListTenantsRequestObject,
) (storageapi.ListTenantsResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Tenant, error) { return a.store.Tenants(ctx, after, limit) },
		func(t record.Tenant) string { return t.Name }, apiTenant)
	return storageapi.ListTenants200JSONResponse{
		Body: out, Headers: storageapi.ListTenants200ResponseHeaders{Link: link},
	}, err
}

// GetTenant returns one tenant.
func (a *API) GetTenant(
	ctx context.Context, req storageapi.GetTenantRequestObject,
) (storageapi.GetTenantResponseObject, error) {
	t, err := a.store.Tenant(ctx, req.Name)
	return storageapi.GetTenant200JSONResponse(apiTenant(t)), err
}

// PutTenant adds or replaces a tenant.
func (a *API) PutTenant(
	ctx context.Context, req storageapi.PutTenantRequestObject,
) (storageapi.PutTenantResponseObject, error) {
	t := record.Tenant{Name: req.Name, Description: value(req.Body.Description)}
	if q := req.Body.Quota; q != nil {
		t.MaxVolumes, t.MaxBytes, t.MaxSnapshots = q.Volumes, q.Bytes, q.Snapshots
	}
	t, err := a.store.PutTenant(ctx, t)
	return storageapi.PutTenant200JSONResponse(apiTenant(t)), err
}

// DeleteTenant removes a tenant.
func (a *API) DeleteTenant(
	ctx context.Context, req storageapi.DeleteTenantRequestObject,
) (storageapi.DeleteTenantResponseObject, error) {
	return storageapi.DeleteTenant204Response{}, a.store.DeleteTenant(ctx, req.Name)
}
