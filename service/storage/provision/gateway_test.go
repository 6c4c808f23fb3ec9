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

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }
