package provision_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	kitjobs "github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/provision"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

const mib = 1 << 20

// gateway is the gateway's inside on one folder.
type gateway struct {
	*testing.T
	db       *db.DB
	folder   string
	store    *record.Store
	jobs     *job.Runner
	backends *backend.Set
	volumes  *provision.Manager
	backend  record.Backend
	admin    context.Context
	broken   atomic.Pointer[error] // what calls to the driver fail with
	hold     atomic.Pointer[gate]
	stop     func() // stops what runs jobs
}

// gate is where calls to the driver wait.
type gate struct {
	entered, open chan struct{}
	fail          error // of the call that has waited
}

// closed makes calls to the driver wait from now on.
func (g *gateway) closed() *gate {
	at := &gate{entered: make(chan struct{}, 10), open: make(chan struct{})}
	g.hold.Store(at)
	return at
}

// breakable is a driver whose calls fail or wait when the test says so.
type breakable struct {
	*directory.Driver
	g *gateway
}

func (b breakable) check(ctx context.Context) error {
	if at := b.g.hold.Load(); at != nil {
		at.entered <- struct{}{}
		select {
		case <-at.open:
			if at.fail != nil {
				return at.fail
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := b.g.broken.Load(); err != nil {
		return *err
	}
	return nil
}

func (b breakable) CreateVolume(ctx context.Context, spec driver.VolumeSpec) (driver.Volume, error) {
	if err := b.check(ctx); err != nil {
		return driver.Volume{}, err
	}
	return b.Driver.CreateVolume(ctx, spec)
}

func (b breakable) ExpandVolume(ctx context.Context, n driver.Name, size int64) (driver.Volume, error) {
	if err := b.check(ctx); err != nil {
		return driver.Volume{}, err
	}
	return b.Driver.ExpandVolume(ctx, n, size)
}

func (b breakable) DeleteVolume(ctx context.Context, n driver.Name) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	return b.Driver.DeleteVolume(ctx, n)
}

func (b breakable) CreateSnapshot(
	ctx context.Context, of, name driver.Name, progress func(float64),
) (driver.Snapshot, error) {
	if err := b.check(ctx); err != nil {
		return driver.Snapshot{}, err
	}
	return b.Driver.CreateSnapshot(ctx, of, name, progress)
}

// engines runs a test on both databases.
func engines(t *testing.T, test func(g *gateway)) {
	t.Helper()
	dbtest.Each(t, nil, func(t *testing.T, d *db.DB) { test(newGateway(t, d)) })
}

func newGateway(t *testing.T, d *db.DB) *gateway {
	t.Helper()
	g := &gateway{T: t, db: d, folder: filepath.Join(t.TempDir(), "volumes")}
	for _, m := range []db.Migration{
		{Owner: "audit", Files: audit.Migrations()},
		{Owner: "jobs", Files: kitjobs.Migrations()},
		{Owner: "operation", Files: operation.Migrations()},
		{Owner: "storage", Files: record.Migrations()},
	} {
		if err := d.Migrate(t.Context(), m.Owner, m.Files); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	entries, err := audit.Open(t.Context(), audit.Config{
		DB: d, Seed: make([]byte, 32), Now: time.Now, Log: log, Checkpoints: filepath.Join(t.TempDir(), "checkpoints"),
	})
	if err != nil {
		t.Fatal(err)
	}
	g.store = record.New(d, entries, time.Now)
	g.admin = as(t.Context(), caller.Admin, "")
	g.begin(log)
	if g.backend, err = g.store.AddBackend(g.admin, record.Backend{Name: "local", Type: "nfs", Mode: record.External}); err != nil {
		t.Fatal(err)
	}
	g.discover()
	for name, kind := range map[string]driver.Kind{
		record.DefaultPolicy: driver.Block, record.SharedPolicy: driver.Filesystem,
	} {
		if _, err := g.store.PutPolicy(g.admin, record.Policy{
			Name: name, BackendID: g.backend.ID, Pool: directory.PoolName, Kind: kind,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func as(ctx context.Context, role caller.Role, tenant string) context.Context {
	return shell.As(ctx, caller.Caller{Name: "ann", Role: role, Tenant: tenant})
}

// begin starts what runs jobs.
func (g *gateway) begin(log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	g.jobs = job.New(job.Config{Store: g.store, DB: g.db, Log: log, Now: time.Now, Ending: ctx})
	g.backends = backend.New(backend.Config{
		Store: g.store, Log: log, Now: time.Now, Ending: ctx,
		Open: func(context.Context, record.Backend) (driver.Driver, error) {
			d, err := directory.Open(g.folder, "")
			return breakable{d, g}, err
		},
	})
	g.volumes = provision.New(provision.Config{
		Store: g.store, Jobs: g.jobs, Backends: g.backends, Log: log, Now: time.Now,
	})
	var running sync.WaitGroup
	runner, backends := g.jobs, g.backends
	running.Go(func() {
		if err := runner.Run(ctx); err != nil {
			g.Error(err)
		}
	})
	g.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := backends.Close(); err != nil {
			g.Error(err)
		}
	})
	g.Cleanup(g.stop)
}

func (g *gateway) discover() backend.Summary {
	g.Helper()
	found, err := g.backends.Discover(g.admin, g.backend.ID)
	if err != nil {
		g.Fatal(err)
	}
	return found
}

// ended waits for the end of a job.
func (g *gateway) ended(j record.Job) record.Job {
	g.Helper()
	j, err := g.jobs.Await(g.admin, j.ID, 30*time.Second)
	if err != nil || !j.Job.State.Finished() {
		g.Fatalf("%+v, %v", j, err)
	}
	return j
}

// done waits for the success of a job.
func (g *gateway) done(j record.Job) {
	g.Helper()
	if j = g.ended(j); j.Job.State != kitjobs.Succeeded {
		g.Fatalf("%s: %s, %s", j.Kind, j.Job.State, j.Job.Error)
	}
}

func (g *gateway) volume(id string) record.Volume {
	g.Helper()
	v, err := g.store.Volume(g.admin, id)
	if err != nil {
		g.Fatal(err)
	}
	return v
}

// made makes a volume of 8 MiB of no tenant.
func (g *gateway) made(name string) record.Volume {
	g.Helper()
	v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: name, Size: 8 * mib})
	if err != nil {
		g.Fatal(err)
	}
	g.done(j)
	return g.volume(v.ID)
}

func (g *gateway) data(v record.Volume) string {
	return filepath.Join(g.folder, "volumes", v.Native, "data")
}

func (g *gateway) write(v record.Volume, content string) {
	g.Helper()
	f, err := os.OpenFile(g.data(v), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(content), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		g.Fatal(err)
	}
}

func (g *gateway) holds(v record.Volume, want string) {
	g.Helper()
	got, err := os.ReadFile(g.data(v))
	if err != nil || !strings.HasPrefix(string(got), want) {
		g.Errorf("%s holds %.20q, want %q; %v", v.Name, got, want, err)
	}
}

func TestTheWholeLifeOfAVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib, Owner: record.Owner{Product: "vm"}})
		if err != nil || v.State != state.Creating || j.ResourceID != v.ID || j.Kind != record.JobCreateVolume {
			t.Fatalf("%+v, %+v, %v", v, j, err)
		}
		g.done(j)
		v = g.volume(v.ID)
		if v.State != state.Available || v.Kind != driver.Block || v.Size != 8*mib || v.Health != driver.Healthy ||
			!v.Enforced || v.Owner.V.Product != "vm" {
			t.Errorf("%+v", v)
		}
		g.write(v, "first")
		v, j, err = g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 16*mib)
		if err != nil || v.State != state.Expanding || v.Size != 16*mib {
			t.Fatalf("%+v, %v", v, err)
		}
		g.done(j)
		if v = g.volume(v.ID); v.State != state.Available || v.Size != 16*mib {
			t.Errorf("%+v", v)
		}
		sn, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "before"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if sn, err = g.store.Snapshot(g.admin, sn.ID); err != nil || sn.State != state.SnapshotReady || sn.Size != 16*mib ||
			sn.Consistency == "" || sn.ReadyAt.IsZero() {
			t.Errorf("%+v, %v", sn, err)
		}
		g.write(v, "second")
		clone, j, err := g.volumes.Clone(g.admin, sn.ID, record.CloneRequest{Kind: record.JobClone, Name: "copy"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		g.holds(g.volume(clone.ID), "first")
		g.holds(v, "second")
		if _, _, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a volume with snapshots: %v", err)
		}
		if _, _, err := g.volumes.DeleteSnapshot(g.admin, sn.ID, record.JobDeleteSnapshot, false); !fault.Is(err, fault.Conflict) {
			t.Errorf("a snapshot with clones: %v", err)
		}
		if _, j, err = g.volumes.DeleteSnapshot(g.admin, sn.ID, record.JobDeleteSnapshot, true); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		g.holds(g.volume(clone.ID), "first")
		if _, j, err = g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("after its deletion: %v", err)
		}
		if _, err := os.Stat(g.data(v)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its data: %v", err)
		}
	})
}

func TestARepeatedRequestMakesOneVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		req := record.VolumeRequest{Name: "data", Size: 8 * mib}
		v, first, err := g.volumes.Create(g.admin, req)
		if err != nil {
			t.Fatal(err)
		}
		again, j, err := g.volumes.Create(g.admin, req)
		if err != nil || again.ID != v.ID || j.ID != first.ID {
			t.Errorf("%+v, %+v, %v", again, j, err)
		}
		g.done(first)
		// It is the size first asked for that counts.
		if _, j, err = g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 16*mib); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if again, _, err = g.volumes.Create(g.admin, req); err != nil || again.ID != v.ID {
			t.Errorf("%+v, %v", again, err)
		}
		for _, other := range []record.VolumeRequest{
			{Name: "data", Size: 16 * mib}, {Name: "data", Size: 8 * mib, Policy: record.SharedPolicy},
		} {
			if _, _, err := g.volumes.Create(g.admin, other); !fault.Is(err, fault.Conflict) {
				t.Errorf("%+v: %v", other, err)
			}
		}
		// Its name is free once it is deleted.
		if _, j, err = g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if again, _, err = g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: mib}); err != nil || again.ID == v.ID {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

// Two replicas look at the same moment, and both find the name free.
func TestTheSameRequestAtOnceMakesOneVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		const atOnce = 8
		ids, jobs, problems := make([]string, atOnce), make([]string, atOnce), make([]error, atOnce)
		var requests sync.WaitGroup
		start := make(chan struct{})
		for i := range atOnce {
			requests.Go(func() {
				<-start
				v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: mib, Kind: driver.Filesystem})
				ids[i], jobs[i], problems[i] = v.ID, j.ID, err
				if v.Kind != driver.Filesystem {
					t.Errorf("%+v", v)
				}
			})
		}
		close(start)
		requests.Wait()
		for i := range atOnce {
			if problems[i] != nil || ids[i] != ids[0] || jobs[i] != jobs[0] || ids[i] == "" {
				t.Errorf("%s by %s, not %s by %s: %v", ids[i], jobs[i], ids[0], jobs[0], problems[i])
			}
		}
	})
}

func TestWhatCannotBeMadeIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		for name, c := range map[string]struct {
			do   func() error
			kind fault.Kind
		}{
			"policy": {func() error {
				_, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "x", Size: mib, Policy: "none"})
				return err
			}, fault.Invalid},
			"tenant": {func() error {
				_, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "x", Size: mib, Tenant: "none"})
				return err
			}, fault.Invalid},
			"smaller": {func() error { _, _, err := g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, mib); return err }, fault.Invalid},
			"same":    {func() error { _, _, err := g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 8*mib); return err }, fault.Invalid},
			"unknown": {func() error {
				_, _, err := g.volumes.Expand(g.admin, "none", record.JobExpandVolume, 16*mib)
				return err
			}, fault.NotFound},
			"cordoned": {func() error {
				if _, err := g.store.Cordon(g.admin, g.backend.ID, true); err != nil {
					return err
				}
				_, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "x", Size: mib})
				_, uncordon := g.store.Cordon(g.admin, g.backend.ID, false)
				return errors.Join(err, uncordon)
			}, fault.Unavailable},
		} {
			if err := c.do(); !fault.Is(err, c.kind) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if all, err := g.store.Volumes(g.admin, record.VolumeFilter{}, 10); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		if found := g.discover(); found.Volumes != 1 {
			t.Errorf("%+v", found)
		}
	})
}

