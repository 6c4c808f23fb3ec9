package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// changeOSD begins a job that changes an OSD.
func (a *API) changeOSD(
	ctx context.Context, key, of *string, kind string, number int, c driver.OSDChange,
) (storageapi.OSDAccepted, error) {
	cluster, err := a.clusterOf(ctx, of)
	if err != nil {
		return storageapi.OSDAccepted{}, err
	}
	request := []any{cluster, number, c}
	j, err := a.once(ctx, key, kind, request, func(ctx context.Context) (record.Job, error) {
		return begun(a.osds.Change(ctx, kind, cluster, int64(number), c))
	})
	if err != nil {
		return storageapi.OSDAccepted{}, err
	}
	id, n := record.SplitOSDKey(j.ResourceID)
	return storageapi.OSDAccepted{
		JobId: j.ID, State: stateOf(&j), Links: links(&j), Resource: storageapi.OSDRef{ClusterId: id, OsdId: int(n)},
	}, nil
}

// MarkOSDOut begins to move the data of an OSD to the others.
func (a *API) MarkOSDOut(
	ctx context.Context, req storageapi.MarkOSDOutRequestObject,
) (storageapi.MarkOSDOutResponseObject, error) {
	p := req.Params
	c := driver.OSDChange{In: new(false)}
	out, err := a.changeOSD(ctx, p.IdempotencyKey, p.Cluster, record.JobOSDOut, req.OsdId, c)
	return storageapi.MarkOSDOut202JSONResponse(out), err
}

// MarkOSDIn lets an OSD hold data again.
func (a *API) MarkOSDIn(
	ctx context.Context, req storageapi.MarkOSDInRequestObject,
) (storageapi.MarkOSDInResponseObject, error) {
	p := req.Params
	c := driver.OSDChange{In: new(true)}
	out, err := a.changeOSD(ctx, p.IdempotencyKey, p.Cluster, record.JobOSDIn, req.OsdId, c)
	return storageapi.MarkOSDIn202JSONResponse(out), err
}

// ReweightOSD changes how much of its share of the data an OSD holds.
func (a *API) ReweightOSD(
	ctx context.Context, req storageapi.ReweightOSDRequestObject,
) (storageapi.ReweightOSDResponseObject, error) {
	p := req.Params
	c := driver.OSDChange{Weight: &p.Weight}
	out, err := a.changeOSD(ctx, p.IdempotencyKey, p.Cluster, record.JobReweightOSD, req.OsdId, c)
	return storageapi.ReweightOSD202JSONResponse(out), err
}
