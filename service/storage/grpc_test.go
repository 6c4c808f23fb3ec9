package storage_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// rpc is the gateway as it is talked to over gRPC.
type rpc struct {
	storagepb.StorageGatewayClient
	conn *grpc.ClientConn
	stop func() error // ends the server, and returns how it has ended
}

// rpc serves gRPC until the test ends.
func (g *gateway) rpc() rpc {
	g.Helper()
	server, err := g.service.ListenGRPC()
	if err != nil {
		g.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	conn := dial(g.T, server.Addr().String(), insecure.NewCredentials())
	ended := false
	stop := func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	g.Cleanup(func() {
		_ = conn.Close()
		if err := stop(); err != nil {
			g.Errorf("grpc: %v", err)
		}
	})
	return rpc{storagepb.NewStorageGatewayClient(conn), conn, stop}
}

func dial(t *testing.T, address string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// as returns a context with a token and more metadata.
func (g *gateway) as(token string, more ...string) context.Context {
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	g.Cleanup(cancel)
	if token != "" {
		more = append(more, "authorization", "Bearer "+token)
	}
	return metadata.AppendToOutgoingContext(ctx, more...)
}

// notOverGRPC are the fields that only REST has.
var notOverGRPC = []string{"kubernetes_namespace", "pvc_name", "storage_class_name", "links"}

// plain returns a JSON value in a form that does not depend on how numbers, times and absent fields are written.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, field := range v {
			p := plain(field)
			if p != nil && p != "" && p != "0" && p != "false" && !slices.Contains(notOverGRPC, key) {
				out[key] = p
			}
		}
		return out
	case []any:
		out := []any{}
		for _, item := range v {
			out = append(out, plain(item))
		}
		return out
	case nil:
		return nil
	}
	text := fmt.Sprint(v)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC().Format(time.RFC3339Nano)
	}
	return text
}

func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return plain(v)
}

// same checks that REST and gRPC have answered the same.
func same(t *testing.T, what string, rest string, messages ...proto.Message) {
	t.Helper()
	var over []any
	for _, m := range messages {
		raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		over = append(over, decoded(t, raw))
	}
	a, b := decoded(t, []byte(rest)), any(over)
	if len(over) == 1 && !strings.HasPrefix(strings.TrimSpace(rest), "[") {
		b = over[0]
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if string(x) != string(y) {
		t.Errorf("%s:\nREST %s\ngRPC %s", what, x, y)
	}
}

func messages[M proto.Message](all []M) []proto.Message {
	out := []proto.Message{}
	for _, m := range all {
		out = append(out, m)
	}
	return out
}

// detail returns a detail of an error.
func detail[M proto.Message](err error) (none M) {
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(M); ok {
			return m
		}
	}
	return none
}

// sameError checks that REST and gRPC have refused a request for the same reason.
func sameError(t *testing.T, what string, a answer, err error) {
	t.Helper()
	var want codes.Code
	for k := fault.Internal; k <= fault.UpgradeRequired; k++ {
		if k.HTTPStatus() == a.Status {
			want = codes.Code(k.GRPCCode())
		}
	}
	p, _ := problem.Parse([]byte(a.Body))
	got := status.Convert(err)
	info, bad := detail[*errdetails.ErrorInfo](err), detail[*errdetails.BadRequest](err)
	field := ""
	if len(bad.GetFieldViolations()) > 0 {
		field = bad.GetFieldViolations()[0].GetField()
	}
	if got.Code() != want || info.GetReason() != p.Code || got.Message() != p.Message || field != p.Field ||
		info.GetDomain() != "storage.mainstay" || info.GetMetadata()["limit"] != p.Limit ||
		detail[*errdetails.RequestInfo](err).GetRequestId() == "" {
		t.Errorf("%s:\nREST %d %+v\ngRPC %v %q %+v %s", what, a.Status, p, got.Code(), got.Message(), info, field)
	}
}

