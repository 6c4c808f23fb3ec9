//go:build linux

package storage_test

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// inCeph starts a cluster, and a gateway with a backend and a policy for it, both named prod.
func inCeph(t *testing.T) (*gateway, *cephtest.Cluster) {
	t.Helper()
	cluster := cephtest.Start(t)
	helper := cephtest.Helper(t)
	g := start(t, func(c *storage.Config) {
		c.CephClusters, c.CephProgram = []string{"prod=mainstay@" + cluster.Conf}, helper
	})
	// The type ceph, and the entry with the backend's name, are what it takes when nothing is said.
	b := contracttest.As[storageapi.Backend](g.call("POST", "/backends", g.admin, object{"name": "prod"}).Want(201))
	g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil).Want(200)
	g.call("PUT", "/policies/prod", g.admin, object{"backend_id": b.Id, "kind": "block"}).Want(200)
	return g, cluster
}

// allow changes what the client mainstay may do at the monitors, which is what the guide names.
func allow(t *testing.T, c *cephtest.Cluster, mon string) {
	t.Helper()
	if out, err := exec.CommandContext(
		t.Context(), "ceph", "-c", c.Conf, "auth", "caps", "client.mainstay", "mon", mon, "mgr", "allow r", "osd", "profile rbd",
	).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("%v: %s", err, out)
	}
}

// rbd runs the command rbd, and returns what it prints.
func rbd(t *testing.T, c *cephtest.Cluster, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "rbd", append([]string{"-c", c.Conf}, args...)...) //nolint:gosec // the test's own
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("rbd %v: %v: %s", args, err, &problems)
	}
	return out
}

func TestVolumesInACephCluster(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	rbd(t, cluster, "create", "--size", "1M", cluster.Pool+"/theirs")
	backend := contracttest.As[[]storageapi.Backend](g.call("GET", "/backends?backend_type=ceph", g.admin, nil).Want(200))[0]
	found := contracttest.As[storageapi.Discovery](g.call("POST", "/backends/"+backend.Id+"/discover", g.admin, nil).Want(200))
	if found.Summary.Osds != 1 || found.Summary.Pools == 0 || found.Summary.Volumes != 1 {
		t.Errorf("%+v", found)
	}
	of := contracttest.As[[]storageapi.Cluster](g.call("GET", "/clusters?backend=prod", g.admin, nil).Want(200))
	if len(of) != 1 || of[0].NativeFsid != cluster.FSID || of[0].Name != "prod" {
		t.Errorf("%+v", of)
	}

	a := g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": 4 * mib, "policy": "prod"})
	id := g.done(a, g.admin)
	image := cluster.Pool + "/vol-" + id
	rbd(t, cluster, "bench", "--io-type", "write", "--io-size", "4096", "--io-total", "65536", image)
	content := rbd(t, cluster, "export", image, "-")
	if len(content) != 4*mib || !bytes.ContainsFunc(content, func(r rune) bool { return r != 0 }) {
		t.Fatalf("the image holds %d bytes, or nothing", len(content))
	}
	snapshot := g.done(g.call("POST", "/volumes/"+id+"/snapshots", g.admin, object{"name": "one"}), g.admin)
	if s := contracttest.As[storageapi.Snapshot](g.call("GET", "/snapshots/"+snapshot, g.admin, nil).Want(200)); s.Consistency != "crash" {
		t.Errorf("%+v", s)
	}
	g.done(g.call("POST", "/volumes/"+id+"/expand", g.admin, object{"new_size_bytes": 8 * mib}), g.admin)
	copied := g.done(g.call("POST", "/snapshots/"+snapshot+"/clone", g.admin, object{"name": "copy"}), g.admin)
	if got := rbd(t, cluster, "export", cluster.Pool+"/vol-"+copied, "-"); !bytes.Equal(got, content) {
		t.Error("the clone does not hold what the snapshot holds")
	}

	// What the gateway did not make is shown, and only read.
	for _, v := range contracttest.As[[]storageapi.Volume](g.call("GET", "/volumes?limit=100", g.admin, nil).Want(200)) {
		if !v.Managed {
			g.call("DELETE", "/volumes/"+v.Id, g.admin, nil).Refused(409, "CONFLICT", "")
		}
	}
	for _, path := range []string{"/volumes/" + copied, "/snapshots/" + snapshot, "/volumes/" + id} {
		g.done(g.call("DELETE", path, g.admin, nil), g.admin)
	}
	if left := strings.Fields(string(rbd(t, cluster, "ls", cluster.Pool))); len(left) != 1 || left[0] != "theirs" {
		t.Errorf("%v are left", left)
	}
	g.changesOSDs()
}

