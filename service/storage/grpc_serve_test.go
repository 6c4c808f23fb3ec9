package storage_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage"
)

func TestWithoutCredentialsEverybodyIsAdminOverGRPC(t *testing.T) {
	t.Parallel()
	g := prepare(t, func(c *storage.Config) { c.AuthRequired = false })
	g.run()
	c := g.rpc()
	if _, err := c.DeleteVolume(g.as(""), &storagepb.DeleteVolumeRequest{Id: "none"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	// As a page of another site would.
	if _, err := c.ListVolumes(g.as("", "origin", "https://evil.example"), &storagepb.ListVolumesRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestReflectionDescribesTheService(t *testing.T) {
	t.Parallel()
	g := start(t)
	c := g.rpc()
	h, err := grpc_health_v1.NewHealthClient(c.conn).Check(g.as(""), &grpc_health_v1.HealthCheckRequest{
		Service: "mainstay.storage.v1.StorageGateway",
	})
	if err != nil || h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", h, err)
	}
	if v, err := c.Health(g.as(""), &storagepb.HealthRequest{}); err != nil || v.Status != "ok" || v.Version != "test" || v.Api != "v1" {
		t.Errorf("%v, %v", v, err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(c.conn).ServerReflectionInfo(g.as(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "mainstay.storage.v1.StorageGateway"},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := stream.Recv()
	if err != nil || len(got.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestHostileInputOverGRPCIsRefused(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		c := g.rpc()
		long := strings.Repeat("x", 100_000)
		words := []string{"\x00", "a\x00b", "../../etc/passwd", "%00", "%", "'; DROP TABLE volumes; --", "\U0010ffff\u202e", " ", "?a=b#c", "/", long}
		for _, word := range words {
			ctx := g.as(g.admin)
			calls := map[string]func() error{
				"get":    func() error { _, err := c.GetVolume(ctx, &storagepb.GetVolumeRequest{Id: word}); return err },
				"delete": func() error { _, err := c.DeleteVolume(ctx, &storagepb.DeleteVolumeRequest{Id: word}); return err },
				"job":    func() error { _, err := c.GetJob(ctx, &storagepb.GetJobRequest{Id: word}); return err },
				"watch": func() error {
					_, err := events(c.WatchJob(ctx, &storagepb.WatchJobRequest{Id: word, LastEventId: word}))
					return err
				},
				"snapshot": func() error {
					_, err := c.CreateSnapshot(ctx, &storagepb.CreateSnapshotRequest{Id: word, Name: word})
					return err
				},
				"cursor":  func() error { _, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{Cursor: word}); return err },
				"state":   func() error { _, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{State: word}); return err },
				"kind":    func() error { _, err := c.ListPools(ctx, &storagepb.ListPoolsRequest{Kind: word}); return err },
				"cluster": func() error { _, err := c.ListPools(ctx, &storagepb.ListPoolsRequest{Cluster: word}); return err },
				"create": func() error {
					_, err := c.CreateVolume(ctx, &storagepb.CreateVolumeRequest{Name: word, SizeBytes: mib})
					return err
				},
				"owner": func() error {
					_, err := c.CreateVolume(ctx, &storagepb.CreateVolumeRequest{
						Name: "fine", SizeBytes: -1, Owner: &storagepb.Owner{Product: word},
					})
					return err
				},
			}
			for what, call := range calls {
				if code := status.Code(call()); code != codes.InvalidArgument && code != codes.NotFound {
					g.Errorf("%s %.20q: %v", what, word, code)
				}
			}
			for what, err := range map[string]error{
				"search":  func() error { _, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{Q: word}); return err }(),
				"tenant":  func() error { _, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{Tenant: word}); return err }(),
				"backend": func() error { _, err := c.ListClusters(ctx, &storagepb.ListClustersRequest{Backend: word}); return err }(),
				"product": func() error {
					_, err := c.ListVolumesByOwner(ctx, &storagepb.ListVolumesByOwnerRequest{Product: word, ResourceId: word})
					return err
				}(),
			} {
				if code := status.Code(err); code != codes.InvalidArgument && code != codes.OK {
					g.Errorf("%s %.20q: %v", what, word, err)
				}
			}
		}
		for _, limit := range []int32{-1, -1 << 31, 1001, 1<<31 - 1} {
			if _, err := c.ListVolumes(g.as(g.admin), &storagepb.ListVolumesRequest{Limit: limit}); status.Code(err) != codes.InvalidArgument {
				g.Errorf("limit %d: %v", limit, err)
			}
		}
		for what, err := range map[string]error{
			"no id": func() error { _, err := c.GetVolume(g.as(g.admin), &storagepb.GetVolumeRequest{}); return err }(),
			"no product": func() error {
				_, err := c.ListVolumesByOwner(g.as(g.admin), &storagepb.ListVolumesByOwnerRequest{})
				return err
			}(),
		} {
			if status.Code(err) != codes.InvalidArgument {
				g.Errorf("%s: %v", what, err)
			}
		}
		_, err := c.GetVolume(g.as(g.admin), &storagepb.GetVolumeRequest{Id: strings.Repeat("x", 2*mib)})
		if status.Code(err) != codes.ResourceExhausted {
			g.Errorf("a message of 2 MiB: %v", err)
		}
		if err := c.conn.Invoke(g.as(g.admin), "/mainstay.storage.v1.StorageGateway/Format", &storagepb.HealthRequest{}, &storagepb.HealthResponse{}); status.Code(err) != codes.Unimplemented {
			g.Errorf("a method that there is not: %v", err)
		}
	})
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestHTTPAndGRPCAreServedTogether(t *testing.T) {
	t.Parallel()
	cfg := prepare(t, func(c *storage.Config) { c.TLSSelfSigned = true }).config
	var log logged
	svc, err := storage.New(t.Context(), cfg, storage.Deps{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: prometheus.NewRegistry(), Now: time.Now, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := regexp.MustCompile(`for gRPC on (127\.0\.0\.1:\d+)`)
	err = svc.Serve(ctx, func(string) {
		found := address.FindStringSubmatch(log.String())
		if found == nil {
			t.Errorf("the log does not say the address: %s", log.String())
			cancel()
			return
		}
		conn := dial(t, found[1], credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // the test's own server
		defer func() { _ = conn.Close() }()
		if v, err := storagepb.NewStorageGatewayClient(conn).Health(ctx, &storagepb.HealthRequest{}); err != nil || v.Status != "ok" {
			t.Errorf("%v, %v", v, err)
		}
		cancel()
	})
	if err := errors.Join(err, svc.Close()); err != nil {
		t.Error(err)
	}
}

func TestTheAddressOfGRPCIsChecked(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"": "", "off": "", "127.0.0.1:0": "", "localhost:5111": "", ":5111": "grpc-addr", "0.0.0.0:5111": "grpc-addr", "nonsense": "grpc-addr",
	} {
		cfg := prepare(t, func(c *storage.Config) { c.AuthRequired, c.GRPCAddr = false, address }).config
		got := ""
		if f := fault.From(cfg.Validate()); f != nil {
			got = f.Field
		}
		if got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
	cfg := prepare(t, func(c *storage.Config) { c.GRPCAddr = ":5111" }).config
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	g := start(t, func(c *storage.Config) { c.GRPCAddr = "off" })
	if server, err := g.service.ListenGRPC(); server != nil || err != nil {
		t.Errorf("%v, %v", server, err)
	}
}
