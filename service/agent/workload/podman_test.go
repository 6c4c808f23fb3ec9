package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/podman/podmantest"
)

// site is a manager on a real Podman, with a control plane that notes what it is
// told.
type site struct {
	*testing.T
	podman *podmantest.Podman
	image  string
	dir    string

	manager *Manager
	stop    func()

	mu       sync.Mutex
	statuses []string // of reports, in order
	message  string   // of the last one
	away     bool     // the control plane
	previous *edgeapi.Deployment
	reasons  []string // of rollbacks
	client   *edgeapi.Client
	desired  edgeapi.AgentDeployment
}

func newSite(t *testing.T, p *podmantest.Podman, image string) *site {
	s := &site{T: t, podman: p, image: image, dir: t.TempDir()}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	var err error
	if s.client, err = edgeapi.NewClient(server.URL); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	s.desired = edgeapi.AgentDeployment{
		Id:           "d-" + fmt.Sprint(port),
		Name:         "web",
		Image:        image,
		Version:      "1",
		Allowed:      true,
		DesiredState: "running",
		PullPolicy:   "never",
		Restart:      "always",
		Env:          edgeapi.Env{"VERSION": "1"},
		Ports:        []edgeapi.Port{{ContainerPort: 8080, HostPort: &port}},
		Revision:     1,
	}
	s.start()
	t.Cleanup(func() {
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		s.set(nil)
		s.eventually("all is removed", func() bool { return s.containers() == "" })
		s.stop()
	})
	return s
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// start starts the agent, with what an agent before it has stored.
func (s *site) start() {
	s.Helper()
	d, err := db.Open(context.Background(), db.Config{Path: filepath.Join(s.dir, "agent.db")})
	if err != nil {
		s.Fatal(err)
	}
	s.manager, err = New(Config{
		DB:       d,
		Socket:   s.podman.Socket,
		Log:      slog.New(slog.DiscardHandler),
		Now:      time.Now,
		Registry: prometheus.NewRegistry(),
		Settle:   300 * time.Millisecond,
		Look:     200 * time.Millisecond,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.manager.Run(ctx, func() (*edgeapi.Client, string, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.client, "s1", !s.away
		})
	}()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
		if err := d.Close(); err != nil {
			s.Error(err)
		}
	}
}

// serve is the control plane: it notes reports, and rolls back if it can.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/rollback") {
		var in edgeapi.RollbackRequest
		_ = json.NewDecoder(r.Body).Decode(&in) // an empty reason shows below
		s.reasons = append(s.reasons, *in.Reason)
		result := edgeapi.RollbackResult{RolledBack: s.previous != nil}
		if s.previous != nil {
			result.Deployment = *s.previous
			result.Deployment.SiteId = "s1"
			s.previous = nil
		}
		_ = json.NewEncoder(w).Encode(result) // the agent would see a cut answer
		return
	}
	var in edgeapi.DeploymentReport
	_ = json.NewDecoder(r.Body).Decode(&in)
	s.statuses = append(s.statuses, fmt.Sprintf("%s/%d", in.Status, *in.ObservedRevision))
	s.message = *in.Message
	_ = json.NewEncoder(w).Encode(
		edgeapi.Deployment{Id: s.desired.Id, SiteId: "s1"},
	) // the agent would see a cut answer
}

// deploy has the agent run s.desired after a change to it.
func (s *site) deploy(change func(*edgeapi.AgentDeployment), packs ...edgeapi.PolicyPack) {
	s.Helper()
	before := s.desired
	change(&s.desired)
	if before.Revision != s.desired.Revision {
		previous := edgeapi.Deployment{
			Id:           before.Id,
			Name:         before.Name,
			Image:        before.Image,
			Version:      before.Version,
			DesiredState: before.DesiredState,
			Env:          before.Env,
			Ports:        before.Ports,
			PullPolicy:   before.PullPolicy,
			Restart:      before.Restart,
			Health:       before.Health,
			Revision:     s.desired.Revision + 1,
		}
		s.mu.Lock()
		s.previous = &previous
		s.mu.Unlock()
	}
	s.set([]edgeapi.AgentDeployment{s.desired}, packs...)
}

func (s *site) set(all []edgeapi.AgentDeployment, packs ...edgeapi.PolicyPack) {
	s.Helper()
	if err := s.manager.SetDesired(context.Background(), all, packs); err != nil {
		s.Fatal(err)
	}
}

// status is the last report, such as "running/1".
func (s *site) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.statuses) == 0 {
		return ""
	}
	return s.statuses[len(s.statuses)-1]
}