func TestGRPCAnswersAsRESTDoes(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		c := g.rpc()
		ctx := g.as(g.admin)
		must := func(err error) {
			g.Helper()
			if err != nil {
				g.Fatal(err)
			}
		}
		g.call("PUT", "/tenants/acme", g.admin, object{"quota": object{"volumes": 3, "snapshots": 1}}).Want(200)
		owner := &storagepb.Owner{Product: "vm", ResourceType: "machine", ResourceId: "vm-1", Role: "data"}
		made, err := c.CreateVolume(ctx, &storagepb.CreateVolumeRequest{
			Name: "data", SizeBytes: 8 * mib, TenantId: new("acme"), Owner: owner,
		})
		must(err)
		g.job(made.JobId, g.admin)
		repeated := contracttest.As[storageapi.VolumeAccepted](g.call("POST", "/volumes", g.admin, object{
			"name": "data", "size_bytes": 8 * mib, "tenant_id": "acme",
		}).Want(202))
		if repeated.JobId != made.JobId || repeated.Resource.VolumeId != made.VolumeId {
			g.Errorf("%+v, %+v", made, repeated)
		}
		g.done(g.call("POST", "/volumes", g.admin, object{
			"name": "other", "size_bytes": mib, "tenant_id": "acme", "owner": object{"product": "vm", "resource_id": "vm-2"},
		}), g.admin)
		shot, err := c.CreateSnapshot(ctx, &storagepb.CreateSnapshotRequest{Id: made.VolumeId, Name: "one"})
		must(err)
		g.job(shot.JobId, g.admin)
		sn := contracttest.As[storageapi.Snapshot](g.call("GET", "/snapshots/"+shot.SnapshotId, g.admin, nil).Want(200))
		if sn.Name != "one" || sn.VolumeId != made.VolumeId || shot.VolumeId != made.VolumeId {
			g.Errorf("%+v %+v", sn, shot)
		}

		v, err := c.GetVolume(ctx, &storagepb.GetVolumeRequest{Id: made.VolumeId})
		must(err)
		same(g.T, "volume", g.call("GET", "/volumes/"+made.VolumeId, g.admin, nil).Want(200).Body, v.Volume)
		if !proto.Equal(v.Volume.Owner, owner) {
			g.Errorf("%v", v.Volume.Owner)
		}
		j, err := c.GetJob(ctx, &storagepb.GetJobRequest{Id: made.JobId})
		must(err)
		same(g.T, "job", g.call("GET", "/jobs/"+made.JobId, g.admin, nil).Want(200).Body, j.Job)
		clusters, err := c.ListClusters(ctx, &storagepb.ListClustersRequest{Backend: "local"})
		must(err)
		same(g.T, "clusters", g.call("GET", "/clusters", g.admin, nil).Want(200).Body, messages(clusters.Clusters)...)
		pools, err := c.ListPools(ctx, &storagepb.ListPoolsRequest{Cluster: "local", Kind: "nfs_export"})
		must(err)
		same(g.T, "pools", g.call("GET", "/pools", g.admin, nil).Want(200).Body, messages(pools.Pools)...)
		all, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{Tenant: "acme", State: "available", Kind: "block"})
		must(err)
		same(g.T, "volumes", g.call("GET", "/volumes", g.admin, nil).Want(200).Body, messages(all.Volumes)...)
		page, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{Limit: 1})
		must(err)
		rest, err := c.ListVolumes(ctx, &storagepb.ListVolumesRequest{Limit: 1, Cursor: page.NextCursor})
		must(err)
		if len(page.Volumes) != 1 || len(rest.Volumes) != 1 || rest.NextCursor != "" ||
			page.Volumes[0].Id != all.Volumes[0].Id || rest.Volumes[0].Id != all.Volumes[1].Id {
			g.Errorf("%v, %v", page, rest)
		}
		same(g.T, "a page of REST by a cursor of gRPC",
			g.call("GET", "/volumes?limit=1&cursor="+page.NextCursor, g.admin, nil).Want(200).Body, messages(rest.Volumes)...)
		owned, err := c.ListVolumesByOwner(ctx, &storagepb.ListVolumesByOwnerRequest{Product: "vm"})
		must(err)
		one, err := c.ListVolumesByOwner(ctx, &storagepb.ListVolumesByOwnerRequest{Product: "vm", ResourceId: "vm-1"})
		must(err)
		if len(owned.Volumes) != 2 || len(one.Volumes) != 1 || one.Volumes[0].Id != made.VolumeId {
			g.Errorf("%v, %v", owned, one)
		}
		g.refusals(c, made.VolumeId)

		_, err = c.DeleteVolume(ctx, &storagepb.DeleteVolumeRequest{Id: made.VolumeId})
		sameError(g.T, "it has a snapshot", g.call("DELETE", "/volumes/"+made.VolumeId, g.admin, nil).Want(409), err)
		g.done(g.call("DELETE", "/snapshots/"+shot.SnapshotId, g.admin, nil), g.admin)
		gone, err := c.DeleteVolume(ctx, &storagepb.DeleteVolumeRequest{Id: made.VolumeId})
		must(err)
		g.job(gone.JobId, g.admin)
		_, err = c.GetVolume(ctx, &storagepb.GetVolumeRequest{Id: made.VolumeId})
		sameError(g.T, "deleted", g.call("GET", "/volumes/"+made.VolumeId, g.admin, nil).Want(404), err)
		if gone.VolumeId != made.VolumeId {
			g.Errorf("%v", gone)
		}
	})
}

