package httpapi

import (
	"context"
	"net/http"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

var jobStates = operation.States[vmapi.JobStatus]{
	Queued: vmapi.JobStatusQueued, Running: vmapi.JobStatusRunning, Succeeded: vmapi.JobStatusCompleted,
	Failed: vmapi.JobStatusFailed, Cancelled: vmapi.JobStatusCancelled,
}

func apiJob(ctx context.Context, j record.Job) vmapi.Job {
	return vmapi.Job{
		Id: j.ID, Kind: j.Kind, VmId: some(j.VM), VmName: some(j.VMName), Tenant: some(j.Tenant), Actor: some(j.Actor),
		Status: jobStates.Of(&j.Operation), Progress: float32(j.Progress()), Created: j.CreatedAt.Time,
		Finished: j.Job.FinishedAt.Ptr(), Error: caller.From(ctx).Public(j.Job.Error),
	}
}

// ListJobs lists jobs.
func (a *API) ListJobs(ctx context.Context, req vmapi.ListJobsRequestObject) (vmapi.ListJobsResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]record.Job, error) {
			return a.store.Jobs(ctx, value(req.Params.Vm), before, limit)
		},
		func(j record.Job) string { return j.ID },
		func(j record.Job) vmapi.Job { return apiJob(ctx, j) })
	return vmapi.ListJobs200JSONResponse{Body: out, Headers: vmapi.ListJobs200ResponseHeaders{Link: link}}, err
}

// GetJob returns one job, after waiting for its end if asked to.
func (a *API) GetJob(ctx context.Context, req vmapi.GetJobRequestObject) (vmapi.GetJobResponseObject, error) {
	wait := time.Duration(value(req.Params.Wait)) * time.Second
	end, err := httpserve.BeginWait(ctx, wait)
	if err != nil {
		return nil, err
	}
	defer end()
	j, err := a.jobs.Await(ctx, req.Job, wait)
	if err != nil {
		return nil, err
	}
	return vmapi.GetJob200JSONResponse(apiJob(ctx, j)), nil
}

// watchJob streams a job until it has ended.
func (a *API) watchJob(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	next := func(ctx context.Context, wait time.Duration) (any, *operation.Operation, error) {
		j, err := a.jobs.Await(ctx, r.PathValue("job"), wait)
		return apiJob(ctx, j), &j.Operation, err
	}
	return operation.Watch(a.cfg.Ending, w, r, "operation", next)
}

// CancelJob asks for the end of a job.
func (a *API) CancelJob(ctx context.Context, req vmapi.CancelJobRequestObject) (vmapi.CancelJobResponseObject, error) {
	j, err := a.jobs.Cancel(ctx, req.Job)
	if err != nil {
		return nil, err
	}
	return vmapi.CancelJob200JSONResponse(apiJob(ctx, j)), nil
}
