//go:build linux

package storage_test

import (
	"bytes"
	"crypto/rand"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// image returns an image of the list.
func (g *gateway) image(token, pool, name string) storageapi.RBDImage {
	g.Helper()
	for _, i := range contracttest.As[[]storageapi.RBDImage](g.call("GET", "/rbd-images?limit=1000&pool="+pool, token, nil).Want(200)) {
		if i.Name == name {
			return i
		}
	}
	g.Fatalf("no image %s/%s", pool, name)
	return storageapi.RBDImage{}
}

// fill writes 64 KiB that nothing else holds into an image of some MiB, and returns its content.
func fill(t *testing.T, c *cephtest.Cluster, image string, size int) []byte {
	t.Helper()
	pool, name, _ := strings.Cut(image, "/")
	random := make([]byte, 64<<10)
	_, _ = rand.Read(random)
	at := int(random[0]) % (size / mib) * mib
	const script = `import sys, rados, rbd
with rados.Rados(conffile=sys.argv[1]) as r, r.open_ioctx(sys.argv[2]) as io, rbd.Image(io, sys.argv[3]) as i:
    i.write(sys.stdin.buffer.read(), int(sys.argv[4]))`
	cmd := exec.CommandContext(
		t.Context(), "/usr/bin/python3", "-c", script, c.Conf, pool, name, strconv.Itoa(at),
	) //nolint:gosec // the test's own
	cmd.Stdin = bytes.NewReader(random)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content := rbd(t, c, "export", image, "-")
	if len(content) != size || !bytes.Equal(content[at:at+len(random)], random) {
		t.Fatalf("%s has %d bytes, want %d, or others", image, len(content), size)
	}
	return content
}

func TestImagesHaveTheNamesThatTheirUsersChoose(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	tr, pool := &tour{g, map[string]int{}}, cluster.Pool
	of := "/rbd-images/" + pool
	tr.done(tr.ok("CreateRBDImage", "/rbd-images", object{"name": "Disk_1", "size_bytes": 8 * mib, "pool": pool}, 202), tr.admin)
	before := fill(t, cluster, pool+"/Disk_1", 8*mib)
	tr.done(tr.ok("CreateRBDSnapshot", of+"/Disk_1/snapshots", object{"name": "one"}, 202), tr.admin)
	// Who works with the command rbd sees the same names, and the gateway what was made there.
	rbd(t, cluster, "snap", "create", pool+"/Disk_1@theirs")
	all := contracttest.As[[]storageapi.RBDSnapshot](tr.ok("ListRBDSnapshots", of+"/Disk_1/snapshots", nil, 200))
	if len(all) != 2 || all[0].Name != "one" || all[0].Id == "" || all[1].Name != "theirs" || all[1].Id != "" || all[0].SizeBytes != 8*mib {
		t.Errorf("%+v", all)
	}
	tr.call("DELETE", of+"/Disk_1/snapshots/theirs", tr.admin, nil).Refused(404, "NOT_FOUND", "")

	tr.done(tr.ok("CloneRBDImage", of+"/Disk_1/clone", object{"name": "copy", "snap": "one"}, 202), tr.admin)
	if i := tr.image(tr.admin, pool, "copy"); i.Parent != pool+"/Disk_1@one" || !i.Managed || i.State != "available" {
		t.Errorf("%+v", i)
	}
	tr.call("DELETE", of+"/Disk_1/snapshots/one", tr.admin, nil).Refused(409, "CONFLICT", "")
	tr.done(tr.ok("FlattenRBDImage", of+"/copy/flatten", nil, 202), tr.admin)
	if i := tr.image(tr.admin, pool, "copy"); i.Parent != "" {
		t.Errorf("%+v", i)
	}
	if !bytes.Equal(rbd(t, cluster, "export", pool+"/copy", "-"), before) {
		t.Error("the clone does not hold what its snapshot held")
	}

	tr.done(tr.ok("SetRBDQoS", of+"/Disk_1/qos?iops=500&bps=1073741824", nil, 202), tr.admin)
	tr.done(tr.call("POST", of+"/Disk_1/qos?iops=0", tr.admin, nil), tr.admin)
	if i := tr.image(tr.admin, pool, "Disk_1"); i.Iops != 0 || i.Bps != 1073741824 {
		t.Errorf("%+v", i)
	}
	if text := string(rbd(t, cluster, "image-meta", "list", pool+"/Disk_1")); !strings.Contains(text, "conf_rbd_qos_bps_limit") {
		t.Errorf("%s", text)
	}
	tr.call("POST", of+"/Disk_1/qos", tr.admin, nil).Refused(400, "VALIDATION_ERROR", "iops")

	after := fill(t, cluster, pool+"/Disk_1", 8*mib)
	tr.done(tr.ok("RollbackRBDImage", of+"/Disk_1/rollback", object{"snap": "one"}, 202), tr.admin)
	if bytes.Equal(before, after) {
		t.Error("nothing was written meanwhile")
	}
	if got := rbd(t, cluster, "export", pool+"/Disk_1", "-"); !bytes.Equal(got, before) {
		t.Error("the image does not hold what its snapshot held")
	}

	tr.done(tr.ok("ResizeRBDImage", of+"/Disk_1/resize", object{"size_bytes": 16 * mib}, 202), tr.admin)
	tr.call("POST", of+"/Disk_1/resize", tr.admin, object{"size_bytes": mib}).Refused(400, "VALIDATION_ERROR", "size_bytes")
	otto := tr.token("otto", "operator", "")
	tr.call("POST", of+"/Disk_1/resize", otto, object{"size_bytes": mib, "allow_shrink": true}).Refused(403, "DENIED", "")
	tr.done(tr.call("POST", of+"/Disk_1/resize", tr.admin, object{"size_bytes": 4 * mib, "allow_shrink": true}), tr.admin)
	if got := rbd(t, cluster, "export", pool+"/Disk_1", "-"); !bytes.Equal(got, before[:4*mib]) {
		t.Errorf("%d bytes are left, or others", len(got))
	}

	tr.done(tr.ok("RefreshRBDUsage", "/rbd-usage/refresh?cluster=prod", nil, 202), tr.admin)
	if i := tr.image(tr.admin, pool, "copy"); i.UsedBytes == nil || *i.UsedBytes != 4*mib {
		t.Errorf("%+v", i)
	}
	tr.moves(cluster, before[:4*mib])
	tr.removesImages(cluster)
}

// moves moves the image Disk_1, which holds content, with its snapshots to a second pool.
func (tr *tour) moves(cluster *cephtest.Cluster, content []byte) {
	tr.Helper()
	second := cluster.AddPool(tr.T)
	of := "/rbd-images/" + cluster.Pool + "/Disk_1"
	tr.call("POST", of+"/migrate?dest_pool=none", tr.admin, nil).Refused(400, "VALIDATION_ERROR", "dest_pool")
	tr.call("POST", of+"/migrate?dest_pool="+cluster.Pool, tr.admin, nil).Refused(400, "VALIDATION_ERROR", "dest_pool")
	backend := contracttest.As[[]storageapi.Backend](tr.call("GET", "/backends?backend_type=ceph", tr.admin, nil).Want(200))[0]
	tr.call("POST", "/backends/"+backend.Id+"/discover", tr.admin, nil).Want(200)
	id := tr.image(tr.admin, cluster.Pool, "Disk_1").Id
	if got := tr.done(tr.ok("MigrateRBDImage", of+"/migrate?dest_pool="+second, nil, 202), tr.admin); got != id {
		tr.Errorf("the job is about %s", got)
	}
	if i := tr.image(tr.admin, second, "Disk_1"); i.Id != id || i.State != "available" || i.Bps != 1073741824 {
		tr.Errorf("%+v", i)
	}
	if !bytes.Equal(rbd(tr.T, cluster, "export", second+"/Disk_1", "-"), content) {
		tr.Error("the image that was moved holds something else")
	}
	tr.call("POST", of+"/flatten", tr.admin, nil).Refused(404, "NOT_FOUND", "")
	// Its snapshots are the gateway's in the other pool, too.
	tr.done(tr.ok("DeleteRBDSnapshot", "/rbd-images/"+second+"/Disk_1/snapshots/one", nil, 202), tr.admin)
	tr.call("DELETE", "/rbd-images/"+second+"/Disk_1", tr.admin, nil).Want(202)
	for _, i := range contracttest.As[[]storageapi.Job](tr.call("GET", "/jobs?kind=image.delete", tr.admin, nil).Want(200)) {
		if j := tr.job(i.Id, tr.admin); j.State != "failed" || j.Error.Code != "CONFLICT" || !strings.Contains(j.Error.Message, "theirs") {
			tr.Errorf("%+v %+v", j, j.Error)
		}
	}
	rbd(tr.T, cluster, "snap", "rm", second+"/Disk_1@theirs")
	tr.done(tr.ok("DeleteRBDImage", "/rbd-images/"+second+"/Disk_1", nil, 202), tr.admin)
	if left := rbd(tr.T, cluster, "ls", second); len(left) != 0 {
		tr.Errorf("%s is left", left)
	}
}

// removesImages removes the image copy, and makes another one in its place.
func (tr *tour) removesImages(cluster *cephtest.Cluster) {
	tr.Helper()
	pool := cluster.Pool
	tr.call("POST", "/rbd-images", tr.admin, object{"name": "copy", "size_bytes": mib, "pool": pool}).Refused(409, "CONFLICT", "name")
	tr.done(tr.call("DELETE", "/rbd-images/"+pool+"/copy", tr.admin, nil), tr.admin)
	tr.done(tr.call("POST", "/rbd-images", tr.admin, object{"name": "copy", "size_bytes": mib, "pool": pool}), tr.admin)
	if got := rbd(tr.T, cluster, "export", pool+"/copy", "-"); len(got) != mib || bytes.ContainsFunc(got, func(r rune) bool { return r != 0 }) {
		tr.Errorf("the new image has %d bytes, or holds something", len(got))
	}
}

func TestImagesComeBackFromTheTrashOfCeph(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	pool := cluster.Pool
	spec := object{"name": "Disk_1", "size_bytes": 8 * mib, "pool": pool}
	of := "/rbd-images/" + pool + "/Disk_1"
	id := g.done(g.call("POST", "/rbd-images", g.admin, spec), g.admin)
	content := fill(t, cluster, pool+"/Disk_1", 8*mib)
	rbd(t, cluster, "snap", "create", pool+"/Disk_1@theirs")
	a := contracttest.As[storageapi.ImageAccepted](g.call("DELETE", of+"?trash_secs=3600", g.admin, nil).Want(202))
	if j := g.job(a.JobId, g.admin); j.Error == nil || j.Error.Code != "CONFLICT" || !strings.Contains(j.Error.Message, "theirs") {
		t.Errorf("with somebody's snapshot: %+v", j)
	}
	rbd(t, cluster, "snap", "rm", pool+"/Disk_1@theirs")
	g.done(g.call("DELETE", of+"?trash_secs=3600", g.admin, nil), g.admin)
	if text := string(rbd(t, cluster, "trash", "ls", pool)); !strings.Contains(text, "vol-"+id) {
		t.Errorf("Ceph's trash: %s", text)
	}
	// Its name is free, and it needs another one then.
	other := g.done(g.call("POST", "/rbd-images", g.admin, spec), g.admin)
	g.call("POST", "/trash/"+id+"/restore", g.admin, nil).Refused(409, "CONFLICT", "name")
	g.call("POST", "/trash/"+id+"/restore", g.admin, object{"name": ".."}).Refused(400, "VALIDATION_ERROR", "name")
	// What others made meanwhile is in the way only when the image is to get its name.
	rbd(t, cluster, "create", "--size", "1M", pool+"/theirs")
	b := contracttest.As[storageapi.TrashAccepted](
		g.call("POST", "/trash/"+id+"/restore", g.admin, object{"name": "theirs"}).Want(202))
	if j := g.job(b.JobId, g.admin); j.Error == nil || j.Error.Code != "CONFLICT" {
		t.Errorf("%+v", j)
	}
	all := contracttest.As[[]storageapi.TrashItem](g.call("GET", "/trash?cluster=prod", g.admin, nil).Want(200))
	if len(all) != 1 || all[0].Id != id || all[0].Pool != pool || !strings.Contains(all[0].LastError, "theirs") {
		t.Errorf("%+v", all)
	}
	g.done(g.call("POST", "/trash/"+id+"/restore", g.admin, object{"name": "Disk_2"}), g.admin)
	if i := g.image(g.admin, pool, "Disk_2"); i.Id != id || i.State != "available" {
		t.Errorf("%+v", i)
	}
	if got := rbd(t, cluster, "export", pool+"/Disk_2", "-"); !bytes.Equal(got, content) {
		t.Error("it does not hold what it held")
	}
	// A clone that is in the trash keeps the image that it was made of.
	g.done(g.call("POST", "/rbd-images/"+pool+"/Disk_2/snapshots", g.admin, object{"name": "one"}), g.admin)
	clone := g.done(g.call("POST", "/rbd-images/"+pool+"/Disk_2/clone", g.admin, object{"name": "copy", "snap": "one"}), g.admin)
	g.done(g.call("DELETE", "/rbd-images/"+pool+"/copy?trash_secs=60", g.admin, nil), g.admin)
	g.done(g.call("DELETE", "/rbd-images/"+pool+"/Disk_2/snapshots/one", g.admin, nil), g.admin)
	g.done(g.call("DELETE", "/rbd-images/"+pool+"/Disk_2?trash_secs=60", g.admin, nil), g.admin)
	g.done(g.call("DELETE", "/trash/"+id, g.admin, nil), g.admin)
	g.done(g.call("POST", "/trash/"+clone+"/restore", g.admin, nil), g.admin)
	if got := rbd(t, cluster, "export", pool+"/copy", "-"); !bytes.Equal(got, content) {
		t.Error("the clone does not hold what it held")
	}
	g.done(g.call("DELETE", "/volumes/"+clone, g.admin, nil), g.admin)
	g.done(g.call("DELETE", "/volumes/"+other+"?trash_secs=60", g.admin, nil), g.admin)
	g.done(g.call("DELETE", "/trash/"+other, g.admin, nil), g.admin)
	if names := strings.Fields(string(rbd(t, cluster, "ls", pool))); len(names) != 1 || names[0] != "theirs" {
		t.Errorf("left in the pool: %v", names)
	}
	if text := strings.TrimSpace(string(rbd(t, cluster, "trash", "ls", pool))); text != "" {
		t.Errorf("left in the trash: %s", text)
	}
}

func TestImagesOfOthersAreOnlyRead(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	pool := cluster.Pool
	rbd(t, cluster, "create", "--size", "1M", pool+"/theirs")
	backend := contracttest.As[[]storageapi.Backend](g.call("GET", "/backends?backend_type=ceph", g.admin, nil).Want(200))[0]
	discover := func() {
		t.Helper()
		g.call("POST", "/backends/"+backend.Id+"/discover", g.admin, nil).Want(200)
	}
	// The gateway does not know of it yet, and finds it only when the image gets its name.
	g.call("PUT", "/tenants/acme", g.admin, object{"quota": object{"volumes": 3}}).Want(200)
	ann := g.token("ann", "admin", "acme")
	a := contracttest.As[storageapi.ImageAccepted](g.call("POST", "/rbd-images", ann,
		object{"name": "theirs", "size_bytes": mib, "pool": pool}).Want(202))
	if j := g.job(a.JobId, ann); j.Error == nil || j.Error.Code != "CONFLICT" {
		t.Errorf("%+v", j)
	}
	g.done(g.call("DELETE", "/volumes/"+a.Resource.VolumeId, ann, nil), ann)
	discover()
	if names := strings.Fields(string(rbd(t, cluster, "ls", pool))); len(names) != 1 || names[0] != "theirs" {
		t.Errorf("%v", names)
	}
	g.call("POST", "/rbd-images", ann, object{"name": "theirs", "size_bytes": mib, "pool": pool}).Refused(409, "CONFLICT", "name")
	if i := g.image(g.admin, pool, "theirs"); i.Managed || i.TenantId != "" {
		t.Errorf("%+v", i)
	}
	of := "/rbd-images/" + pool + "/theirs"
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/snapshots", object{"name": "one"}}, {"POST", "/flatten", nil}, {"POST", "/qos?iops=1", nil},
		{"POST", "/resize", object{"size_bytes": 2 * mib}}, {"DELETE", "", nil},
		{"POST", "/resize", object{"size_bytes": 1, "allow_shrink": true}},
	} {
		g.call(call.method, of+call.path, g.admin, call.body).Refused(409, "CONFLICT", "")
		g.call(call.method, of+call.path, ann, call.body).Refused(404, "NOT_FOUND", "")
	}
	// What they remove makes room, and what they put in the place of an image of the gateway is not the gateway's.
	rbd(t, cluster, "rm", pool+"/theirs")
	discover()
	id := g.done(g.call("POST", "/rbd-images", ann, object{"name": "theirs", "size_bytes": mib, "pool": pool}), ann)
	rbd(t, cluster, "rm", pool+"/theirs")
	rbd(t, cluster, "create", "--size", "1M", pool+"/theirs")
	b := contracttest.As[storageapi.ImageAccepted](g.call("POST", of+"/resize", ann, object{"size_bytes": 2 * mib}).Want(202))
	if j := g.job(b.JobId, ann); j.Error == nil || j.Error.Code != "NOT_FOUND" {
		t.Errorf("%+v", j)
	}
	discover()
	discover()
	if v := g.volume(id, ann); v.State != "missing" {
		t.Errorf("%+v", v)
	}
	g.done(g.call("DELETE", "/volumes/"+id, ann, nil), ann)
	if names := strings.Fields(string(rbd(t, cluster, "ls", pool))); len(names) != 1 || names[0] != "theirs" {
		t.Errorf("%v", names)
	}
	for _, name := range []string{"vol-00000000-0000-0000-0000-000000000000", "a@b", "a/b", "a\x00", ".", ".."} {
		g.call("POST", "/rbd-images", g.admin, object{"name": name, "size_bytes": mib, "pool": pool}).Refused(400, "VALIDATION_ERROR", "name")
	}
	g.call("POST", "/rbd-images", g.admin, object{"name": "x", "size_bytes": mib, "pool": "none"}).Refused(400, "VALIDATION_ERROR", "pool")
	g.call("DELETE", "/rbd-images/"+pool+"/a%2Fb", g.admin, nil).Refused(400, "VALIDATION_ERROR", "image")
	g.call("POST", "/backends/"+backend.Id+"/cordon", g.admin, nil).Want(200)
	g.call("POST", "/rbd-images", g.admin, object{"name": "x", "size_bytes": mib, "pool": pool}).Refused(503, "BACKEND_CORDONED", "")
}