func TestQuotasHoldForRequestsAtOnce(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		limit, bytes, snapshots := int64(5), int64(24*mib), int64(1)
		if _, err := g.store.PutTenant(g.admin, record.Tenant{
			Name: "acme", MaxVolumes: &limit, MaxBytes: &bytes, MaxSnapshots: &snapshots,
		}); err != nil {
			t.Fatal(err)
		}
		var created atomic.Int64
		var asking sync.WaitGroup
		for i := range 8 {
			asking.Go(func() {
				_, j, err := g.volumes.Create(g.admin, record.VolumeRequest{
					Tenant: "acme", Name: "v" + strings.Repeat("i", i+1), Size: 8 * mib,
				})
				switch {
				case err == nil:
					created.Add(1)
					g.done(j)
				case !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "quota bytes of tenant acme"):
					t.Error(err)
				}
			})
		}
		asking.Wait()
		of, err := g.store.Tenant(g.admin, "acme")
		if err != nil || created.Load() != 3 || of.Used != (record.Use{Volumes: 3, Bytes: 24 * mib}) {
			t.Errorf("%d volumes, %+v, %v", created.Load(), of, err)
		}
		all, err := g.store.Volumes(as(t.Context(), caller.Viewer, "acme"), record.VolumeFilter{}, 10)
		if err != nil || len(all) != 3 || all[0].ID < all[2].ID {
			t.Fatalf("%d, %v", len(all), err)
		}
		if _, _, err := g.volumes.Expand(g.admin, all[0].ID, record.JobExpandVolume, 9*mib); !fault.Is(err, fault.Denied) {
			t.Errorf("an expansion: %v", err)
		}
		if _, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: all[0].ID, Kind: record.JobSnapshot, Name: "one"}); err != nil {
			t.Error(err)
		} else {
			g.done(j)
		}
		if _, _, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: all[0].ID, Kind: record.JobSnapshot, Name: "two"}); !fault.Is(err, fault.Denied) {
			t.Errorf("a second snapshot: %v", err)
		}
		if err := g.store.DeleteTenant(g.admin, "acme"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a tenant with volumes was deleted: %v", err)
		}
	})
}

func TestTenantsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		for _, tenant := range []string{"acme", "beta"} {
			if _, err := g.store.PutTenant(g.admin, record.Tenant{Name: tenant}); err != nil {
				t.Fatal(err)
			}
		}
		acme, beta := as(t.Context(), caller.Admin, "acme"), as(t.Context(), caller.Admin, "beta")
		v, j, err := g.volumes.Create(acme, record.VolumeRequest{Tenant: "acme", Name: "data", Size: mib})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		sn, j2, err := g.volumes.Snapshot(acme, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "one"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j2)
		for name, err := range map[string]error{
			"volume":   second(g.store.Volume(beta, v.ID)),
			"snapshot": second(g.store.Snapshot(beta, sn.ID)),
			"job":      second(g.store.Job(beta, j.ID)),
			"tenant":   second(g.store.Tenant(beta, "acme")),
			"expand":   third(g.volumes.Expand(beta, v.ID, record.JobExpandVolume, 2*mib)),
			"delete":   third(g.volumes.Delete(beta, v.ID, record.Deletion{Kind: record.JobDeleteVolume})),
			"clone":    third(g.volumes.Clone(beta, sn.ID, record.CloneRequest{Kind: record.JobClone, Name: "stolen"})),
			"nobody":   second(g.store.Volume(t.Context(), v.ID)),
		} {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		volumes, err1 := g.store.Volumes(beta, record.VolumeFilter{}, 10)
		snapshots, err2 := g.store.Snapshots(beta, record.SnapshotFilter{}, 10)
		jobs, err3 := g.store.Jobs(beta, record.JobFilter{}, 10)
		tenants, err4 := g.store.Tenants(beta, "", 10)
		if errors.Join(err1, err2, err3, err4) != nil || len(volumes)+len(snapshots)+len(jobs) != 0 || len(tenants) != 1 {
			t.Errorf("%+v, %+v, %+v, %+v", volumes, snapshots, jobs, tenants)
		}
	})
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

func TestAFailureIsToldAndTheNextAttemptMakesTheVolume(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		why := error(fault.New(fault.StorageFailed, "the storage is full"))
		g.broken.Store(&why)
		req := record.VolumeRequest{Name: "data", Size: 8 * mib}
		v, j, err := g.volumes.Create(g.admin, req)
		if err != nil {
			t.Fatal(err)
		}
		if j = g.ended(j); j.Job.State != kitjobs.Failed || j.Job.Error != "the storage is full" || j.Job.ErrorCode != "storage_failed" {
			t.Errorf("%+v", j.Job)
		}
		if v = g.volume(v.ID); v.State != state.Failed || v.LastError != "the storage is full" {
			t.Errorf("%+v", v)
		}
		g.broken.Store(nil)
		// The same name takes another size now: there is no such volume yet.
		req.Size = 16 * mib
		again, j, err := g.volumes.Create(g.admin, req)
		if err != nil || again.ID == v.ID {
			t.Fatalf("%+v, %v", again, err)
		}
		g.done(j)
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("the failed one: %v", err)
		}
		g.broken.Store(&why)
		if _, j, err = g.volumes.Expand(g.admin, again.ID, record.JobExpandVolume, 32*mib); err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		if v = g.volume(again.ID); v.State != state.GrowthFailed || v.Size != 16*mib {
			t.Errorf("%+v", v)
		}
		if _, j, err = g.volumes.Delete(g.admin, again.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.ended(j)
		if v = g.volume(again.ID); v.State != state.DeletionFailed {
			t.Errorf("%+v", v)
		}
		g.broken.Store(nil)
		if _, j, err = g.volumes.Delete(g.admin, again.ID, record.Deletion{Kind: record.JobDeleteVolume}); err != nil {
			t.Fatal(err)
		}
		g.done(j)
	})
}

func TestACancelledJobLeavesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		at := g.closed()
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib})
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		g.hold.Store(nil) // for the calls that come after this one
		if _, err := g.jobs.Cancel(g.admin, j.ID); err != nil {
			t.Fatal(err)
		}
		if j = g.ended(j); j.Job.State != kitjobs.Cancelled {
			t.Errorf("%+v", j.Job)
		}
		if v = g.volume(v.ID); v.State != state.Failed || v.LastError != "the job was cancelled" {
			t.Errorf("%+v", v)
		}
		if found := g.discover(); found.Volumes != 0 {
			t.Errorf("%+v", found)
		}
	})
}

