package storage_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/service/storage"
	"github.com/mainstay-infra/mainstay/service/storage/httpapi"
)

type (
	object = map[string]any
	answer = contracttest.Answer
)

const (
	jwtSecret = "the secret of the tests, which is long enough for any algorithm of its kind"
	base      = storageapi.BasePath
	mib       = 1 << 20
)

// gateway is a running service, talked to over HTTP as its users would. Every answer is held against the contract.
type gateway struct {
	*testing.T
	config   storage.Config
	url      string
	contract *contract.Contract
	recorder *contracttest.Recorder
	service  *storage.Service
	admin    string
	idle     bool             // jobs do not run
	now      func() time.Time // nil: time.Now
	heard    *heard
	stop     func()
}

// engines runs a test on both databases.
func engines(t *testing.T, test func(g *gateway)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(start(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url := dbtest.PostgresURL(t)
		test(start(t, func(c *storage.Config) { c.Database = url }))
	})
}

// start runs a service until the test ends.
func start(t *testing.T, change ...func(*storage.Config)) *gateway {
	t.Helper()
	g := prepare(t, change...)
	g.begin()
	return g
}

// prepare returns a service that does not run yet.
func prepare(t *testing.T, change ...func(*storage.Config)) *gateway {
	t.Helper()
	var cfg storage.Config
	if err := config.Load(&cfg, storage.EnvPrefix, config.Sources{}); err != nil {
		t.Fatal(err)
	}
	g := &gateway{T: t}
	cfg.Data, cfg.AuthRequired, cfg.JWTSecret = t.TempDir(), true, jwtSecret
	cfg.Listen, cfg.GRPCAddr = "127.0.0.1:0", "127.0.0.1:0"
	for _, f := range change {
		f(&cfg)
	}
	g.config = cfg
	return g
}

// begin starts the service with its configuration, and discovers its backend.
func (g *gateway) begin() {
	g.Helper()
	g.run()
	g.call("POST", "/backends/"+g.local().Id+"/discover", g.admin, nil).Want(200)
}

// run starts the service with its configuration.
func (g *gateway) run() {
	g.Helper()
	var log slog.Handler = slog.NewTextHandler(g.Output(), &slog.HandlerOptions{Level: slog.LevelError})
	if g.heard != nil {
		log = slog.NewMultiHandler(log, slog.NewTextHandler(g.heard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	svc, err := storage.New(g.Context(), g.config, storage.Deps{
		Log:      slog.New(log),
		Registry: prometheus.NewRegistry(), Now: g.clock, Version: "test",
	})
	if err != nil {
		g.Fatal(err)
	}
	g.service = svc
	if g.contract, err = httpapi.Contract(); err != nil {
		g.Fatal(err)
	}
	if g.recorder == nil {
		g.recorder = contracttest.New(g.contract, base)
	}
	server := httptest.NewServer(g.recorder.Wrap(g.T, svc.Handler()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		if g.idle {
			done <- nil
			return
		}
		done <- svc.Run(ctx)
	}()
	g.url = server.URL
	g.stop = sync.OnceFunc(func() {
		cancel()
		server.Close()
		if err := <-done; err != nil {
			g.Errorf("run: %v", err)
		}
		if err := svc.Close(); err != nil {
			g.Errorf("close: %v", err)
		}
	})
	g.Cleanup(g.stop)
	g.admin = g.token("ada", "admin", "")
}

// clock returns what the service takes for the time.
func (g *gateway) clock() time.Time {
	if g.now == nil {
		return time.Now()
	}
	return g.now()
}

// token returns a token as somebody else issues it.
func (g *gateway) token(name, role, tenant string) string {
	g.Helper()
	return g.sign(jose.HS256, name, role, tenant, time.Hour)
}

// sign returns a token that is signed in some way, for some time.
func (g *gateway) sign(how jose.SignatureAlgorithm, name, role, tenant string, life time.Duration) string {
	g.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: how, Key: []byte(jwtSecret)}, nil)
	if err != nil {
		g.Fatal(err)
	}
	claims := object{"sub": name, "role": role, "exp": time.Now().Add(life).Unix()}
	if tenant != "" {
		claims["tenant"] = tenant
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		g.Fatal(err)
	}
	return token
}

func (g *gateway) call(method, path, token string, body any) answer {
	g.Helper()
	a := contracttest.Send(g.T, nil, contracttest.Request{
		Method: method, URL: g.url + base + path, Token: token, Body: body,
	})
	if g.heard != nil {
		_, _ = g.heard.Write([]byte(a.Body))
	}
	return a
}

// heard collects what the service logs and answers.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

// holds reports whether a text was heard.
func (h *heard) holds(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Contains(h.text.Bytes(), []byte(text))
}

// local returns the backend that a new installation has.
func (g *gateway) local() storageapi.Backend {
	g.Helper()
	all := contracttest.As[[]storageapi.Backend](g.call("GET", "/backends", g.admin, nil).Want(200))
	if len(all) == 0 || all[0].Name != storage.LocalBackend {
		g.Fatalf("%+v", all)
	}
	return all[0]
}

// job waits for the end of a job.
func (g *gateway) job(id, token string) storageapi.Job {
	g.Helper()
	body := g.call("GET", "/jobs/"+id+"/watch", token, nil).Want(200).Body
	if !strings.Contains(body, "event: job") {
		g.Fatalf("%s", body)
	}
	j := contracttest.As[storageapi.Job](g.call("GET", "/jobs/"+id, token, nil).Want(200))
	if j.FinishedAt == nil {
		g.Fatalf("%+v", j)
	}
	return j
}

// done waits for the success of the job that an answer names, and returns the id of what it is about.
func (g *gateway) done(a answer, token string) string {
	g.Helper()
	j := g.job(contracttest.As[storageapi.VolumeAccepted](a.Want(202)).JobId, token)
	if j.State != storageapi.JobStateSucceeded || j.Progress != 1 || j.Error != nil {
		g.Fatalf("%+v %+v", j, j.Error)
	}
	return j.Resource.Id
}

func (g *gateway) volume(id, token string) storageapi.Volume {
	g.Helper()
	return contracttest.As[storageapi.Volume](g.call("GET", "/volumes/"+id, token, nil).Want(200))
}

// data returns the file of a block volume.
func (g *gateway) data(id string) string {
	return filepath.Join(g.config.Data, "volumes", "volumes", "vol-"+id, "data")
}

func (g *gateway) write(id, content string) {
	g.Helper()
	f, err := os.OpenFile(g.data(id), os.O_WRONLY, 0)
	if err != nil {
		g.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		g.Fatal(err)
	}
}

func (g *gateway) holds(id, want string) {
	g.Helper()
	content, err := os.ReadFile(g.data(id))
	if err != nil || !strings.HasPrefix(string(content), want) {
		g.Errorf("%s holds %.20q, want %q; %v", id, content, want, err)
	}
}

// change changes the database of a service on SQLite behind its back.
func (g *gateway) change(statement string, args ...any) {
	g.Helper()
	d, err := db.Open(g.Context(), db.Config{Path: storage.DatabaseFile(g.config.Data), Schema: "storage"})
	if err != nil {
		g.Fatal(err)
	}
	err = d.Update(g.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(g.Context(), statement, args...)
		return err
	})
	if err := errors.Join(err, d.Close()); err != nil {
		g.Fatal(err)
	}
}
