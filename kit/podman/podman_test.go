package podman_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/podman"
	"github.com/mainstay-infra/mainstay/kit/podman/podmantest"
)

func TestAContainerOnARealPodman(t *testing.T) {
	t.Parallel()
	p := podmantest.Start(t)
	image := p.Image("web:1", "one")
	c := podman.New(p.Socket)
	t.Cleanup(c.Close)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if v, err := c.Version(ctx); err != nil || !strings.Contains(v, ".") {
		t.Errorf("version %q, %v", v, err)
	}
	id, err := c.Pull(ctx, image, podman.PullMissing)
	if err != nil || len(id) != 64 {
		t.Errorf("image %q, %v", id, err)
	}
	if _, err := c.Pull(ctx, "localhost/nothing:1", podman.PullNever); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "not known") {
		t.Errorf("pull of an image that is not there: %v", err)
	}
	spec := podman.Spec{
		Name:          "web",
		Image:         image,
		Labels:        map[string]string{"owner": "test"},
		Env:           map[string]string{"VERSION": "three"},
		RestartPolicy: podman.RestartOnFailure,
		Ports: []podman.PortMapping{
			{ContainerPort: 8080, HostPort: 18731},
		},
		Volumes: []podman.NamedVolume{{Dest: "/data", IsAnonymous: true}},
		Health:  &podman.HealthConfig{Test: []string{"CMD", "/web", "check"}, Timeout: 5 * time.Second, Retries: 1},
	}
	_, err = c.CreateContainer(ctx, spec)
	must(err)
	if _, err := c.CreateContainer(ctx, spec); err == nil || !strings.Contains(err.Error(), "already in use") {
		t.Errorf("the name is taken, but: %v", err)
	}
	must(c.StartContainer(ctx, "web"))
	must(c.StartContainer(ctx, "web"))
	eventually(t, "the container's port answers", func() bool {
		r, err := http.Get("http://127.0.0.1:18731/")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	if healthy, err := c.CheckHealth(ctx, "web"); err != nil || !healthy {
		t.Errorf("healthy %t, %v", healthy, err)
	}
	info, err := c.InspectContainer(ctx, "web")
	must(err)
	if !info.State.Running || info.Image != id || info.Config.Labels["owner"] != "test" ||
		info.State.StartedAt.IsZero() {
		t.Errorf("%+v", info)
	}
	list, err := c.ListContainers(ctx, "owner", "test")
	must(err)
	if len(list) != 1 || list[0].Names[0] != "web" || list[0].State != "running" {
		t.Errorf("%+v", list)
	}
	if none, err := c.ListContainers(ctx, "owner", "someone else"); err != nil || len(none) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	if log, err := c.Logs(ctx, "web", 10); err != nil || log != "serving three\n" {
		t.Errorf("log %q, %v", log, err)
	}
	must(c.StopContainer(ctx, "web", 2*time.Second))
	must(c.StopContainer(ctx, "web", 2*time.Second))
	if healthy, err := c.CheckHealth(ctx, "web"); healthy {
		t.Errorf("a stopped container is healthy (%v)", err)
	}
	must(c.RemoveContainer(ctx, "web"))
	must(c.RemoveContainer(ctx, "web"))
	if left := p.Run("volume", "ls", "--quiet"); left != "" {
		t.Errorf("volumes of the container are left: %s", left)
	}
	if _, err := c.InspectContainer(ctx, "web"); !fault.Is(err, fault.NotFound) {
		t.Errorf("inspect of what is gone: %v", err)
	}
}

func TestWithoutPodmanTheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := podman.New(filepath.Join(t.TempDir(), "none.sock"))
	_, err := c.Version(t.Context())
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "podman.socket") {
		t.Errorf("%v", err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
