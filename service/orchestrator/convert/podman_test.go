package convert_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/podman"
	"github.com/mainstay-infra/mainstay/kit/podman/podmantest"
	"github.com/mainstay-infra/mainstay/service/orchestrator/convert"
)

// host is what the tests say of the Podman.
var host = convert.Podman{
	Image: cluster.Image, Network: "workloads",
	Keys: map[string][]string{"orders": {"password"}, "hub": {"token", "user"}, "shop-database": {"password"}, "shop-keys": {"a.pem"}},
}

func TestContainersOfPodmanAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	for name, s := range examples(t) {
		out, notes := convert.ToPodman(s, owner, host)
		all := map[string]any{"warnings": notes.Warnings.Lines(), "problems": notes.Problems.Lines()}
		if notes.Problems.None() {
			all["podman"] = out
		}
		raw, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".podman.json", string(raw)+"\n")
	}
}

func TestASecretThatIsMissingIsAProblem(t *testing.T) {
	t.Parallel()
	s := read(t, "apiVersion: orch/v1\nmetadata: {name: web}\nimage: {repository: library/nginx}\nscaling: {replicas: 3}\n"+
		"secrets: [{name: none, key: k, env: A}, {name: orders, key: none, env: B}]\n")
	_, notes := convert.ToPodman(s, owner, host)
	want := "2 problems:\n  secrets[0].name: no secret has this name\n  secrets[1].key: the secret has no key of this name"
	if err := notes.Problems.Fault(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestPodmanRunsTheContainers(t *testing.T) {
	t.Parallel()
	p := podmantest.Start(t)
	image := p.Image("web:1", "one")
	c := podman.New(p.Socket)
	t.Cleanup(c.Close)
	ctx := t.Context()
	s := read(t, `
apiVersion: orch/v1
metadata: {name: shop, project: store}
image: {repository: store/shop}
scaling: {replicas: 2}
requirements: {cpu: 100m}
resources: {cpu: 500m, memory: 64Mi, pids: 100}
network: {ports: [{port: 8080}, {port: 9000, protocol: udp}]}
persistence:
  volumes:
    - {name: all, mountPath: /srv/all, shared: true}
    - {name: own, mountPath: /srv/own}
    - {name: none, mountPath: /srv/none, ephemeral: true}
    - {name: ro, mountPath: /srv/ro, readOnly: true}
env: {VERSION: "it's $HOME"}
configMaps: [{name: settings, mountPath: /etc/shop, data: {shop.conf: "a = 1\n"}}]
secrets: [{name: orders, key: password, env: PASSWORD}, {name: hub, mountPath: /run/hub}]
security: {user: 1000, group: 1000, nonRoot: true, readOnlyRoot: true, dropCapabilities: [ALL]}
restart: {stop: 2s}
`)
	k := host
	k.Image, k.Network = image, strings.Fields(p.Run("network", "ls", "--quiet"))[0]
	out, notes := convert.ToPodman(s, owner, k)
	if err := notes.Problems.Fault(); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range out.Volumes {
		must(c.CreateVolume(ctx, name, map[string]string{convert.LabelServer: owner.Server}))
		must(c.CreateVolume(ctx, name, nil))
	}
	values := map[convert.KeyOf]string{{"orders", "password"}: "hunter2", {"hub", "token"}: "t", {"hub", "user"}: "u"}
	for name, of := range out.Secrets {
		must(c.CreateSecret(ctx, name, []byte("an older one")))
		must(c.CreateSecret(ctx, name, []byte(values[of])))
	}
	for name, content := range out.Files {
		must(c.CreateSecret(ctx, name, []byte(content)))
	}
	for _, container := range out.Containers {
		_, err := c.CreateContainer(ctx, container)
		must(err)
		must(c.StartContainer(ctx, container.Name))
	}
	ask := func(container, method, path, body string) string {
		t.Helper()
		at := p.Run("port", container, "8080/tcp")
		if !strings.HasPrefix(at, "127.0.0.1:") {
			t.Fatalf("%s is at %s", container, at)
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			r, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, strings.NewReader(body))
			must(err)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
				continue
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			must(err)
			return string(text)
		}
	}
	for path, want := range map[string]string{
		"/": "it's $HOME\n", "/env/PASSWORD": "hunter2", "/file/etc/shop/shop.conf": "a = 1\n", "/file/run/hub/token": "t",
		"/file/run/hub/user": "u", "/env/HOSTNAME": "shop--1",
	} {
		if got := ask("shop--1", "GET", path, ""); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for path, problem := range map[string]string{"/file/x": "read-only", "/file/srv/ro/x": "read-only"} {
		if got := ask("shop--1", "PUT", path, "x"); !strings.Contains(got, problem) {
			t.Errorf("PUT %s: %q", path, got)
		}
	}
	status := ask("shop--1", "GET", "/file/proc/self/status", "")
	for _, want := range []string{"Uid:\t1000\t1000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(status, want) {
			t.Errorf("it has not %q:\n%s", want, status)
		}
	}
	info, err := c.ListContainers(ctx, convert.LabelWorkload, owner.Workload)
	if err != nil || len(info) != 2 || info[0].Labels[convert.LabelProject] != "store" {
		t.Errorf("%+v, %v", info, err)
	}
	for _, container := range out.Containers {
		must(c.StopContainer(ctx, container.Name, 2*time.Second))
		must(c.RemoveContainer(ctx, container.Name))
	}
	for name := range out.Secrets {
		must(c.RemoveSecret(ctx, name))
		must(c.RemoveSecret(ctx, name))
	}
	for _, name := range out.Volumes {
		must(c.RemoveVolume(ctx, name))
		must(c.RemoveVolume(ctx, name))
	}
	if left := p.Run("volume", "ls", "--quiet"); left != "" {
		t.Errorf("left: %s", left)
	}
}
