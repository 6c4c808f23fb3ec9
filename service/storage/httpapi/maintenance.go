package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
)

func (a *API) maintenance(ctx context.Context) (storageapi.Maintenance, error) {
	m, err := a.store.Maintenance(ctx)
	return storageapi.Maintenance{
		Paused: m.Paused, Since: m.Since.Ptr(), By: m.Actor, Queued: int(m.Queued), Running: int(m.Running),
	}, err
}

// GetMaintenance returns whether jobs are started.
func (a *API) GetMaintenance(
	ctx context.Context, _ storageapi.GetMaintenanceRequestObject,
) (storageapi.GetMaintenanceResponseObject, error) {
	m, err := a.maintenance(ctx)
	return storageapi.GetMaintenance200JSONResponse(m), err
}

// SetMaintenance starts no more jobs, or lets them start again.
func (a *API) SetMaintenance(
	ctx context.Context, req storageapi.SetMaintenanceRequestObject,
) (storageapi.SetMaintenanceResponseObject, error) {
	if err := a.jobs.SetPaused(ctx, req.Body.Paused); err != nil {
		return nil, err
	}
	m, err := a.maintenance(ctx)
	return storageapi.SetMaintenance200JSONResponse(m), err
}
