//go:build linux

package storage_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestGroupsOfVolumesAreKeptAndPutBackTogether(t *testing.T) {
	t.Parallel()
	g, cluster := inCeph(t)
	tr := &tour{g, map[string]int{}}
	tr.call("PUT", "/tenants/acme", tr.admin, object{"quota": object{"snapshots": 5}}).Want(200)
	ann := tr.token("ann", "admin", "acme")
	var ids []string
	for _, name := range []string{"data", "log"} {
		ids = append(ids, tr.done(tr.call("POST", "/volumes", ann, object{"name": name, "size_bytes": 4 * mib, "policy": "prod"}), ann))
	}
	// An image under a name of its user's own can be in a group, too.
	ids = append(ids, tr.done(tr.call("POST", "/rbd-images", ann, object{"name": "Index", "size_bytes": 4 * mib, "pool": cluster.Pool}), ann))
	images := []string{"vol-" + ids[0], "vol-" + ids[1], "Index"}
	other := tr.done(tr.call("POST", "/volumes", tr.admin, object{"name": "other", "size_bytes": mib, "policy": "prod"}), tr.admin)
	tr.call("POST", "/volume-groups", tr.admin, object{"name": "mixed", "volume_ids": []string{ids[0], other}}).
		Refused(400, "VALIDATION_ERROR", "volume_ids")
	tr.call("POST", "/volume-groups", ann, object{"name": "theirs", "volume_ids": []string{other}}).
		Refused(400, "VALIDATION_ERROR", "volume_ids")
	group := contracttest.As[storageapi.VolumeGroup](
		tr.ok("CreateVolumeGroup", "/volume-groups", object{"name": "db", "volume_ids": ids}, 201))
	if got := contracttest.As[storageapi.VolumeGroup](tr.ok("GetVolumeGroup", "/volume-groups/"+group.Id, nil, 200)); got.TenantId != "acme" ||
		!slices.Equal(got.VolumeIds, ids) {
		t.Errorf("%+v", got)
	}
	tr.call("POST", "/volume-groups", ann, object{"name": "again", "volume_ids": ids[:1]}).Refused(409, "CONFLICT", "volume_ids")
	tr.call("DELETE", "/volumes/"+ids[0], ann, nil).Refused(409, "CONFLICT", "")
	of := "/volume-groups/" + group.Id
	tr.call("GET", of, tr.token("bob", "viewer", "beta"), nil).Refused(404, "NOT_FOUND", "")

	contents := func() (all [][]byte) {
		for _, image := range images {
			all = append(all, rbd(t, cluster, "export", cluster.Pool+"/"+image, "-"))
		}
		return all
	}
	write := func() {
		for _, image := range images {
			fill(t, cluster, cluster.Pool+"/"+image, 4*mib)
		}
	}
	write()
	before := contents()
	tr.done(tr.ok("CreateGroupSnapshot", of+"/snapshots", object{"name": "one"}, 202), tr.admin)
	// With two of three volumes a snapshot, the limit of five is not enough for another one.
	tr.call("POST", of+"/snapshots", ann, object{"name": "two"}).Limited(403, "DENIED", "", "snapshots")
	all := contracttest.As[[]storageapi.GroupSnapshot](tr.ok("ListGroupSnapshots", of+"/snapshots", nil, 200))
	if len(all) != 1 || all[0].State != "ready" || all[0].Consistency != "crash" || !slices.Equal(all[0].VolumeIds, ids) {
		t.Errorf("%+v", all)
	}
	write()
	tr.call("POST", of+"/snapshots/one/rollback", ann, object{}).Refused(400, "VALIDATION_ERROR", "confirm")
	tr.done(tr.ok("RollbackGroup", of+"/snapshots/one/rollback", object{"confirm": true}, 202), tr.admin)
	for i, got := range contents() {
		if !bytes.Equal(got, before[i]) {
			t.Errorf("%s does not hold what it held", images[i])
		}
		if v := tr.volume(ids[i], ann); v.State != "available" || v.LastError != "" {
			t.Errorf("%+v", v)
		}
	}
	tr.call("PUT", "/tenants/acme", tr.admin, object{"quota": object{"snapshots": 9}}).Want(200)
	tr.strangerInGroup(cluster, of, "grp-"+group.Id)
	tr.call("DELETE", of, ann, nil).Refused(409, "CONFLICT", "")
	tr.done(tr.ok("DeleteGroupSnapshot", of+"/snapshots/"+all[0].Id, nil, 202), tr.admin)
	tr.ok("DeleteVolumeGroup", of, nil, 200)
	if left := rbd(t, cluster, "group", "ls", cluster.Pool); len(left) != 0 {
		t.Errorf("%s is left", left)
	}
	for _, id := range append(ids, other) {
		tr.done(tr.call("DELETE", "/volumes/"+id, tr.admin, nil), tr.admin)
	}
	if left := rbd(t, cluster, "ls", cluster.Pool); len(left) != 0 {
		t.Errorf("%s is left", left)
	}
}

