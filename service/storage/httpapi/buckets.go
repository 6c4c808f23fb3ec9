package httpapi

import (
	"context"
	"strings"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

func apiBucket(b record.Bucket) storageapi.Bucket {
	return storageapi.Bucket{
		Id: b.ID, TenantId: b.Tenant, Name: b.Name, BucketName: b.Native, Endpoint: b.Endpoint, Region: b.Region,
		SecretRef: b.SecretRef(), Adopted: b.Adopted(), State: storageapi.BucketState(b.State), LastError: b.LastError,
		CreatedAt: b.CreatedAt.Time,
	}
}

func acceptedBucket(j *record.Job) storageapi.BucketAccepted {
	return storageapi.BucketAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.BucketRef{BucketId: j.ResourceID},
	}
}

// ListBuckets lists buckets.
func (a *API) ListBuckets(
	ctx context.Context, req storageapi.ListBucketsRequestObject,
) (storageapi.ListBucketsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.BucketFilter{State: string(value(q.State)), Tenant: tenant, Backend: value(q.Backend)}
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(before string, limit int) ([]record.Bucket, error) {
			f.Before = before
			return a.store.Buckets(ctx, f, limit)
		},
		func(b record.Bucket) string { return b.ID }, apiBucket)
	return storageapi.ListBuckets200JSONResponse{
		Body: out, Headers: storageapi.ListBuckets200ResponseHeaders{Link: link},
	}, err
}

// GetBucket returns one bucket.
func (a *API) GetBucket(
	ctx context.Context, req storageapi.GetBucketRequestObject,
) (storageapi.GetBucketResponseObject, error) {
	b, err := a.store.Bucket(ctx, req.Id)
	return storageapi.GetBucket200JSONResponse(apiBucket(b)), err
}

// CreateBucket begins to make a bucket, or to take one in.
func (a *API) CreateBucket(
	ctx context.Context, req storageapi.CreateBucketRequestObject,
) (storageapi.CreateBucketResponseObject, error) {
	b := req.Body
	tenant, err := tenantOf(ctx, b.TenantId)
	if err != nil {
		return nil, err
	}
	if err := checkNoClaims([]string{"namespace", "storage_class"}, b.Namespace, b.StorageClass); err != nil {
		return nil, err
	}
	spec := record.BucketRequest{
		Tenant: tenant, Name: b.Name, Backend: value(b.BackendId), MaxObjects: value(b.MaxObjects), MaxSize: value(b.MaxSize),
		Versioning: value(b.Versioning), ConnectionRef: value(b.ConnectionRef),
	}
	if spec.ConnectionRef != "" {
		if err := a.admit(ctx, adoptedBucket, spec.ConnectionRef); err != nil {
			return nil, err
		}
	}
	if spec.ConnectionRef != "" && (spec.Backend != "" || spec.MaxObjects > 0 || spec.MaxSize > 0 || spec.Versioning) {
		return nil, fault.InvalidField("connection_ref", "a bucket that exists is taken in as it is, without backend_id, "+
			"max_objects, max_size and versioning")
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "CreateBucket", b, func(ctx context.Context) (record.Job, error) {
		return begun(a.buckets.Create(ctx, spec))
	})
	return storageapi.CreateBucket202JSONResponse(acceptedBucket(&j)), err
}

// DeleteBucket begins to remove a bucket.
func (a *API) DeleteBucket(
	ctx context.Context, req storageapi.DeleteBucketRequestObject,
) (storageapi.DeleteBucketResponseObject, error) {
	j, err := a.once(ctx, req.Params.IdempotencyKey, "DeleteBucket "+req.Id, value(req.Params.Force),
		func(ctx context.Context) (record.Job, error) {
			return begun(a.buckets.Delete(ctx, req.Id, value(req.Params.Force)))
		})
	return storageapi.DeleteBucket202JSONResponse(acceptedBucket(&j)), err
}

// GetBucketStats asks what a bucket holds.
func (a *API) GetBucketStats(
	ctx context.Context, req storageapi.GetBucketStatsRequestObject,
) (storageapi.GetBucketStatsResponseObject, error) {
	s, err := a.buckets.Stats(ctx, req.Id)
	out := storageapi.GetBucketStats200JSONResponse{
		BucketId: req.Id, Bucket: s.BucketName.Bucket, Available: s.Reason == "", Reason: s.Reason, NumObjects: s.Objects,
		SizeBytes: s.Size, Quota: storageapi.BucketQuota{MaxObjects: s.MaxObjects, MaxSize: s.MaxSize},
		Versioning: storageapi.BucketStatsVersioningUnknown, Lifecycle: list.Each(s.Rules, apiRule),
	}
	if s.Versioning != "" {
		out.Versioning = storageapi.BucketStatsVersioning(s.Versioning)
	}
	return out, err
}

func apiRule(r driver.BucketRule) storageapi.BucketRule {
	return storageapi.BucketRule{
		Id: r.ID, Prefix: r.Prefix, Enabled: r.Enabled, ExpireDays: r.ExpireDays, ExpireNoncurrentDays: r.NoncurrentDays,
		AbortUploadDays: r.AbortUploads,
	}
}

// ListBucketObjects lists a folder of a bucket.
func (a *API) ListBucketObjects(
	ctx context.Context, req storageapi.ListBucketObjectsRequestObject,
) (storageapi.ListBucketObjectsResponseObject, error) {
	q := driver.ObjectsQuery{Prefix: value(req.Params.Prefix)}
	if strings.ContainsRune(q.Prefix, 0) {
		return nil, fault.InvalidField("prefix", "must not hold the character 0, which no key has")
	}
	out, link, err := list.Examined(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]driver.BucketObject, string, error) {
			q.After, q.Limit = after, limit-1 // the page says itself whether there is more
			page, err := a.buckets.Objects(ctx, req.Id, q)
			return page.Objects, page.Next, err
		},
		func(o driver.BucketObject) string { return o.Key }, apiEntryOf)
	return storageapi.ListBucketObjects200JSONResponse{
		Body: out, Headers: storageapi.ListBucketObjects200ResponseHeaders{Link: link},
	}, err
}

func apiEntryOf(o driver.BucketObject) storageapi.BucketEntry {
	return storageapi.BucketEntry{Key: o.Key, Folder: o.Folder, SizeBytes: o.Size, ModifiedAt: timeOrNil(o.Modified)}
}