// refusals asks REST and gRPC for the same things that are refused. A volume of the tenant acme has a snapshot one.
func (g *gateway) refusals(c rpc, volume string) {
	g.Helper()
	viewer, foreign, away := g.token("vera", "viewer", ""), g.token("fred", "admin", "globex"), g.token("ann", "admin", "acme")
	create := func(what, token string, status int, in *storagepb.CreateVolumeRequest, body object, more ...string) {
		g.Helper()
		_, err := c.CreateVolume(g.as(token, more...), in)
		sameError(g.T, what, g.call("POST", "/volumes", token, body).Want(status), err)
	}
	create("no token", "", 401, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib}, object{"name": "x", "size_bytes": mib})
	create("a bad token", "a.b.c", 401, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib}, object{"name": "x", "size_bytes": mib})
	create("a low role", viewer, 403, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib}, object{"name": "x", "size_bytes": mib})
	create("another tenant", foreign, 403, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib, TenantId: new("acme")},
		object{"name": "x", "size_bytes": mib, "tenant_id": "acme"})
	create("no size", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "x"}, object{"name": "x", "size_bytes": 0})
	create("a huge size", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: 1 << 62}, object{"name": "x", "size_bytes": 1 << 62})
	create("no name", g.admin, 400, &storagepb.CreateVolumeRequest{SizeBytes: mib}, object{"name": "", "size_bytes": mib})
	create("a bad name", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "../x", SizeBytes: mib}, object{"name": "../x", "size_bytes": mib})
	create("a name with NUL", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "a\x00", SizeBytes: mib}, object{"name": "a\x00", "size_bytes": mib})
	create("an unknown kind", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib, Kind: "tape"},
		object{"name": "x", "size_bytes": mib, "kind": "tape"})
	create("an unknown policy", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib, Policy: "none"},
		object{"name": "x", "size_bytes": mib, "policy": "none"})
	create("an owner without product", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib, Owner: &storagepb.Owner{Role: "data"}},
		object{"name": "x", "size_bytes": mib, "owner": object{"product": "", "role": "data"}})
	create("no such tenant", g.admin, 400, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib, TenantId: new("nobody")},
		object{"name": "x", "size_bytes": mib, "tenant_id": "nobody"})
	create("another size", away, 409, &storagepb.CreateVolumeRequest{Name: "data", SizeBytes: mib}, object{"name": "data", "size_bytes": mib})
	g.done(g.call("POST", "/volumes", away, object{"name": "third", "size_bytes": mib}), away)
	create("quota", away, 403, &storagepb.CreateVolumeRequest{Name: "fourth", SizeBytes: mib}, object{"name": "fourth", "size_bytes": mib})
	g.call("POST", "/backends/"+g.local().Id+"/cordon", g.admin, nil).Want(200)
	create("cordoned", g.admin, 503, &storagepb.CreateVolumeRequest{Name: "x", SizeBytes: mib}, object{"name": "x", "size_bytes": mib})
	g.call("POST", "/backends/"+g.local().Id+"/uncordon", g.admin, nil).Want(200)

	for token, want := range map[string]int{viewer: 403, foreign: 404, "": 401} {
		_, err := c.DeleteVolume(g.as(token), &storagepb.DeleteVolumeRequest{Id: volume})
		sameError(g.T, "delete", g.call("DELETE", "/volumes/"+volume, token, nil).Want(want), err)
		_, err = c.CreateSnapshot(g.as(token), &storagepb.CreateSnapshotRequest{Id: volume, Name: "two"})
		sameError(g.T, "snapshot", g.call("POST", "/volumes/"+volume+"/snapshots", token, object{"name": "two"}).Want(want), err)
	}
	_, err := c.CreateSnapshot(g.as(away), &storagepb.CreateSnapshotRequest{Id: volume, Name: "two"})
	sameError(g.T, "quota of snapshots", g.call("POST", "/volumes/"+volume+"/snapshots", away, object{"name": "two"}).Want(403), err)
	_, err = c.GetJob(g.as(away), &storagepb.GetJobRequest{Id: "none"})
	sameError(g.T, "job", g.call("GET", "/jobs/none", away, nil).Want(404), err)
	_, err = c.ListVolumes(g.as(away), &storagepb.ListVolumesRequest{Tenant: "globex"})
	sameError(g.T, "tenant", g.call("GET", "/volumes?tenant=globex", away, nil).Want(403), err)
	_, err = c.ListVolumes(g.as(away), &storagepb.ListVolumesRequest{Limit: 1001})
	sameError(g.T, "limit", g.call("GET", "/volumes?limit=1001", away, nil).Want(400), err)
	_, err = c.ListAlerts(g.as(away), &storagepb.ListAlertsRequest{State: "gone"})
	sameError(g.T, "state", g.call("GET", "/alerts?state=gone", away, nil).Want(400), err)
	_, err = c.GetMetricsSummary(g.as(away), &storagepb.GetMetricsSummaryRequest{Cluster: "none"})
	sameError(g.T, "summary", g.call("GET", "/metrics/summary?cluster=none", away, nil).Want(400), err)
	_, err = c.ListPools(g.as(away), &storagepb.ListPoolsRequest{Cluster: "none"})
	sameError(g.T, "cluster", g.call("GET", "/pools?cluster=none", away, nil).Want(400), err)
	_, err = c.ListPools(g.as(away), &storagepb.ListPoolsRequest{Cursor: "xx"})
	sameError(g.T, "cursor", g.call("GET", "/pools?cursor=xx", away, nil).Want(400), err)
}