func (s *site) reports(status string) {
	s.Helper()
	s.eventually("the control plane hears "+status, func() bool { return s.status() == status })
}

// impatient asks containers, which may end in the middle of an answer.
var impatient = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// answer is what the container serves; empty: it does not.
func (s *site) answer() string {
	r, err := impatient.Get(fmt.Sprintf("http://127.0.0.1:%d/", *s.desired.Ports[0].HostPort))
	if err != nil {
		return ""
	}
	defer func() { _ = r.Body.Close() }()
	body, _ := io.ReadAll(r.Body) // an empty answer is not an answer either
	return strings.TrimSpace(string(body))
}

func (s *site) post(path string) {
	s.Helper()
	r, err := impatient.Post(fmt.Sprintf("http://127.0.0.1:%d%s", *s.desired.Ports[0].HostPort, path), "", nil)
	if err == nil {
		_ = r.Body.Close()
	}
}

// answers waits until the container serves a version; empty: until it does not.
func (s *site) answers(version string) {
	s.Helper()
	s.eventually("it answers "+version, func() bool { return s.answer() == version })
}

// containers are the ids of the deployment's containers, one a line.
func (s *site) containers() string {
	s.Helper()
	return s.podman.Run(
		"ps", "--all", "--no-trunc", "--filter", "label="+labelDeployment+"="+s.desired.Id, "--format", "{{.ID}}",
	)
}

func (s *site) eventually(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.Fatalf(
				"not within 30 s: %s; reported %v, last with %q; containers:\n%s", what, s.statuses, s.message,
				s.containers(),
			)
		}
	}
}

func next(version string, env ...string) func(*edgeapi.AgentDeployment) {
	return func(d *edgeapi.AgentDeployment) {
		d.Revision++
		d.Version, d.Env = version, edgeapi.Env{"VERSION": version}
		for _, name := range env {
			k, v, _ := strings.Cut(name, "=")
			d.Env[k] = v
		}
	}
}

func asIs(*edgeapi.AgentDeployment) {}

func checked(d *edgeapi.AgentDeployment) {
	one, two := 1, 2
	d.Health = &edgeapi.HealthCheck{Command: []string{"/web", "check"}, IntervalSeconds: &one, Retries: &two}
}

func TestDeploymentsOnARealPodman(t *testing.T) {
	t.Parallel()
	p := podmantest.Start(t)
	image := p.Image("web:1", "image")
	// The parent waits for the parallel parts before Podman ends.
	t.Run("parts", func(t *testing.T) {
		for name, test := range map[string]func(*site){
			"ANewVersionTakesThePlaceOfTheOldOne":                  newVersion,
			"AVersionThatDoesNotBecomeHealthyIsRolledBack":         sickVersion,
			"AVersionThatCrashesIsRolledBackAndItsLastWordsTold":   crashingVersion,
			"WithoutALinkTheVersionBeforeRunsAndThePlaneHearsLate": offlineRollback,
			"AFirstVersionThatFailsIsTriedAgain":                   firstFails,
			"AnImageThatIsNoLongerAllowedStopsWithoutALink":        deniedOffline,
			"ARestartedAgentGoesOnWithTheSameContainer":            agentRestart,
			"WhatEndedWithTheMachineRunsAgain":                     hostRestart,
			"WhatWasRemovedByHandIsMadeAgain":                      removedByHand,
			"StoppedIsStoppedAndRunsAgainWhenDesired":              stopAndStart,
			"AContainerThatFallsSickIsStartedAgain":                fallsSick,
			"AContainerThatMayEndIsNotStartedAgain":                mayEnd,
			"AnImageThatIsNotThereLeavesTheOldVersionRunning":      noImage,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newSite(t, p, image))
			})
		}
	})
}

func newVersion(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	s.answers("1")
	s.deploy(next("2"))
	s.reports("running/2")
	s.answers("2")
	if strings.Count(s.containers(), "\n") != 0 {
		s.Errorf("containers:\n%s", s.containers())
	}
	same := s.containers()
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Revision++ })
	s.reports("running/3")
	if s.containers() != same {
		s.Error("a revision that asks for the same made another container")
	}
}

func sickVersion(s *site) {
	s.deploy(checked)
	s.reports("running/1")
	s.deploy(next("2", "SICK=1"))
	s.reports("running/3") // revision 2 failed; the control plane's rollback is revision 3
	s.answers("1")
	if len(s.reasons) != 1 || !strings.Contains(s.reasons[0], "version 2: did not become healthy: 2 checks") {
		s.Errorf("rolled back for %q", s.reasons)
	}
	if all := strings.Join(s.statuses, " "); !strings.Contains(all, "failed/2") {
		s.Errorf("reported %s", all)
	}
}

