package storage_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
)

// events reads a stream to its end.
func events(stream grpc.ServerStreamingClient[storagepb.WatchJobResponse], err error) ([]*storagepb.WatchJobResponse, error) {
	var all []*storagepb.WatchJobResponse
	for err == nil {
		var e *storagepb.WatchJobResponse
		if e, err = stream.Recv(); err == nil {
			all = append(all, e)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

func TestAJobIsFollowedOverGRPC(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		c := g.rpc()
		made, err := c.CreateVolume(g.as(g.admin), &storagepb.CreateVolumeRequest{Name: "data", SizeBytes: mib})
		if err != nil {
			g.Fatal(err)
		}
		all, err := events(c.WatchJob(g.as(g.admin), &storagepb.WatchJobRequest{Id: made.JobId}))
		if err != nil || len(all) == 0 {
			g.Fatalf("%v, %v", all, err)
		}
		last := all[len(all)-1]
		if last.Job.State != "succeeded" || last.Job.FinishedAt == nil || last.Job.Resource.Id != made.VolumeId {
			g.Errorf("%v", last)
		}
		seen := map[string]bool{}
		for _, e := range all {
			if seen[e.EventId] || e.EventId == "" {
				g.Errorf("%v", all)
			}
			seen[e.EventId] = true
		}
		more, err := events(c.WatchJob(g.as(g.admin), &storagepb.WatchJobRequest{Id: made.JobId, LastEventId: last.EventId}))
		if err != nil || len(more) > 0 {
			g.Errorf("what was seen is sent again: %v, %v", more, err)
		}
		more, err = events(c.WatchJob(g.as(g.admin), &storagepb.WatchJobRequest{Id: made.JobId, LastEventId: "another"}))
		if err != nil || len(more) != 1 || more[0].EventId != last.EventId {
			g.Errorf("%v, %v", more, err)
		}
	})
}

// idleGateway returns a gateway whose jobs do not run, and one of its jobs.
func idleGateway(t *testing.T) (g *gateway, c rpc, job string) {
	g = prepare(t)
	g.idle = true
	g.begin()
	c = g.rpc()
	made, err := c.CreateVolume(g.as(g.admin), &storagepb.CreateVolumeRequest{Name: "data", SizeBytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	return g, c, made.JobId
}

func TestACallerHasSoManyStreamsAndGetsThemBack(t *testing.T) {
	t.Parallel()
	g, c, job := idleGateway(t)
	watch := func() (func(), error) {
		ctx, leave := context.WithCancel(g.as(g.admin))
		stream, err := c.WatchJob(ctx, &storagepb.WatchJobRequest{Id: job})
		if err == nil {
			_, err = stream.Recv()
		}
		return leave, err
	}
	var leave func()
	for range 32 {
		var err error
		if leave, err = watch(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := watch()
	if status.Code(err) != codes.ResourceExhausted || detail[*errdetails.ErrorInfo](err).GetReason() != "TOO_MANY_STREAMS" ||
		detail[*errdetails.RetryInfo](err) == nil {
		t.Error(err)
	}
	if _, err := c.ListVolumes(g.as(g.admin), &storagepb.ListVolumesRequest{}); err != nil {
		t.Error(err)
	}
	leave()
	for ctx := g.as(g.admin); ; { // the server hears of it soon
		if _, err = watch(); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	g, c, job := idleGateway(t)
	brief := g.sign(jose.HS256, "ada", "admin", "", 3*time.Second)
	all, err := events(c.WatchJob(g.as(brief), &storagepb.WatchJobRequest{Id: job}))
	if status.Code(err) != codes.Unauthenticated || len(all) > 1 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestTheEndOfTheServerEndsStreams(t *testing.T) {
	t.Parallel()
	g, c, job := idleGateway(t)
	stream, err := c.WatchJob(g.as(g.admin), &storagepb.WatchJobRequest{Id: job})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || first.Job.State != "queued" {
		t.Fatalf("%v, %v", first, err)
	}
	health, err := grpc_health_v1.NewHealthClient(c.conn).Watch(g.as(""), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := health.Recv(); err != nil || h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", h, err)
	}
	reflected, err := grpc_reflection_v1.NewServerReflectionClient(c.conn).ServerReflectionInfo(g.as(""))
	if err != nil {
		t.Fatal(err)
	}
	ask := &grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}
	if err := reflected.Send(ask); err != nil {
		t.Fatal(err)
	}
	got, err := reflected.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var services []string
	for _, s := range got.GetListServicesResponse().GetService() {
		services = append(services, s.Name)
	}
	if !slices.Contains(services, "mainstay.storage.v1.StorageGateway") || !slices.Contains(services, "grpc.health.v1.Health") {
		t.Errorf("%v", services)
	}

	if err := c.stop(); err != nil {
		t.Errorf("the server was not drained: %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || detail[*errdetails.ErrorInfo](err).GetReason() != "UNAVAILABLE" {
		t.Errorf("the watch: %v", err)
	}
	for err = nil; err == nil; {
		_, err = health.Recv()
	}
	if _, again := reflected.Recv(); again == nil || errors.Is(again, context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("health: %v; reflection: %v", err, again)
	}
}