func TestVolumesInCephArePutBackInPlace(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": 4 * mib, "policy": "prod"}), g.admin)
	image := cluster.Pool + "/vol-" + id
	before := fill(t, cluster, image, 4*mib)
	snapshot := g.done(g.call("POST", "/volumes/"+id+"/snapshots", g.admin, object{"name": "one"}), g.admin)
	fill(t, cluster, image, 4*mib)
	restore := "/snapshots/" + snapshot + "/restore"
	g.call("POST", restore, g.admin, object{"in_place": true}).Refused(400, "VALIDATION_ERROR", "confirm")
	g.call("POST", restore, g.admin, object{"in_place": true, "confirm": true, "name": "x"}).Refused(400, "VALIDATION_ERROR", "name")
	g.call("POST", restore, g.token("otto", "operator", ""), object{"in_place": true, "confirm": true}).Refused(403, "DENIED", "")
	if got := g.done(g.call("POST", restore, g.admin, object{"in_place": true, "confirm": true}), g.admin); got != id {
		t.Errorf("the job is about %s", got)
	}
	if !bytes.Equal(rbd(t, cluster, "export", image, "-"), before) {
		t.Error("the volume does not hold what its snapshot held")
	}
	// Folders cannot do this.
	other := g.done(g.call("POST", "/volumes", g.admin, object{"name": "folder", "size_bytes": mib}), g.admin)
	sn := g.done(g.call("POST", "/volumes/"+other+"/snapshots", g.admin, nil), g.admin)
	g.call("POST", "/snapshots/"+sn+"/restore", g.admin, object{"in_place": true, "confirm": true}).Refused(400, "UNSUPPORTED", "")
}
