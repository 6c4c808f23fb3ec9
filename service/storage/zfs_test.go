package storage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs/zfstest"
)

// The programs are found in PATH, so the test does not run beside others.
func TestVolumesInZFS(t *testing.T) {
	host := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(host, "zfs"), "./driver/zfs/testdata/fakezfs") //nolint:gosec // the test's own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink("zfs", filepath.Join(host, "zpool")); err != nil {
		t.Fatal(err)
	}
	pool := &zfstest.Disk{Pool: "tank", Size: 1 << 40, Health: "ONLINE", Datasets: map[string]*zfstest.Node{
		"tank":    {Type: "filesystem", GUID: 11, Mounted: true, CanMount: "on"},
		"tank/gw": {Type: "filesystem", GUID: 12, Mounted: true, CanMount: "on"},
	}}
	pool.Save(host)
	t.Setenv("PATH", host+string(os.PathListSeparator)+os.Getenv("PATH"))
	g := start(t, func(c *storage.Config) { c.ZFSDatasets = []string{"tank=tank/gw"} })
	g.call("POST", "/backends", g.admin, object{"name": "c", "backend_type": "zfs"}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	b := contracttest.As[storageapi.Backend](g.call("POST", "/backends", g.admin, object{
		"name": "tank", "backend_type": "zfs",
	}).Want(201))
	g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil).Want(200)
	if pools := contracttest.As[[]storageapi.Pool](g.call("GET", "/pools?backend=tank", g.admin, nil).Want(200)); len(pools) != 1 ||
		pools[0].Kind != "zfs" || pools[0].Name != "tank" {
		t.Errorf("%+v", pools)
	}
	for _, kind := range []string{"block", "filesystem"} {
		g.call("PUT", "/policies/"+kind, g.admin, object{"backend_id": b.Id, "kind": kind}).Want(200)
		id := g.done(g.call("POST", "/volumes", g.admin, object{"name": kind, "size_bytes": 8 * mib, "policy": kind}), g.admin)
		if v := g.volume(id, g.admin); v.State != "available" || v.SizeBytes != 8*mib || !v.SizeEnforced || string(v.Kind) != kind {
			t.Errorf("%+v", v)
		}
		snapshot := g.done(g.call("POST", "/volumes/"+id+"/snapshots", g.admin, nil), g.admin)
		clone := g.done(g.call("POST", "/snapshots/"+snapshot+"/clone", g.admin, object{
			"name": kind + "-2", "size_bytes": 16 * mib,
		}), g.admin)
		g.done(g.call("POST", "/volumes/"+id+"/expand", g.admin, object{"new_size_bytes": 32 * mib}), g.admin)
		if v, c := g.volume(id, g.admin), g.volume(clone, g.admin); v.SizeBytes != 32*mib || c.SizeBytes != 16*mib {
			t.Errorf("%+v, %+v", v, c)
		}
		g.done(g.call("DELETE", "/snapshots/"+snapshot+"?force=true", g.admin, nil), g.admin)
		g.done(g.call("DELETE", "/volumes/"+id, g.admin, nil), g.admin)
		g.done(g.call("DELETE", "/volumes/"+clone, g.admin, nil), g.admin)
	}
	for name := range zfstest.Load(host).Datasets {
		if strings.HasPrefix(name, "tank/gw/") {
			t.Errorf("%s is left", name)
		}
	}
	// Another dataset has come into its place.
	pool.Datasets["tank/gw"].GUID = 99
	pool.Save(host)
	g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil).Want(409)
}

func TestEntriesOfZFSDatasetsAreChecked(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"tank", "tank=", "=tank", "tank=-r", "tank=/tank", "tank=tank/a b", "tank=tank@s", "a b=tank"} {
		c := storage.Config{ZFSDatasets: []string{entry}}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "zfs-datasets") {
			t.Errorf("%s: %v", entry, err)
		}
	}
}
