//go:build linux

package kubetest_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// image is one that real nodes have.
const image = "docker.io/devcluster/busybox:1"

// traces returns what a cluster has left in the host: mounts in its folder, bridges and control groups of its node.
func traces(t *testing.T, dir string) (found []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			found = append(found, line)
		}
	}
	config, err := os.ReadFile(filepath.Join(dir, "node", "cni", "10-bridge.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	var network struct{ Plugins []struct{ Bridge string } }
	if err := json.Unmarshal(config, &network); err != nil {
		t.Fatal(err)
	}
	name := network.Plugins[0].Bridge
	if _, err := net.InterfaceByName(name); err == nil {
		found = append(found, "the bridge "+name)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		groups, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, groups...)
	}
	return found
}

func TestContainersRunOnARealNode(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		require.Missing(t, "a kubelet takes root")
	}
	for program, of := range map[string]string{"containerd": "containerd", "runc": "runc", "busybox": "busybox-static"} {
		require.Program(t, program, of)
	}
	c := kubetest.Start(t, "--nodes=1", "--kubelet")
	ns := c.Namespace(t)
	kubetest.Create(t, c, kube.PersistentVolumeClaims, ns, &object{"metadata": object{"name": "data"}, "spec": object{
		"accessModes": []any{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Gi"}},
	}})
	deploy(t, c, ns, "web", 1, template("web", nil, object{
		"terminationGracePeriodSeconds": 1,
		"containers": []any{object{
			"name": "main", "image": image, "imagePullPolicy": "Never",
			"command":      []any{"sh", "-c", "date >> /data/starts; echo begun; exec httpd -f -p 8080 -h /data"},
			"volumeMounts": []any{object{"name": "data", "mountPath": "/data"}},
		}},
		"volumes": []any{object{"name": "data", "persistentVolumeClaim": object{"claimName": "data"}}},
	}))
	deploy(t, c, ns, "fake", 1, template("fake", nil, object{
		"tolerations":  []any{object{"key": "devcluster.mainstay.io/fake", "operator": "Exists"}},
		"nodeSelector": object{"devcluster.mainstay.io/fake": "true"},
	}))
	starts := 0
	serves := func(atLeast int) {
		t.Helper()
		var last string
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			for _, p := range pods(t, c, ns, "web") {
				resp, err := http.Get("http://" + net.JoinHostPort(p.Status.PodIP, "8080") + "/starts")
				if err != nil {
					last = err.Error()
					continue
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if starts = strings.Count(string(body), "\n"); err == nil && starts >= atLeast {
					return
				}
				last = fmt.Sprintf("started %d times, %v", starts, err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("the pod does not serve: %s", last)
			}
		}
	}
	kubetest.Await(t, c, deployments, ns, "web", func(d *object) bool { return number(d, "readyReplicas") == 1 })
	kubetest.Await(t, c, deployments, ns, "fake", func(d *object) bool { return number(d, "readyReplicas") == 1 })
	serves(1)
	if p := pods(t, c, ns, "web")[0]; p.Spec.NodeName != "real-0" {
		t.Errorf("%+v", p)
	}
	for args, want := range map[string]string{"logs deploy/web": "begun\n", "exec deploy/web -- cat /proc/1/comm": "httpd\n"} {
		if out, err := kubectl(t, c, ns, strings.Fields(args)...); err != nil || out != want {
			t.Errorf("kubectl %s: %q, %v", args, out, err)
		}
	}
	// Its kubelet answers the API server, and nobody without a certificate.
	if out, err := kubectl(t, c, ns, "get", "--raw", "/api/v1/nodes/real-0/proxy/stats/summary"); err != nil || !strings.Contains(out, `"nodeName"`) {
		t.Errorf("%.200q, %v", out, err)
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it sends nothing
	at, err := kubectl(t, c, ns, "get", "node", "real-0", "-o", "jsonpath={.status.addresses[0].address}")
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := stranger.Get("https://" + net.JoinHostPort(at, "10250") + "/pods"); err != nil || resp.StatusCode != http.StatusUnauthorized || resp.Body.Close() != nil {
		t.Errorf("a stranger: %v, %v", resp, err)
	}
	stranger.CloseIdleConnections()

	// Containers keep running when the cluster is killed, and start again after it was stopped, with their volumes.
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	serves(1)
	if starts != 1 {
		t.Errorf("killed: the container has started %d times", starts)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := traces(t, filepath.Dir(c.Kubeconfig)); len(left) > 0 {
		t.Errorf("left in the host: %v", left)
	}
	if out, err := exec.CommandContext(t.Context(), "pgrep", "-f", filepath.Dir(c.Kubeconfig)).Output(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	serves(2)
}
