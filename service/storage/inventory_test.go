package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

func TestInventoryIsListedAndNeverChanged(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"san", "cloud_block"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "array.yaml")
			tell := func(volumes string) {
				t.Helper()
				text := "id: a\npools: [{name: gold, capacity_bytes: 1000, used_bytes: 1}]\nvolumes: [" + volumes + "]\n"
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tell("{name: one, pool: gold, size_bytes: 5}, {name: two, pool: gold, size_bytes: 6}")
			g := start(t, func(c *storage.Config) { c.Inventories = []string{"array=" + file} })
			b := contracttest.As[storageapi.Backend](g.call("POST", "/backends", g.admin, object{
				"name": "array", "backend_type": kind,
			}).Want(201))
			discover := func() storageapi.DiscoverySummary {
				t.Helper()
				a := g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil)
				return contracttest.As[storageapi.Discovery](a.Want(200)).Summary
			}
			if found := discover(); found.Volumes != 2 || found.New != 2 || found.Pools != 1 {
				t.Errorf("%+v", found)
			}
			volumes := contracttest.As[[]storageapi.Volume](g.call("GET", "/volumes?q=one", g.admin, nil).Want(200))
			if len(volumes) != 1 || volumes[0].Managed || volumes[0].SizeBytes != 5 || volumes[0].BackendNativeId != "one" {
				t.Fatalf("%+v", volumes)
			}
			g.call("PUT", "/policies/gold", g.admin, object{"backend_id": b.Id, "kind": "block", "pool": "gold"}).Want(200)
			of := "/volumes/" + volumes[0].Id
			for name, a := range map[string]answer{
				"create":   g.call("POST", "/volumes", g.admin, object{"name": "x", "size_bytes": mib, "policy": "gold"}),
				"expand":   g.call("POST", of+"/expand", g.admin, object{"new_size_bytes": mib}),
				"snapshot": g.call("POST", of+"/snapshots", g.admin, nil),
				"delete":   g.call("DELETE", of, g.admin, nil),
			} {
				if a.Status != 400 || !strings.Contains(a.Body, "of the type "+kind+" is inventory") ||
					!strings.Contains(a.Body, `"UNSUPPORTED"`) {
					t.Errorf("%s: %d %s", name, a.Status, a.Body)
				}
			}
			// The file is read anew. A broken one changes nothing.
			tell("{name: two, pool: gold, size_bytes: 7}, {name: three, pool: gold, size_bytes: 6}")
			if found := discover(); found.Volumes != 2 || found.New != 1 || found.Missing != 1 {
				t.Errorf("%+v", found)
			}
			tell("{name: two, pool: lead, size_bytes: 7}")
			a := g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil)
			if a.Status != 503 || !strings.Contains(a.Body, "volumes[0].pool: there is no such pool") ||
				strings.Contains(a.Body, file) {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if all := contracttest.As[[]storageapi.Volume](g.call("GET", "/volumes", g.admin, nil).Want(200)); len(all) != 3 {
				t.Errorf("%+v", all)
			}
		})
	}
}