// The end of the process in the middle of a job is no failure: the job goes on afterwards.
func TestAJobThatTheEndOfTheProcessInterruptsGoesOn(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.write(v, "content")
		log := slog.New(slog.DiscardHandler)
		at := g.closed()
		// The gateway's own runner takes the job; it waits in the driver until it is stopped.
		sn, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "one"})
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		g.stop()
		if sn, err = g.store.Snapshot(g.admin, sn.ID); err != nil || sn.State != state.SnapshotCreating {
			t.Errorf("%+v, %v", sn, err)
		}
		g.hold.Store(nil)
		g.begin(log)
		g.done(j)
		if sn, err = g.store.Snapshot(g.admin, sn.ID); err != nil || sn.State != state.SnapshotReady {
			t.Errorf("%+v, %v", sn, err)
		}
	})
}

func TestDiscoveryTakesInWhatIsThereAndMarksWhatVanished(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v, other := g.made("data"), g.made("other")
		if err := errors.Join(
			os.Mkdir(filepath.Join(g.folder, "photos"), 0o700),
			os.Rename(filepath.Dir(g.data(v)), filepath.Join(g.folder, "aside")),
		); err != nil {
			t.Fatal(err)
		}
		found := g.discover()
		if found.Volumes != 3 || found.Missing != 1 || found.Pools != 1 || found.ClusterID == "" {
			t.Errorf("%+v", found)
		}
		all, err := g.store.Volumes(g.admin, record.VolumeFilter{State: string(state.Available)}, 10)
		if err != nil || len(all) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		foreign := 0
		for _, v := range all {
			if !v.Foreign {
				continue
			}
			foreign++
			for _, err := range []error{
				third(g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})), third(g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 1<<40)),
				third(g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "x"})),
			} {
				if !fault.Is(err, fault.Conflict) {
					t.Errorf("%s: %v", v.Name, err)
				}
			}
		}
		if foreign != 2 || g.volume(v.ID).State != state.Missing || g.volume(other.ID).State != state.Available {
			t.Errorf("%d foreign; %s, %s", foreign, g.volume(v.ID).State, g.volume(other.ID).State)
		}
		// It comes back.
		if err := os.Rename(filepath.Join(g.folder, "aside"), filepath.Dir(g.data(v))); err != nil {
			t.Fatal(err)
		}
		if g.discover(); g.volume(v.ID).State != state.Available {
			t.Errorf("%+v", g.volume(v.ID))
		}
	})
}

func TestAnotherStorageSystemInTheSamePlaceIsRefused(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.stop()
		if err := errors.Join(os.Rename(g.folder, g.folder+".old"), os.Mkdir(g.folder, 0o700)); err != nil {
			t.Fatal(err)
		}
		g.begin(slog.New(slog.DiscardHandler))
		if _, err := g.backends.Discover(g.admin, g.backend.ID); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		_, j, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})
		if err != nil {
			t.Fatal(err)
		}
		if j = g.ended(j); j.Job.State != kitjobs.Failed || !strings.Contains(j.Job.Error, "another storage system") {
			t.Errorf("%+v", j.Job)
		}
		if v = g.volume(v.ID); v.State != state.DeletionFailed {
			t.Errorf("%+v", v)
		}
	})
}

// A run that was paused, and overtaken by another one, comes to its end after that one.
func TestARunThatWasOvertakenChangesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		why := fault.New(fault.Unavailable, "the storage has not answered")
		own := caller.ByItself(t.Context())
		if err := g.store.EndVolume(own, record.VolumeArgs{ID: v.ID}, state.Create, nil, why); err != nil {
			t.Fatal(err)
		}
		if now := g.volume(v.ID); now.State != state.Available || now.LastError != "" || now.UpdatedAt != v.UpdatedAt {
			t.Errorf("%+v", now)
		}
		g.write(v, "kept")
		_, j, err := g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if err := g.store.EndVolume(own, record.VolumeArgs{ID: v.ID}, state.Delete, nil, why); err != nil {
			t.Error(err)
		}
		if _, err := g.store.Volume(g.admin, v.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("a deleted volume is back: %v", err)
		}
	})
}

