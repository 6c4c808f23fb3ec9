package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// once begins a job, or returns the one that the caller began earlier with the same request and the same idempotency
// key. what is the name of the operation, and request its content.
func (a *API) once(
	ctx context.Context, key *string, what string, request any, begin func(ctx context.Context) (record.Job, error),
) (record.Job, error) {
	c := caller.From(ctx)
	return a.jobs.Once(ctx, c.Tenant+"\x00"+c.Name, value(key), []any{what, request}, begin)
}

// begun drops what a job is about, which the job names, too.
func begun[T any](_ T, j record.Job, err error) (record.Job, error) { return j, err }

func links(j *record.Job) storageapi.JobLinks {
	path := storageapi.BasePath + "/jobs/" + j.ID
	return storageapi.JobLinks{Job: path, Watch: path + "/watch"}
}

func (a *API) acceptedVolume(ctx context.Context, j *record.Job) (storageapi.VolumeAccepted, error) {
	out := storageapi.VolumeAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.VolumeRef{VolumeId: j.ResourceID},
	}
	classes, err := a.store.Classes(ctx)
	if err != nil || len(classes) == 0 {
		return out, err
	}
	v, err := a.store.Volume(ctx, j.ResourceID)
	if c, ok := classes[v.PoolID]; ok {
		out.Resource.Namespace, out.Resource.Pvc, out.Resource.StorageClass = c.Namespace, v.Native, c.Name
	}
	if fault.Is(err, fault.NotFound) { // the request is a repeated one, and the volume is gone
		err = nil
	}
	return out, err
}

func (a *API) acceptedSnapshot(ctx context.Context, j *record.Job) (storageapi.SnapshotAccepted, error) {
	out := storageapi.SnapshotAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.SnapshotRef{SnapshotId: j.ResourceID},
	}
	sn, err := a.store.AnySnapshot(ctx, j.ResourceID)
	out.Resource.VolumeId = sn.VolumeID
	return out, err
}

func acceptedCopy(j *record.Job, mode storageapi.CopyRefMode) storageapi.CopyAccepted {
	return storageapi.CopyAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.CopyRef{VolumeId: j.ResourceID, Mode: mode},
	}
}
