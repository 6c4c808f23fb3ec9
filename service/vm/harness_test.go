package vm_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
	"github.com/mainstay-infra/mainstay/service/vm/httpapi"
)

// object is a JSON object.
type object = map[string]any

type answer = contracttest.Answer

const (
	adminName     = "admin"
	adminPassword = "correct horse battery"
)

// manager is a running service, talked to over HTTP as its users would. Every answer is held against
// the contract.
type manager struct {
	*testing.T
	url      string
	daemon   *drivertest.Daemon
	recorder *contracttest.Recorder
	contract *contract.Contract
	admin    string        // a token
	skew     *atomic.Int64 // nanoseconds that the service's clock is ahead
	stop     func()
	config   vm.Config
	service  *vm.Service
}

// engines runs a test on a service on SQLite and on one on PostgreSQL.
func engines(t *testing.T, test func(m *manager)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(start(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url := dbtest.PostgresURL(t)
		test(start(t, func(c *vm.Config) { c.Database = url }))
	})
}

// start runs a service with a stand-in for the daemon until the test ends.
func start(t *testing.T, change ...func(*vm.Config)) *manager {
	t.Helper()
	var cfg vm.Config
	if err := config.Load(&cfg, vm.EnvPrefix, config.Sources{}); err != nil {
		t.Fatal(err)
	}
	m := &manager{T: t, daemon: drivertest.New(t), skew: new(atomic.Int64)}
	cfg.Data, cfg.HypervisorURL, cfg.HypervisorToken = t.TempDir(), m.daemon.URL, drivertest.Token
	cfg.AdminUsername, cfg.AdminPassword = adminName, adminPassword
	cfg.ImageFolder = filepath.Join(t.TempDir(), "images")
	cfg.ImageDownloadMirrors = []string{"debian=https://127.0.0.1:1"} // tests that download say from where
	cfg.CompareInterval = 200 * time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	m.config = cfg
	m.begin()
	return m
}

// begin starts the service with its configuration.
func (m *manager) begin() {
	m.Helper()
	svc, err := vm.New(m.Context(), m.config, vm.Deps{
		Log:      slog.New(slog.NewTextHandler(m.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Registry: prometheus.NewRegistry(),
		Now:      func() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) },
	})
	if err != nil {
		m.Fatal(err)
	}
	m.service = svc
	if m.contract, err = httpapi.Contract(); err != nil {
		m.Fatal(err)
	}
	if m.recorder == nil {
		m.recorder = contracttest.New(m.contract, vmapi.BasePath)
	}
	server := httptest.NewServer(m.recorder.Wrap(m.T, svc.Handler()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	m.url = server.URL
	m.stop = sync.OnceFunc(func() {
		cancel()
		server.Close()
		if err := <-done; err != nil {
			m.Errorf("run: %v", err)
		}
		if err := svc.Close(); err != nil {
			m.Errorf("close: %v", err)
		}
	})
	m.Cleanup(m.stop)
	m.admin = m.login(adminName, adminPassword)
}

// again stops the service and starts it with the same database.
func (m *manager) again() {
	m.Helper()
	m.stop()
	m.begin()
}

func (m *manager) call(method, path, token string, body any) answer {
	m.Helper()
	return contracttest.Send(m.T, nil, contracttest.Request{Method: method, URL: m.url + path, Token: token, Body: body})
}

func (m *manager) login(username, password string) string {
	m.Helper()
	a := m.call("POST", "/api/auth/login", "", object{"username": username, "password": password}).Want(200)
	return contracttest.As[vmapi.Session](a).Token
}

// user adds a user of a tenant and returns a token.
func (m *manager) user(name, role, tenant string) string {
	m.Helper()
	m.call("POST", "/api/users", m.admin, object{
		"username": name, "role": role, "tenant": tenant, "password": "password of " + name,
	}).Want(201)
	return m.login(name, "password of "+name)
}

// vm returns a VM by its name.
func (m *manager) vm(name, token string) vmapi.VM {
	m.Helper()
	return contracttest.As[vmapi.VM](m.call("GET", "/api/vms/"+name, token, nil).Want(200))
}

// made creates a VM, and waits until no job changes it.
func (m *manager) made(name, token string) vmapi.VM {
	m.Helper()
	m.call("POST", "/api/vms", token, object{"name": name, "image": "demo"}).Want(201)
	return m.settled(name, token)
}

// settled returns a VM once no job changes it.
func (m *manager) settled(name, token string) vmapi.VM {
	m.Helper()
	for {
		v := m.vm(name, token)
		if v.Job == nil {
			return v
		}
		m.call("GET", "/api/jobs/"+v.Job.Id+"?wait=30", token, nil).Want(200)
	}
}

// eventually polls what another goroutine of the service does.
func (m *manager) eventually(what string, ok func() bool) {
	m.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.Fatalf("not within 30 s: %s", what)
		}
	}
}

// now returns the service's time.
func (m *manager) now() time.Time { return time.Now().Add(time.Duration(m.skew.Load())) }

// ahead moves the service's clock, and signs in anew, since tokens expire.
func (m *manager) ahead(by time.Duration) {
	m.Helper()
	m.skew.Add(int64(by))
	m.admin = m.login(adminName, adminPassword)
}

// idle reports whether no backup is being made or restored.
func (m *manager) idle() bool {
	m.Helper()
	for _, j := range contracttest.As[[]vmapi.BackupJob](m.call("GET", "/api/backups/jobs", m.admin, nil).Want(200)) {
		if j.Status == "queued" || j.Status == "running" {
			return false
		}
	}
	return true
}

// breakAudit changes an entry of the audit log in the database, behind the service's back.
func (m *manager) breakAudit() {
	m.Helper()
	m.stop()
	d, err := db.Open(m.Context(), db.Config{URL: m.config.Database, Path: vm.DatabaseFile(m.config.Data), Schema: "vm"})
	if err != nil {
		m.Fatal(err)
	}
	err = d.Update(m.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(m.Context(), "UPDATE audit_entries SET message = 'changed' WHERE seq = 3")
		return err
	})
	if err := errors.Join(err, d.Close()); err != nil {
		m.Fatal(err)
	}
	m.begin()
}
