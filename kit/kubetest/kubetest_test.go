package kubetest_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

func TestAClusterComesBackWithWhatItHad(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	before := c.Kubeconfig
	ns := c.Namespace(t)
	config, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func() error{c.Stop, c.Kill} {
		if err := end(); err != nil {
			t.Error(err)
		}
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		kubetest.Get[kubetest.Object](t, c, kube.Namespaces, "", ns)
		if again, err := os.ReadFile(c.Kubeconfig); err != nil || c.Kubeconfig != before || string(again) != string(config) {
			t.Errorf("the kubeconfig is another one: %v", err)
		}
	}
}

func TestAFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	out, err := exec.CommandContext(t.Context(), kubetest.Program(t), "up", "--dir", filepath.Dir(c.Kubeconfig)).CombinedOutput() //nolint:gosec // the test's own
	if err == nil || !strings.Contains(string(out), "another process uses the folder") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOnlyCRDsAreInstalled(t *testing.T) {
	t.Parallel()
	program, dir := kubetest.Program(t), t.TempDir()
	for _, text := range []string{"kind: ConfigMap\napiVersion: v1\n", "{", "a: b: c"} {
		path := filepath.Join(dir, "crd.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "up", "--dir", filepath.Join(dir, "c"), "--crds", path).CombinedOutput() //nolint:gosec // the test's own
		if err == nil || !strings.Contains(string(out), "crd.yaml") {
			t.Errorf("%q: %v: %s", text, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "c")); err == nil {
		t.Error("a cluster was made")
	}
}

// listens returns the addresses on which the processes of a cluster's folder listen.
func listens(t *testing.T, dir string) (addresses []string) {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]bool{}
	for _, path := range commands {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), dir) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "fd", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if target, err := os.Readlink(file); err == nil {
				sockets[target] = true
			}
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			continue // this kernel has no IPv6
		}
		for line := range strings.Lines(string(raw)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !sockets["socket:["+f[9]+"]"] {
				continue
			}
			address, port := f[1][:len(f[1])-5], 0
			if _, err := fmt.Sscanf(f[1][len(f[1])-4:], "%X", &port); err != nil || address != "0100007F" {
				t.Errorf("it listens on %s (%s)", f[1], table)
			}
			addresses = append(addresses, net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
		}
	}
	return addresses
}

func TestNobodyGetsInWithoutACertificate(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, "--nodes=1")
	all := listens(t, filepath.Dir(c.Kubeconfig))
	if len(all) != 2 { // the API, and the kubelet of a fake node
		t.Errorf("it listens on %v", all)
	}
	admin := c.Transport(t).TLSClientConfig.Clone()
	admin.InsecureSkipVerify = true
	served := 0
	for _, address := range all {
		for name, config := range map[string]*tls.Config{"none": {InsecureSkipVerify: true}, "the administrator's": admin} { //nolint:gosec // any server
			client := http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			for _, path := range []string{"/api/v1/secrets", "/version", "/v2/keys"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(r)
				if err != nil {
					continue // the handshake fails
				}
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					if name == "none" {
						t.Errorf("%s%s answers anybody", address, path)
					}
					served++
				case http.StatusUnauthorized, http.StatusNotFound, http.StatusNotImplemented:
					if name == "none" && resp.StatusCode == http.StatusNotImplemented {
						t.Errorf("%s%s answers anybody", address, path)
					}
				default:
					t.Errorf("%s%s: %s", address, path, resp.Status)
				}
			}
			client.CloseIdleConnections()
		}
	}
	if served != 2 { // both paths of the API, for its administrator
		t.Errorf("%d requests were answered", served)
	}
	if err := filepath.WalkDir(filepath.Dir(c.Kubeconfig), func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil // it went meanwhile
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may read %s", path)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// The controllers of a CSI driver of Ceph tell which image a volume is.
func TestVolumesOfCephTellTheirImages(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	csi := kubetest.StartCSI(t, c, "rbd.csi.ceph.com")
	class := csi.AddClass(t, func(c *kubetest.Class) { c.Parameters = map[string]string{"pool": "vms"} })
	claim := &kubetest.Claim{Meta: kube.Meta{Name: "data"}}
	claim.Spec = kubetest.ClaimSpec{AccessModes: []string{"ReadWriteOnce"}, StorageClassName: class, VolumeMode: "Block"}
	claim.Spec.Resources.Requests.Storage = "8Mi"
	made := kubetest.Create(t, c, kube.PersistentVolumeClaims, ns, claim)
	kubetest.Await(t, c, kube.PersistentVolumeClaims, ns, "data", func(now *kubetest.Claim) bool { return now != nil && now.Status.Phase == "Bound" })
	v := kubetest.Get[kubetest.Volume](t, c, kube.PersistentVolumes, "", "pvc-"+made.Meta.UID)
	if a := v.Spec.CSI.VolumeAttributes; a["pool"] != "vms" || a["imageName"] == "" {
		t.Errorf("%+v", v.Spec.CSI)
	}
	// A claim of a claim has its content.
	if err := os.WriteFile(csi.Content(t, ns, "data"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	claim.Meta.Name, claim.Spec.DataSource = "copy", &kubetest.Source{Kind: "PersistentVolumeClaim", Name: "data"}
	kubetest.Create(t, c, kube.PersistentVolumeClaims, ns, claim)
	kubetest.Await(t, c, kube.PersistentVolumeClaims, ns, "copy", func(now *kubetest.Claim) bool { return now != nil && now.Status.Phase == "Bound" })
	if got, err := os.ReadFile(csi.Content(t, ns, "copy")); err != nil || !strings.HasPrefix(string(got), "content") || len(got) != 8<<20 {
		t.Errorf("%.10q, %d bytes, %v", got, len(got), err)
	}
	// Deleted claims take their volumes and content with them.
	for _, name := range []string{"data", "copy"} {
		uid := kubetest.Get[kubetest.Claim](t, c, kube.PersistentVolumeClaims, ns, name).Meta.UID
		if err := kube.Delete(t.Context(), c.Client, kube.PersistentVolumeClaims, ns, name, uid); err != nil {
			t.Error(err)
		}
		kubetest.Await(t, c, kube.PersistentVolumes, "", "pvc-"+uid, func(now *kubetest.Volume) bool { return now == nil })
	}
	if left := csi.Handles(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// Tests that are killed leave no cluster behind.
func TestAClusterEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), kubetest.Program(t), "up", "--dir", t.TempDir(), "--until-eof") //nolint:gosec // the test's own
	caller, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	steps := []string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		steps = append(steps, lines.Text())
		if strings.HasPrefix(lines.Text(), "ready: ") {
			if err := caller.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || len(steps) < 5 || steps[len(steps)-1] != "stops" {
		t.Errorf("%v: %q", err, steps)
	}
}