func TestARequestIsRepeatedAcrossRESTAndGRPC(t *testing.T) {
	t.Parallel()
	g := start(t)
	c := g.rpc()
	begin := func(size int64) (*storagepb.CreateVolumeResponse, error) {
		return c.CreateVolume(g.as(g.admin, "idempotency-key", "once"), &storagepb.CreateVolumeRequest{Name: "data", SizeBytes: size})
	}
	first, err := begin(mib)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := begin(mib); err != nil || again.JobId != first.JobId {
		t.Errorf("%v, %v; %v", first, again, err)
	}
	again := contracttest.As[storageapi.VolumeAccepted](contracttest.Send(t, nil, contracttest.Request{
		Method: "POST", URL: g.url + base + "/volumes", Token: g.admin, Body: object{"name": "data", "size_bytes": mib},
		Header: map[string]string{"Idempotency-Key": "once"},
	}).Want(202))
	if again.JobId != first.JobId {
		t.Errorf("%v, %v", first, again)
	}
	if _, err := begin(2 * mib); detail[*errdetails.ErrorInfo](err).GetReason() != "IDEMPOTENCY_KEY_REUSED" {
		t.Error(err)
	}
	ctx := g.as(g.admin, "idempotency-key", "one", "idempotency-key", "two")
	if _, err := c.DeleteVolume(ctx, &storagepb.DeleteVolumeRequest{Id: first.VolumeId}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	ctx = g.as(g.admin, "idempotency-key", strings.Repeat("x", 256))
	if _, err := c.DeleteVolume(ctx, &storagepb.DeleteVolumeRequest{Id: first.VolumeId}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	g.job(first.JobId, g.admin)
}

// calls calls each method once. What changes something is about nothing that exists, so that it changes nothing.
func (c rpc) calls(volume, job string) map[string]func(ctx context.Context) error {
	ignored := func(_ any, err error) error { return err }
	return map[string]func(ctx context.Context) error{
		"Health":       func(ctx context.Context) error { return ignored(c.Health(ctx, &storagepb.HealthRequest{})) },
		"ListClusters": func(ctx context.Context) error { return ignored(c.ListClusters(ctx, &storagepb.ListClustersRequest{})) },
		"ListPools":    func(ctx context.Context) error { return ignored(c.ListPools(ctx, &storagepb.ListPoolsRequest{})) },
		"ListVolumes":  func(ctx context.Context) error { return ignored(c.ListVolumes(ctx, &storagepb.ListVolumesRequest{})) },
		"GetVolume": func(ctx context.Context) error {
			return ignored(c.GetVolume(ctx, &storagepb.GetVolumeRequest{Id: volume}))
		},
		"CreateVolume": func(ctx context.Context) error {
			return ignored(c.CreateVolume(ctx, &storagepb.CreateVolumeRequest{Name: "none"}))
		},
		"DeleteVolume": func(ctx context.Context) error {
			return ignored(c.DeleteVolume(ctx, &storagepb.DeleteVolumeRequest{Id: "none"}))
		},
		"CreateSnapshot": func(ctx context.Context) error {
			return ignored(c.CreateSnapshot(ctx, &storagepb.CreateSnapshotRequest{Id: "none"}))
		},
		"ListVolumesByOwner": func(ctx context.Context) error {
			return ignored(c.ListVolumesByOwner(ctx, &storagepb.ListVolumesByOwnerRequest{Product: "vm"}))
		},
		"GetJob": func(ctx context.Context) error { return ignored(c.GetJob(ctx, &storagepb.GetJobRequest{Id: job})) },
		"WatchJob": func(ctx context.Context) error {
			stream, err := c.WatchJob(ctx, &storagepb.WatchJobRequest{Id: job})
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
		"ListAlerts": func(ctx context.Context) error { return ignored(c.ListAlerts(ctx, &storagepb.ListAlertsRequest{})) },
		"GetMetricsSummary": func(ctx context.Context) error {
			return ignored(c.GetMetricsSummary(ctx, &storagepb.GetMetricsSummaryRequest{}))
		},
		"ListBuckets": func(ctx context.Context) error { return ignored(c.ListBuckets(ctx, &storagepb.ListBucketsRequest{})) },
	}
}

func TestEveryGRPCMethodHasItsRole(t *testing.T) {
	t.Parallel()
	g := start(t)
	c := g.rpc()
	for _, tenant := range []string{"acme", "globex"} {
		g.call("PUT", "/tenants/"+tenant, g.admin, object{}).Want(200)
	}
	a := g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib, "tenant_id": "acme"})
	volume, job := g.done(a, g.admin), contracttest.As[storageapi.VolumeAccepted](a).JobId
	const (
		ok, unauthenticated, denied = codes.OK, codes.Unauthenticated, codes.PermissionDenied
		notFound, invalid           = codes.NotFound, codes.InvalidArgument
	)
	who := []struct{ name, token string }{
		{"nobody", ""}, {"expired", g.sign(jose.HS256, "ada", "admin", "", -time.Hour)},
		{"no signature", unsigned("ada", "admin")}, {"no role", g.token("eve", "owner", "")},
		{"viewer", g.token("vera", "viewer", "acme")}, {"operator", g.token("otto", "operator", "acme")},
		{"admin", g.token("ann", "admin", "acme")}, {"another tenant", g.token("fred", "admin", "globex")},
	}
	// By the callers above.
	read := []codes.Code{unauthenticated, unauthenticated, unauthenticated, denied, ok, ok, ok, ok}
	one := append(slices.Clone(read[:7]), notFound)
	want := map[string][]codes.Code{
		"Health": {ok, ok, ok, ok, ok, ok, ok, ok}, "ListClusters": read, "ListPools": read, "ListVolumes": read,
		"ListVolumesByOwner": read, "GetVolume": one, "GetJob": one, "WatchJob": one,
		"ListAlerts": read, "GetMetricsSummary": read, "ListBuckets": read,
		"CreateVolume":   {unauthenticated, unauthenticated, unauthenticated, denied, denied, invalid, invalid, invalid},
		"CreateSnapshot": {unauthenticated, unauthenticated, unauthenticated, denied, denied, notFound, notFound, notFound},
		"DeleteVolume":   {unauthenticated, unauthenticated, unauthenticated, denied, denied, denied, notFound, notFound},
	}
	calls := c.calls(volume, job)
	info := storagepb.StorageGateway_ServiceDesc
	if n := len(info.Methods) + len(info.Streams); n != len(calls) || n != len(want) {
		t.Fatalf("%d methods, %d calls, %d wanted", n, len(calls), len(want))
	}
	for method, call := range calls {
		for i, caller := range who {
			if err := call(g.as(caller.token)); status.Code(err) != want[method][i] {
				t.Errorf("%s as %s: %v, want %v", method, caller.name, err, want[method][i])
			}
		}
	}
	if all, err := c.ListVolumes(g.as(who[7].token), &storagepb.ListVolumesRequest{}); err != nil || len(all.Volumes) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	other := g.sign(jose.HS512, "ada", "admin", "", time.Hour)
	if err := calls["ListVolumes"](g.as(other)); status.Code(err) != unauthenticated {
		t.Error(err)
	}
	twice := g.as(who[4].token, "authorization", "Bearer "+who[4].token)
	if err := calls["ListVolumes"](twice); status.Code(err) != unauthenticated {
		t.Error(err)
	}
	var denials []string
	for _, e := range contracttest.As[[]storageapi.AuditEntry](g.call("GET", "/audit?result=denied", g.admin, nil).Want(200)) {
		denials = append(denials, e.Action)
	}
	for _, action := range []string{"volume.create", "volume.delete", "snapshot.create"} {
		if !slices.Contains(denials, action) {
			t.Errorf("no audit entry of a denied %s: %v", action, denials)
		}
	}
}

// unsigned returns a token of the algorithm none.
func unsigned(name, role string) string {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return encode(`{"alg":"none","typ":"JWT"}`) + "." +
		encode(fmt.Sprintf(`{"sub":%q,"role":%q,"exp":%d}`, name, role, time.Now().Add(time.Hour).Unix())) + "."
}

func TestAlertsAndTheSummaryAreTheSameOverGRPC(t *testing.T) {
	t.Parallel()
	g := start(t)
	c := g.rpc()
	g.call("PUT", "/tenants/acme", g.admin, object{"quota": object{"volumes": 1}}).Want(200)
	g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib, "tenant_id": "acme"}), g.admin)
	g.call("POST", "/alerts/evaluate", g.admin, nil).Want(200)
	ann := g.token("ann", "operator", "acme")
	id := g.alert("quota_almost_used", ann).Id
	g.call("POST", "/alerts/"+id+"/ack", ann, nil).Want(200)
	want := contracttest.As[storageapi.Alert](g.call("POST", "/alerts/"+id+"/silence", ann, nil).Want(200))
	all, err := c.ListAlerts(g.as(ann), &storagepb.ListAlertsRequest{State: "open", Severity: "critical", Limit: 1})
	if err != nil || len(all.Alerts) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	got := all.Alerts[0]
	if got.Id != want.Id || got.Severity != string(want.Severity) || got.Source != want.Source || got.Title != want.Title ||
		got.Description != want.Description || got.State != string(want.State) || !got.CreatedAt.AsTime().Equal(want.CreatedAt) ||
		got.ResourceType != want.ResourceType || got.ResourceId != want.ResourceId || got.TenantId != "acme" ||
		got.Evidence.AsMap()["used"] != want.Evidence["used"] || got.AcknowledgedBy != want.AcknowledgedBy ||
		!got.AcknowledgedAt.AsTime().Equal(*want.AcknowledgedAt) || !got.SilencedUntil.AsTime().Equal(*want.SilencedUntil) {
		t.Errorf("%v, want %+v", got, want)
	}
	sum := contracttest.As[storageapi.Summary](g.call("GET", "/metrics/summary?cluster=local", g.admin, nil).Want(200))
	counts, err := c.GetMetricsSummary(g.as(g.admin), &storagepb.GetMetricsSummaryRequest{Cluster: "local"})
	if err != nil || counts.Clusters != int64(sum.Clusters) || counts.Pools != int64(sum.Pools) || counts.Volumes != 1 ||
		counts.RawCapacityBytes != sum.RawCapacityBytes || len(counts.Forecasts) != len(sum.Forecasts) || len(sum.Forecasts) != 1 ||
		counts.Forecasts[0].ClusterId != sum.Forecasts[0].ClusterId {
		t.Errorf("%v, %+v, %v", counts, sum, err)
	}
}
