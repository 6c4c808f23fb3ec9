package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/podman/podmantest"
)

// An operator deploys to a site, with the real control plane, agent and Podman: a
// good version, one that does not become healthy, and one that is then forbidden.
func TestADeploymentRunsIsRolledBackAndIsDenied(t *testing.T) {
	t.Parallel()
	p := podmantest.Start(t)
	image := p.Image("web:1", "image")
	e := startEdge(t, "--heartbeat-interval", "1s")
	a := startAgent(t, e.url(), "--podman-socket", p.Socket)
	a.online()
	admin, ctx := e.api(adminToken), t.Context()
	site := list[edgeapi.Site](e, "/sites")[0].Id
	port := freePort(t)
	one, two := 1, 2

	d := got[edgeapi.Deployment](
		admin.CreateDeployment(ctx, edgeapi.DeploymentInput{
			SiteId:     site,
			Name:       "web",
			Image:      image,
			Version:    "1",
			PullPolicy: new(edgeapi.PullPolicy("never")),
			Env:        &edgeapi.Env{"VERSION": "one"},
			Ports:      &[]edgeapi.Port{{ContainerPort: 8080, HostPort: &port}},
			Health: &edgeapi.HealthCheck{
				Command:         []string{"/web", "check"},
				IntervalSeconds: &one,
				Retries:         &two,
			},
		}),
	).is(t, 201)
	is := func(version string, status edgeapi.DeploymentStatus) bool {
		now := got[edgeapi.Deployment](admin.GetDeployment(ctx, d.Id)).is(t, 200)
		return now.Version == version && now.Status == status && now.ObservedRevision == now.Revision
	}
	eventually(t, "version 1 runs", func() bool { return is("1", "running") })
	eventually(t, "it answers", func() bool { return served(port) == "one" })

	ask(
		admin.PatchDeployment(
			ctx, d.Id, edgeapi.DeploymentPatch{Version: new("2"), Env: &edgeapi.Env{"VERSION": "two", "SICK": "1"}},
		),
	).is(t, 200)
	eventually(t, "the control plane has rolled back, and version 1 runs", func() bool { return is("1", "running") })
	eventually(t, "version 1 answers", func() bool { return served(port) == "one" })
	told := false
	for _, line := range list[edgeapi.ActivityEntry](e, "/activity") {
		told = told || line.Action == "deployment.rollback" && strings.Contains(line.Message, "did not become healthy")
	}
	if !told {
		t.Error("the activity does not say why it was rolled back")
	}

	ask(
		admin.CreatePolicyPack(ctx, edgeapi.PolicyPackInput{
			Name:          "only acme",
			SiteId:        &site,
			AllowedImages: &edgeapi.AllowedImages{"ghcr.io/acme/*"},
		}),
	).is(t, 201)
	eventually(t, "the image is denied", func() bool {
		return got[edgeapi.Deployment](admin.GetDeployment(ctx, d.Id)).is(t, 200).Status == "denied"
	})
	eventually(t, "nothing answers any more", func() bool { return served(port) == "" })
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it only found a port
	return l.Addr().(*net.TCPAddr).Port
}

// served is what a container serves; empty: it does not.
func served(port int) string {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return ""
	}
	defer func() { _ = r.Body.Close() }() // it was read
	body, _ := io.ReadAll(r.Body)         // an empty answer is not an answer either
	return strings.TrimSpace(string(body))
}