// strangerInGroup adds an image to a group behind the gateway's back. It is neither kept nor put back.
func (tr *tour) strangerInGroup(cluster *cephtest.Cluster, of, group string) {
	tr.Helper()
	pool := cluster.Pool
	rbd(tr.T, cluster, "create", "--size", "4M", pool+"/stranger")
	rbd(tr.T, cluster, "group", "image", "add", pool+"/"+group, pool+"/stranger")
	content := fill(tr.T, cluster, pool+"/stranger", 4*mib)
	for _, call := range []answer{
		tr.call("POST", of+"/snapshots", tr.admin, object{"name": "three"}),
		tr.call("POST", of+"/snapshots/one/rollback", tr.admin, object{"confirm": true}),
	} {
		j := tr.job(contracttest.As[storageapi.VolumeAccepted](call.Want(202)).JobId, tr.admin)
		if j.Error == nil || j.Error.Code != "CONFLICT" || !strings.Contains(j.Error.Message, pool+"/stranger") {
			tr.Errorf("%s: %+v %+v", j.Kind, j, j.Error)
		}
	}
	if got := rbd(tr.T, cluster, "export", pool+"/stranger", "-"); !bytes.Equal(got, content) {
		tr.Error("what was added to the group was put back")
	}
	rbd(tr.T, cluster, "group", "image", "remove", pool+"/"+group, pool+"/stranger")
	rbd(tr.T, cluster, "rm", pool+"/stranger")
	for _, sn := range contracttest.As[[]storageapi.GroupSnapshot](tr.call("GET", of+"/snapshots", tr.admin, nil).Want(200)) {
		if sn.Name == "three" {
			tr.done(tr.call("DELETE", of+"/snapshots/"+sn.Id, tr.admin, nil), tr.admin)
		}
	}
}

// Librbd's locks of the images would make two that are taken at once wait for each other without end.
func TestSnapshotsOfAGroupAreTakenOneAfterAnother(t *testing.T) {
	t.Parallel()
	g, _ := inCeph(t)
	tr := &tour{g, map[string]int{}}
	var ids []string
	for _, name := range []string{"data", "log", "index"} {
		ids = append(ids, tr.done(tr.call("POST", "/volumes", tr.admin, object{"name": name, "size_bytes": 4 * mib, "policy": "prod"}), tr.admin))
	}
	group := contracttest.As[storageapi.VolumeGroup](
		tr.call("POST", "/volume-groups", tr.admin, object{"name": "db", "volume_ids": ids}).Want(201))
	of := "/volume-groups/" + group.Id
	const n = 8
	var last answer
	for i := range n {
		next := tr.call("POST", of+"/snapshots", tr.admin, object{"name": fmt.Sprint("s", i)})
		if i > 0 {
			if next.Status == 409 {
				next.Refused(409, "CONFLICT", "")
			}
			tr.done(last, tr.admin)
		}
		if next.Status == 409 {
			next = tr.call("POST", of+"/snapshots", tr.admin, object{"name": fmt.Sprint("s", i)})
		}
		last = next
	}
	tr.done(last, tr.admin)
	var gone []answer
	for _, sn := range contracttest.As[[]storageapi.GroupSnapshot](tr.call("GET", of+"/snapshots", tr.admin, nil).Want(200)) {
		if sn.State != "ready" {
			t.Errorf("%+v", sn)
		}
		gone = append(gone, tr.call("DELETE", of+"/snapshots/"+sn.Id, tr.admin, nil))
	}
	for _, g := range gone {
		tr.done(g, tr.admin)
	}
	if len(gone) != n {
		t.Errorf("%d snapshots, not %d", len(gone), n)
	}
}