// What has failed in one replica may have been made by another one meanwhile.
func TestAJobThatFailsRemovesNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		at := g.closed()
		v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib})
		if err != nil {
			t.Fatal(err)
		}
		<-at.entered
		other, err := directory.Open(g.folder, "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		name := driver.Name{Pool: directory.PoolName, Native: v.Native}
		if _, err := other.CreateVolume(t.Context(), driver.VolumeSpec{Name: name, Kind: driver.Block, Size: 8 * mib}); err != nil {
			t.Fatal(err)
		}
		g.write(v, "precious")
		g.hold.Store(nil)
		at.fail = fault.New(fault.Unavailable, "the storage has not answered")
		close(at.open)
		if j = g.ended(j); j.Job.State != kitjobs.Failed {
			t.Errorf("%+v", j.Job)
		}
		g.holds(v, "precious")
	})
}

func TestARequestThatIsRepeatedLongAfterGetsAJobThatSucceeds(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		g.write(v, "kept")
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "DELETE FROM operations")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		again, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "data", Size: 8 * mib})
		if err != nil || again.ID != v.ID || j.ID == "" {
			t.Fatalf("%+v, %+v, %v", again, j, err)
		}
		g.done(j)
		g.holds(v, "kept")
	})
}

func TestTheKindIsThatOfTheRequestUnlessAPolicyIsNamed(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		for name, c := range map[string]struct {
			policy     string
			kind, want driver.Kind
		}{
			"a": {"", "", driver.Block},
			"b": {"", driver.Filesystem, driver.Filesystem},
			"c": {record.SharedPolicy, driver.Block, driver.Filesystem},
			"d": {record.DefaultPolicy, driver.Filesystem, driver.Block},
		} {
			v, j, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: name, Size: mib, Policy: c.policy, Kind: c.kind})
			if err != nil {
				t.Fatal(err)
			}
			g.done(j)
			if v = g.volume(v.ID); v.Kind != c.want {
				t.Errorf("%s: %s, want %s", name, v.Kind, c.want)
			}
		}
		if _, _, err := g.volumes.Create(g.admin, record.VolumeRequest{Name: "e", Size: mib, Kind: driver.Object}); !fault.Is(
			err, fault.Invalid,
		) {
			t.Error(err)
		}
	})
}

func TestNothingIsChangedInAReadOnlyBackend(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		sn, j, err := g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "one"})
		if err != nil {
			t.Fatal(err)
		}
		g.done(j)
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE backends SET mode = ?", record.ReadOnly)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"create":          third(g.volumes.Create(g.admin, record.VolumeRequest{Name: "more", Size: mib})),
			"expand":          third(g.volumes.Expand(g.admin, v.ID, record.JobExpandVolume, 16*mib)),
			"delete":          third(g.volumes.Delete(g.admin, v.ID, record.Deletion{Kind: record.JobDeleteVolume})),
			"snapshot":        third(g.volumes.Snapshot(g.admin, record.SnapshotRequest{Volume: v.ID, Kind: record.JobSnapshot, Name: "two"})),
			"delete snapshot": third(g.volumes.DeleteSnapshot(g.admin, sn.ID, record.JobDeleteSnapshot, true)),
			"clone":           third(g.volumes.Clone(g.admin, sn.ID, record.CloneRequest{Kind: record.JobClone, Name: "copy"})),
		} {
			if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if g.volume(v.ID).State != state.Available {
			t.Errorf("%+v", g.volume(v.ID))
		}
	})
}

func TestWhatALostJobHasLeftIsEnded(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		v := g.made("data")
		if err := g.db.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE volumes SET state = ? WHERE id = ?", state.Expanding, v.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := g.volumes.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v = g.volume(v.ID); v.State != state.GrowthFailed || v.LastError == "" {
			t.Errorf("%+v", v)
		}
	})
}
