package grpcapi

import (
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func clusterOf(c storageapi.Cluster) *storagepb.Cluster {
	return &storagepb.Cluster{
		Id: c.Id, BackendId: c.BackendId, Name: c.Name, NativeFsid: c.NativeFsid, Health: string(c.Health),
		RawCapacityBytes: c.RawCapacityBytes, UsedCapacityBytes: c.UsedCapacityBytes,
		AvailableCapacityBytes: c.AvailableCapacityBytes, SeenAt: timestamppb.New(c.SeenAt),
	}
}

func poolOf(p storageapi.Pool) *storagepb.Pool {
	return &storagepb.Pool{
		Id: p.Id, ClusterId: p.ClusterId, Name: p.Name, Kind: string(p.Kind), DeviceClass: p.DeviceClass,
		ReplicaSize: int32(p.ReplicaSize), UsedBytes: p.UsedBytes, MaxBytes: p.MaxBytes, Health: string(p.Health),
		Missing: p.Missing,
	}
}

func volumeOf(v storageapi.Volume) *storagepb.Volume {
	out := &storagepb.Volume{
		Id: v.Id, TenantId: v.TenantId, ClusterId: v.ClusterId, PoolId: v.PoolId, Name: v.Name, Kind: string(v.Kind),
		Policy: v.Policy, BackendNativeId: v.BackendNativeId, SizeBytes: v.SizeBytes, UsedBytes: v.UsedBytes,
		SizeEnforced: v.SizeEnforced, State: string(v.State), Health: string(v.Health), Managed: v.Managed,
		SourceSnapshotId: v.SourceSnapshotId, LastError: v.LastError, CreatedAt: timestamppb.New(v.CreatedAt),
		UpdatedAt: timestamppb.New(v.UpdatedAt),
	}
	if o := v.Owner; o != nil {
		out.Owner = &storagepb.Owner{
			Product: o.Product, ResourceType: text(o.ResourceType), ResourceId: text(o.ResourceId), Role: text(o.Role),
		}
	}
	return out
}

func bucketOf(b storageapi.Bucket) *storagepb.Bucket {
	return &storagepb.Bucket{
		Id: b.Id, Name: b.Name, TenantId: b.TenantId, State: string(b.State), BucketName: b.BucketName, Endpoint: b.Endpoint,
		Region: b.Region, SecretRef: b.SecretRef, Adopted: b.Adopted, LastError: b.LastError,
		CreatedAt: timestamppb.New(b.CreatedAt),
	}
}

func jobOf(j storageapi.Job) *storagepb.Job {
	out := &storagepb.Job{
		Id: j.Id, Kind: j.Kind, State: string(j.State), Progress: j.Progress, Attempt: int32(j.Attempt),
		Resource: &storagepb.Resource{Type: string(j.Resource.Type), Id: j.Resource.Id}, Tenant: j.Tenant, Actor: j.Actor,
		CreatedAt: timestamppb.New(j.CreatedAt), StartedAt: timeOf(j.StartedAt), FinishedAt: timeOf(j.FinishedAt),
	}
	if e := j.Error; e != nil {
		out.Error = &storagepb.JobError{Code: e.Code, Message: e.Message}
	}
	return out
}

func timeOf(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// next returns the cursor in the link to the next page.
func next(link *string) string {
	if link == nil {
		return ""
	}
	return rest.NextCursor(http.Header{"Link": {*link}})
}
