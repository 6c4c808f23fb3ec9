package httpapi

import (
	"context"
	"net/http"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// The codes of jobs that have failed for no reason that has a code, and of those that were canceled.
const (
	codeFailed    = "FAILED"
	codeCancelled = "CANCELLED"
)

// stateOf returns the contract's word for the state of a job.
func stateOf(j *record.Job) storageapi.JobState {
	switch {
	case j.Verifies():
		return storageapi.JobStateVerifying
	case j.Job.State == jobs.Running:
		return storageapi.JobStateRunning
	case j.Job.State == jobs.Succeeded:
		return storageapi.JobStateSucceeded
	case j.Job.State.Finished():
		return storageapi.JobStateFailed
	case j.Job.Attempt > 0:
		return storageapi.JobStatePending // it waits for its next attempt
	}
	return storageapi.JobStateQueued
}

func apiJob(j record.Job) storageapi.Job {
	out := storageapi.Job{
		Id: j.ID, Kind: j.Kind, State: stateOf(&j), Progress: float32(j.Progress()), Attempt: int(j.Job.Attempt),
		Resource: storageapi.JobResource{Type: storageapi.JobResourceType(j.ResourceType), Id: j.ResourceID},
		Tenant:   j.Tenant, Actor: j.Actor, CreatedAt: j.CreatedAt.Time, StartedAt: j.Job.StartedAt.Ptr(),
		FinishedAt: j.Job.FinishedAt.Ptr(),
	}
	switch j.Job.State {
	case jobs.Failed:
		code := codeFailed
		if j.Job.ErrorCode != "" {
			code = problem.Capitals.Code(j.Job.ErrorCode)
		}
		out.Error = &storageapi.JobError{Code: code, Message: j.Job.Error}
	case jobs.Cancelled:
		out.Error = &storageapi.JobError{Code: codeCancelled, Message: "the job was cancelled"}
	}
	return out
}

// ListJobs lists jobs.
func (a *API) ListJobs(
	ctx context.Context, req storageapi.ListJobsRequestObject,
) (storageapi.ListJobsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.JobFilter{Kind: value(q.Kind), ResourceID: value(q.Resource), Tenant: tenant}
	// States are those of two tables: a page is filtered after it was read, and may have fewer jobs than its limit.
	out, link, err := list.Examined(ctx, q.Limit, q.Cursor, 100,
		func(before string, limit int) (found []record.Job, examined string, err error) {
			f.Before = before
			all, err := a.store.Jobs(ctx, f, limit)
			if err != nil || q.State == nil {
				return all, "", err
			}
			for _, j := range all {
				if stateOf(&j) == *q.State {
					found = append(found, j)
				}
			}
			if len(all) == limit {
				examined = all[len(all)-1].ID
			}
			return found, examined, nil
		},
		func(j record.Job) string { return j.ID }, apiJob)
	return storageapi.ListJobs200JSONResponse{Body: out, Headers: storageapi.ListJobs200ResponseHeaders{Link: link}}, err
}

// GetJob returns one job, if it is asked to as soon as it has ended.
func (a *API) GetJob(ctx context.Context, req storageapi.GetJobRequestObject) (storageapi.GetJobResponseObject, error) {
	wait := time.Duration(value(req.Params.Wait)) * time.Second
	end, err := httpserve.BeginWait(ctx, wait)
	if err != nil {
		return nil, err
	}
	defer end()
	j, _, err := a.AwaitJob(ctx, req.Id, wait)
	return storageapi.GetJob200JSONResponse(j), err
}

// watchJob streams a job until it has ended.
func (a *API) watchJob(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	next := func(ctx context.Context, wait time.Duration) (any, *operation.Operation, error) {
		j, err := a.jobs.Await(ctx, r.PathValue("id"), wait)
		return apiJob(j), &j.Operation, err
	}
	return operation.Watch(a.cfg.Ending, w, r, "job", next)
}

// AwaitJob returns one job as soon as it has ended, or after wait, and whether it has ended.
func (a *API) AwaitJob(ctx context.Context, id string, wait time.Duration) (storageapi.Job, bool, error) {
	j, err := a.jobs.Await(ctx, id, wait)
	return apiJob(j), j.Job.State.Finished(), err
}

// CancelJob asks for the end of a job.
func (a *API) CancelJob(
	ctx context.Context, req storageapi.CancelJobRequestObject,
) (storageapi.CancelJobResponseObject, error) {
	j, err := a.store.Job(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	// Who cancels a job needs the role that starting it takes.
	if c := caller.From(ctx); record.AdminJobs[j.Kind] && c.Role != caller.Admin {
		return nil, fault.New(fault.Denied, "this takes the role %s, and %s has the role %s", caller.Admin, c.Name, c.Role)
	}
	j, err = a.jobs.Cancel(ctx, req.Id)
	return storageapi.CancelJob200JSONResponse(apiJob(j)), err
}
