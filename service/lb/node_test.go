package lb

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// node is a running service without a kernel, talked to over HTTP. Every answer is
// held against the contract.
type node struct {
	*testing.T
	service  *Service
	plane    *memoryPlane
	speaker  *memorySpeaker
	url      string
	recorder *contracttest.Recorder
	log      *logBuffer
	path     string // of the document
	client   *http.Client
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines are those with a text in them.
func (b *logBuffer) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.buf.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// defaults are the settings of the tests, with a document.
func defaults(t *testing.T, document string) Config {
	t.Helper()
	var cfg Config
	if err := config.Load(&cfg, "LB_TEST", config.Sources{}); err != nil {
		t.Fatal(err)
	}
	cfg.ConfigFile = filepath.Join(t.TempDir(), "lb.yaml")
	if err := os.WriteFile(cfg.ConfigFile, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.APIKey, cfg.APIReadonlyKey = "id:ops="+longA, longB
	cfg.Listen, cfg.MetricsListen = "127.0.0.1:0", ""
	return cfg
}

// start runs a node until the test ends.
func start(t *testing.T, document string, change ...func(*Config, *Deps)) *node {
	t.Helper()
	n := &node{T: t, plane: newMemoryPlane(), speaker: &memorySpeaker{}, log: &logBuffer{}, client: &http.Client{}}
	cfg := defaults(t, document)
	deps := Deps{
		Log:      slog.New(slog.NewTextHandler(n.log, nil)),
		Registry: prometheus.NewRegistry(),
		Now:      time.Now,
		Speaker:  n.speaker,
		Open:     func(context.Context, PlaneOptions) (Plane, Hops, error) { return n.plane, n.plane, nil },
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	service, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	n.service, n.path = service, cfg.ConfigFile
	n.recorder = contracttest.New(service.shell.Contract(), lbapi.BasePath)
	server := httptest.NewServer(n.recorder.Wrap(t, service.Handler()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() {
		n.client.CloseIdleConnections()
		server.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	n.url = server.URL
	n.eventually("it has settled", func() bool {
		service.controller.mu.Lock()
		defer service.controller.mu.Unlock()
		return service.controller.settledChanges > 0
	})
	return n
}

// eventually waits for what the service brings about; there is no signal for it.
func (n *node) eventually(what string, ok func() bool) {
	n.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("did not happen: %s", what)
		}
	}
}

type answer = contracttest.Answer

// call sends a request under the base path, with a body of JSON unless it is empty.
func (n *node) call(method, path, key, body string) answer {
	n.Helper()
	return n.send(method, lbapi.BasePath+path, key, body, "application/json")
}

func (n *node) send(method, path, key, body, contentType string) answer {
	n.Helper()
	return contracttest.Send(n, n.client, contracttest.Request{
		Method: method, URL: n.url + path, Token: key, Body: body, Header: map[string]string{"Content-Type": contentType},
	})
}