// changesOSDs takes the only OSD of a cluster out and in again, when nothing needs it. The jobs ask the cluster whether
// it is so. While parts of its data have no OSD, it answers nothing else.
func (g *gateway) changesOSDs() {
	g.Helper()
	all := contracttest.As[[]storageapi.OSD](g.call("GET", "/osds?cluster=prod", g.admin, nil).Want(200))
	if len(all) != 1 || all[0].Weight == nil || *all[0].Weight != 1 || !all[0].InCluster {
		g.Fatalf("%+v", all)
	}
	for _, change := range []string{"out?cluster=prod", "in", "reweight?weight=0.5", "reweight?weight=1"} {
		if id := g.done(g.call("POST", "/osds/0/"+change, g.admin, nil), g.admin); id != all[0].ClusterId+"/0" {
			g.Errorf("%s: the job is about %s", change, id)
		}
	}
	g.call("POST", "/osds/7/out", g.admin, nil).Refused(404, "NOT_FOUND", "")
	g.call("POST", "/osds/0/reweight?weight=1.5", g.admin, nil).Refused(400, "VALIDATION_ERROR", "weight")
	g.call("POST", "/osds/0/out", g.token("otto", "operator", ""), nil).Refused(403, "DENIED", "")
	g.call("POST", "/osds/0/out", g.token("ann", "admin", "acme"), nil).Refused(403, "DENIED", "")
}

func TestAClusterThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	trashed := g.done(g.call("POST", "/volumes", g.admin, object{"name": "old", "size_bytes": mib, "policy": "prod"}), g.admin)
	g.done(g.call("DELETE", "/volumes/"+trashed+"?trash_secs=3600", g.admin, nil), g.admin)
	restore := func() storageapi.Job {
		return g.job(contracttest.As[storageapi.TrashAccepted](g.call("POST", "/trash/"+trashed+"/restore", g.admin, nil).Want(202)).JobId, g.admin)
	}
	cluster.Signal(t, "ceph-osd", syscall.SIGSTOP)
	if j := restore(); j.Error == nil || j.Error.Code != "UNAVAILABLE" { // what cannot be looked for is not missing
		t.Errorf("%+v", j)
	}
	cluster.Signal(t, "ceph-mon", syscall.SIGSTOP)
	backend := contracttest.As[[]storageapi.Backend](g.call("GET", "/backends?backend_type=ceph", g.admin, nil).Want(200))[0]
	hung := make(chan answer, 1)
	go func() { hung <- g.call("POST", "/backends/"+backend.Id+"/discover", g.admin, nil) }()
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	if v := g.volume(id, g.admin); v.State != "available" {
		t.Errorf("%+v", v)
	}
	(<-hung).Refused(503, "UNAVAILABLE", "")
	b := contracttest.As[[]storageapi.Backend](g.call("GET", "/backends?backend_type=ceph", g.admin, nil).Want(200))[0]
	if b.Status != "unreachable" || b.LastError == "" {
		t.Errorf("%+v", b)
	}
	if n := len(contracttest.As[[]storageapi.TrashItem](g.call("GET", "/trash", g.admin, nil).Want(200))); n != 1 {
		t.Errorf("the trash has %d volumes", n)
	}
	cluster.Signal(t, "ceph-mon", syscall.SIGCONT)
	cluster.Signal(t, "ceph-osd", syscall.SIGCONT)
	for deadline := time.Now().Add(time.Minute); restore().Error != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the cluster answers again, and the volume stays in the trash")
		}
	}
}

func TestEntriesOfCephClustersAreChecked(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"", "prod", "prod=", "prod=ceph.conf", "prod=@/etc/ceph.conf", "prod=a b@/etc/ceph.conf", "../x=/etc/ceph.conf"} {
		c := storage.Config{CephClusters: []string{entry}}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "ceph-clusters") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