func crashingVersion(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	s.deploy(next("2", "EXIT=3"))
	s.reports("running/3")
	s.answers("1")
	if len(s.reasons) != 1 || !strings.Contains(s.reasons[0], "told to exit with 3") {
		s.Errorf("rolled back for %q", s.reasons)
	}
}

func offlineRollback(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	s.deploy(next("2", "EXIT=3"))
	failed := func() bool {
		all, err := s.manager.Status(context.Background())
		return err == nil && len(all) == 1 && all[0].Status == "failed" && all[0].Revision == 2
	}
	s.eventually("version 2 has failed", failed)
	s.answers("1")
	one := s.containers()
	s.stop()
	s.start()
	s.eventually("the agent has looked", func() bool { return failed() && s.containers() == one })
	s.mu.Lock()
	s.away = false
	s.mu.Unlock()
	s.reports("running/3")
	if len(s.reasons) != 1 || s.containers() != one {
		s.Errorf("%d rollbacks; %s became %s", len(s.reasons), one, s.containers())
	}
}

func firstFails(s *site) {
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Env["EXIT"] = "3" })
	s.reports("failed/1")
	if len(s.reasons) != 0 {
		s.Errorf("there is nothing to roll back to, but: %q", s.reasons)
	}
	s.deploy(next("2"))
	s.reports("running/2")
}

func deniedOffline(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	s.deploy(asIs, edgeapi.PolicyPack{Enabled: true, AllowedImages: []string{"ghcr.io/acme/*"}})
	s.eventually("the container is gone", func() bool { return s.containers() == "" })
	s.stop()
	s.start()
	s.mu.Lock()
	s.away = false
	s.mu.Unlock()
	s.reports("denied/1")
	if s.containers() != "" {
		s.Error("it runs again")
	}
	s.deploy(asIs, edgeapi.PolicyPack{Enabled: true, AllowedImages: []string{"localhost/*"}})
	s.reports("running/1")
}

func agentRestart(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	before := s.containers()
	s.stop()
	s.answers("1")
	s.start()
	s.deploy(next("2"))
	s.reports("running/2")
	s.stop()
	after := s.containers()
	s.start()
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Revision++ })
	s.reports("running/3")
	if before == after || after != s.containers() {
		s.Errorf("%s, then %s, then %s", before, after, s.containers())
	}
}

func hostRestart(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	s.stop()
	id := s.containers()
	s.podman.Run("stop", "--time", "1", id)
	s.start()
	s.answers("1")
	if s.containers() != id {
		s.Errorf("%s became %s", id, s.containers())
	}
}

func removedByHand(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	id := s.containers()
	s.podman.Run("rm", "--force", "--time", "0", id)
	s.answers("1")
}

func stopAndStart(s *site) {
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Restart = "on_failure" })
	s.reports("running/1")
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Revision++; d.DesiredState = "stopped" })
	s.reports("stopped/2")
	s.answers("")
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Revision++; d.DesiredState = "running" })
	s.reports("running/3")
}

func fallsSick(s *site) {
	s.deploy(checked)
	s.reports("running/1")
	s.post("/sick")
	s.reports("failed/1")
	s.reports("running/1")
}

func mayEnd(s *site) {
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Restart = "on_failure" })
	s.reports("running/1")
	s.post("/end")
	s.reports("stopped/1")
}

func noImage(s *site) {
	s.deploy(asIs)
	s.reports("running/1")
	s.deploy(func(d *edgeapi.AgentDeployment) { next("2")(d); d.Image = "localhost/none:1" })
	s.eventually("the control plane hears why", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.message, "image not known")
	})
	s.answers("1")
	if s.status() != "pulling/2" {
		s.Errorf("status %s", s.status())
	}
	s.deploy(func(d *edgeapi.AgentDeployment) { d.Revision++; d.Image = s.image })
	s.reports("running/3")
}

func TestWithoutPodmanADeploymentWaitsForIt(t *testing.T) {
	t.Parallel()
	p := podmantest.Start(t)
	image := p.Image("web:1", "image")
	p.Stop()
	s := newSite(t, p, image)
	s.deploy(asIs)
	s.reports("failed/1")
	if !strings.Contains(s.message, "podman.socket") {
		s.Errorf("the message does not say what to do: %q", s.message)
	}
	p.Serve()
	s.reports("running/1")
}
