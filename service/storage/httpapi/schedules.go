package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

func apiSchedule(c record.Schedule) storageapi.Schedule {
	out := storageapi.Schedule{
		Id: c.ID, TenantId: c.Tenant, Name: c.Name, Kind: storageapi.ScheduleKind(c.Kind), Enabled: c.Enabled,
		VolumeId: given(c.VolumeID), GroupId: given(c.GroupID), BucketId: given(c.BucketID), KeyRef: given(c.KeyRef),
		EverySecs: int(c.Every), FirstAt: c.FirstAt.Ptr(), Keep: int(c.Keep), MaxAgeSecs: c.MaxAge,
		CreatedAt: c.CreatedAt.Time, NextAt: c.NextAt.Ptr(), LastAt: c.LastAt.Ptr(), LastJobId: c.LastJob,
		LastError: c.LastError,
	}
	if c.Kind == record.ScheduleBackup {
		out.Mode, out.FullEvery = new(storageapi.BackupMode(c.Mode)), new(int(c.FullEvery))
	}
	return out
}

// given returns a pointer to s, or nil if s is empty.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// ListSchedules lists schedules.
func (a *API) ListSchedules(
	ctx context.Context, req storageapi.ListSchedulesRequestObject,
) (storageapi.ListSchedulesResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.ScheduleFilter{Tenant: tenant, Kind: string(value(q.Kind)), Volume: value(q.VolumeId)}
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(before string, limit int) ([]record.Schedule, error) {
			f.Before = before
			return a.store.Schedules(ctx, f, limit)
		},
		func(c record.Schedule) string { return c.ID }, apiSchedule)
	return storageapi.ListSchedules200JSONResponse{
		Body: out, Headers: storageapi.ListSchedules200ResponseHeaders{Link: link},
	}, err
}

// schedule returns the schedule that a request describes.
func (a *API) schedule(b *storageapi.ScheduleSpec) (record.Schedule, error) {
	c := record.Schedule{
		Name: b.Name, Kind: string(b.Kind), Enabled: orElse(b.Enabled, true), VolumeID: value(b.VolumeId),
		GroupID: value(b.GroupId), BucketID: value(b.BucketId), KeyRef: value(b.KeyRef), Every: int64(b.EverySecs),
		Keep: int64(value(b.Keep)), MaxAge: value(b.MaxAgeSecs),
	}
	if b.FirstAt != nil {
		c.FirstAt = db.At(*b.FirstAt)
	}
	if c.Kind == record.ScheduleBackup {
		c.Mode, c.FullEvery = string(orElse(b.Mode, record.ModeData)), int64(value(b.FullEvery))
	}
	return c, a.backups.CheckKey(c.KeyRef)
}

// CreateSchedule has something done at regular times.
func (a *API) CreateSchedule(
	ctx context.Context, req storageapi.CreateScheduleRequestObject,
) (storageapi.CreateScheduleResponseObject, error) {
	c, err := a.schedule(req.Body)
	if err == nil {
		c, err = a.store.PutSchedule(ctx, c)
	}
	return storageapi.CreateSchedule201JSONResponse(apiSchedule(c)), err
}

// GetSchedule returns one schedule.
func (a *API) GetSchedule(
	ctx context.Context, req storageapi.GetScheduleRequestObject,
) (storageapi.GetScheduleResponseObject, error) {
	c, err := a.store.Schedule(ctx, req.Id)
	return storageapi.GetSchedule200JSONResponse(apiSchedule(c)), err
}

// UpdateSchedule replaces a schedule.
func (a *API) UpdateSchedule(
	ctx context.Context, req storageapi.UpdateScheduleRequestObject,
) (storageapi.UpdateScheduleResponseObject, error) {
	if _, err := a.store.Schedule(ctx, req.Id); err != nil {
		return nil, err
	}
	c, err := a.schedule(req.Body)
	if err == nil {
		c.ID = req.Id
		c, err = a.store.PutSchedule(ctx, c)
	}
	return storageapi.UpdateSchedule200JSONResponse(apiSchedule(c)), err
}

// DeleteSchedule removes a schedule. What it had made stays.
func (a *API) DeleteSchedule(
	ctx context.Context, req storageapi.DeleteScheduleRequestObject,
) (storageapi.DeleteScheduleResponseObject, error) {
	return storageapi.DeleteSchedule204Response{}, a.store.DeleteSchedule(ctx, req.Id)
}
