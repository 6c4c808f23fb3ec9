package storage_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// What a person does to see whether it works: make a volume, snapshot it, destroy its content, restore it.
func TestASnapshotBringsBackWhatAVolumeHeld(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		ann := g.token("ann", "operator", "acme")
		g.call("PUT", "/tenants/acme", g.admin, object{}).Want(200)
		id := g.done(g.call("POST", "/volumes", ann, object{"name": "data", "size_bytes": 8 * mib}), ann)
		if v := g.volume(id, ann); v.State != "available" || v.TenantId != "acme" || v.Kind != "block" || v.Policy != "default" ||
			v.SizeBytes != 8*mib || !v.SizeEnforced || !v.Managed || v.Health != "ok" || v.BackendNativeId != "vol-"+id {
			t.Errorf("%+v", v)
		}
		g.write(id, "precious")
		a := g.call("POST", "/volumes/"+id+"/snapshots", ann, nil)
		accepted := contracttest.As[storageapi.SnapshotAccepted](a.Want(202))
		snapshot := g.done(a, ann)
		if accepted.Resource.SnapshotId != snapshot || accepted.Resource.VolumeId != id ||
			accepted.Links.Watch != base+"/jobs/"+accepted.JobId+"/watch" {
			t.Errorf("%+v", accepted)
		}
		g.write(id, "destroyed")
		restored := g.done(g.call("POST", "/snapshots/"+snapshot+"/restore", ann, nil), ann)
		g.holds(restored, "precious")
		if v := g.volume(restored, ann); !strings.HasPrefix(v.Name, "restore-data-") || v.SourceSnapshotId != snapshot ||
			v.TenantId != "acme" {
			t.Errorf("%+v", v)
		}
		g.call("POST", "/snapshots/"+snapshot+"/restore", ann, object{"in_place": true, "confirm": true}).Refused(403, "DENIED", "")
		g.call("POST", "/snapshots/"+snapshot+"/restore", g.admin, object{"in_place": true, "confirm": true}).
			Refused(400, "UNSUPPORTED", "")
		// A snapshot with a clone stays unless an admin forces it.
		g.call("DELETE", "/snapshots/"+snapshot, ann, nil).Refused(409, "CONFLICT", "")
		g.call("DELETE", "/snapshots/"+snapshot+"?force=true", ann, nil).Refused(403, "DENIED", "")
		for _, action := range []string{"snapshot.restore", "snapshot.delete"} {
			denied := contracttest.As[[]storageapi.AuditEntry](
				g.call("GET", "/audit?result=denied&action="+action, g.admin, nil).Want(200))
			if len(denied) != 1 || denied[0].Actor != "ann" || denied[0].Target != snapshot {
				t.Errorf("%s: %+v", action, denied)
			}
		}
		boss := g.token("bob", "admin", "acme")
		g.call("DELETE", "/volumes/"+id, boss, nil).Refused(409, "CONFLICT", "")
		g.done(g.call("DELETE", "/snapshots/"+snapshot+"?force=true", boss, nil), boss)
		g.holds(restored, "precious")
		g.done(g.call("DELETE", "/volumes/"+id, boss, nil), boss)
		g.call("GET", "/volumes/"+id, boss, nil).Refused(404, "NOT_FOUND", "")
	})
}

func TestRequestsThatMakeNoSenseNameTheFieldAndChangeNothing(t *testing.T) {
	t.Parallel()
	g := start(t)
	for _, c := range []struct {
		body  any
		field string
	}{
		{object{"size_bytes": mib}, "name"},
		{object{"name": "a"}, "size_bytes"},
		{object{"name": "a", "size_bytes": 0}, "size_bytes"},
		{object{"name": "a", "size_bytes": -1}, "size_bytes"},
		{object{"name": "a", "size_bytes": 1.5}, "size_bytes"},
		{`{"name":"a","size_bytes":9223372036854775808}`, "size_bytes"},
		{`{"name":"a","size_bytes":1e400}`, "size_bytes"},
		{object{"name": "A", "size_bytes": mib}, "name"},
		{object{"name": "a/b", "size_bytes": mib}, "name"},
		{object{"name": "a@b", "size_bytes": mib}, "name"},
		{object{"name": "..", "size_bytes": mib}, "name"},
		{object{"name": "a\x00", "size_bytes": mib}, "name"},
		{object{"name": strings.Repeat("a", 254), "size_bytes": mib}, "name"},
		{object{"name": "a", "size_bytes": mib, "policy": "none"}, "policy"},
		{object{"name": "a", "size_bytes": mib, "tenant_id": "none"}, "tenant_id"},
		{object{"name": "a", "size_bytes": mib, "kind": "tape"}, "kind"},
		{`{"name":"a","size_bytes":1,"size_bytes":2}`, "size_bytes"},
	} {
		g.call("POST", "/volumes", g.admin, c.body).Refused(400, "VALIDATION_ERROR", c.field)
	}
	g.call("POST", "/volumes", g.admin, object{
		"name": "a", "size_bytes": mib, "kubernetes": object{"create_pvc": true},
	}).Refused(400, "UNSUPPORTED", "kubernetes.create_pvc")
	g.call("PUT", "/policies/p", g.admin, object{
		"backend_id": "local", "kind": "block", "storage_class": "fast",
	}).Refused(400, "UNSUPPORTED", "storage_class")
	g.call("POST", "/snapshots/none/clone", g.admin, object{"name": "a", "namespace": "b"}).Refused(400, "UNSUPPORTED", "namespace")
	g.call("POST", "/snapshots/none/restore", g.admin, object{"storage_class": "b"}).Refused(400, "UNSUPPORTED", "storage_class")
	g.call("POST", "/volumes/none/snapshots", g.admin, object{"snapshot_class": "b"}).Refused(400, "UNSUPPORTED", "snapshot_class")
	for _, id := range []string{"none", "a%2Fb", "%00", "a@b", "..%2F..", strings.Repeat("x", 64)} {
		for _, path := range []string{"/volumes/" + id, "/snapshots/" + id, "/jobs/" + id, "/backends/" + id, "/clusters/" + id + "/health"} {
			if a := g.call("GET", path, g.admin, nil); a.Status != http.StatusNotFound && a.Status != http.StatusBadRequest {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
		}
	}
	g.call("POST", "/backends", g.admin, object{"name": "c", "backend_type": "kubernetes"}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	g.call("POST", "/backends", g.admin, object{"name": "c", "backend_type": "san"}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	g.call("POST", "/backends", g.admin, object{"name": "c", "backend_type": "ceph"}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	g.call("POST", "/backends", g.admin, object{"name": "c", "backend_type": "nfs"}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	g.call("POST", "/backends", g.admin, object{
		"name": "c", "backend_type": "nfs", "connection_ref": "../etc",
	}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	g.call("GET", "/volumes?cluster=none", g.admin, nil).Refused(400, "VALIDATION_ERROR", "cluster")
	g.call("GET", "/volumes?cursor=x", g.admin, nil).Refused(400, "VALIDATION_ERROR", "cursor")
	if all := contracttest.As[[]storageapi.Job](g.call("GET", "/jobs", g.admin, nil).Want(200)); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestARequestThatIsRepeatedWithItsKeyBeginsOneJob(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
		send := func(token, key string, body object) answer {
			return contracttest.Send(t, nil, contracttest.Request{
				Method: "POST", URL: g.url + base + "/volumes/" + id + "/snapshots", Token: token, Body: body,
				Header: map[string]string{"Idempotency-Key": key},
			})
		}
		first := contracttest.As[storageapi.SnapshotAccepted](send(g.admin, "once", object{"name": "one"}).Want(202))
		again := contracttest.As[storageapi.SnapshotAccepted](send(g.admin, "once", object{"name": "one"}).Want(202))
		if first.JobId != again.JobId || first.Resource != again.Resource {
			t.Errorf("%+v, %+v", first, again)
		}
		send(g.admin, "once", object{"name": "two"}).Refused(409, "IDEMPOTENCY_KEY_REUSED", "")
		other := contracttest.As[storageapi.SnapshotAccepted](
			send(g.token("eve", "operator", ""), "once", object{"name": "two"}).Want(202),
		)
		if other.JobId == first.JobId {
			t.Error("another caller's key is the same")
		}
		g.job(first.JobId, g.admin)
		g.job(other.JobId, g.admin)
	})
}

func TestACordonedBackendTakesNoNewVolumes(t *testing.T) {
	t.Parallel()
	g := start(t)
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	backend := "/backends/" + g.local().Id
	if b := contracttest.As[storageapi.Backend](g.call("POST", backend+"/cordon", g.admin, nil).Want(200)); b.Status != "cordoned" {
		t.Errorf("%+v", b)
	}
	g.call("POST", "/volumes", g.admin, object{"name": "more", "size_bytes": mib}).Refused(503, "BACKEND_CORDONED", "")
	// What there is stays usable, also what is in the trash, and a repeated request is answered.
	g.done(g.call("DELETE", "/volumes/"+id+"?trash_secs=60", g.admin, nil), g.admin)
	g.done(g.call("POST", "/trash/"+id+"/restore", g.admin, nil), g.admin)
	g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}).Want(202)
	g.done(g.call("POST", "/volumes/"+id+"/expand", g.admin, object{"new_size_bytes": 2 * mib}), g.admin)
	g.call("POST", backend+"/uncordon", g.admin, nil).Want(200)
	g.done(g.call("POST", "/volumes", g.admin, object{"name": "more", "size_bytes": mib}), g.admin)
}

func TestTenantsAreConfined(t *testing.T) {
	t.Parallel()
	g := start(t)
	for _, tenant := range []string{"acme", "beta"} {
		g.call("PUT", "/tenants/"+tenant, g.admin, object{}).Want(200)
	}
	ann, eve := g.token("ann", "admin", "acme"), g.token("eve", "admin", "beta")
	a := g.call("POST", "/volumes", ann, object{"name": "data", "size_bytes": mib})
	job := contracttest.As[storageapi.VolumeAccepted](a.Want(202)).JobId
	id := g.done(a, ann)
	snapshot := g.done(g.call("POST", "/volumes/"+id+"/snapshots", ann, object{"name": "one"}), ann)
	for _, c := range []struct{ method, path string }{
		{"GET", "/volumes/" + id}, {"DELETE", "/volumes/" + id}, {"POST", "/volumes/" + id + "/expand"},
		{"POST", "/volumes/" + id + "/snapshots"}, {"GET", "/volumes/" + id + "/snapshots"}, {"GET", "/snapshots/" + snapshot},
		{"DELETE", "/snapshots/" + snapshot}, {"POST", "/snapshots/" + snapshot + "/clone"},
		{"POST", "/snapshots/" + snapshot + "/restore"}, {"GET", "/jobs/" + job}, {"GET", "/jobs/" + job + "/watch"},
		{"POST", "/jobs/" + job + "/cancel"}, {"GET", "/tenants/acme"},
	} {
		body := any(nil)
		if strings.HasSuffix(c.path, "/expand") {
			body = object{"new_size_bytes": 2 * mib}
		} else if strings.HasSuffix(c.path, "/clone") {
			body = object{"name": "stolen"}
		}
		g.call(c.method, c.path, eve, body).Refused(404, "NOT_FOUND", "")
	}
	for _, path := range []string{"/volumes", "/snapshots", "/jobs"} {
		if body := g.call("GET", path, eve, nil).Want(200).Body; strings.TrimSpace(body) != "[]" {
			t.Errorf("%s: %s", path, body)
		}
		g.call("GET", path+"?tenant=acme", eve, nil).Refused(403, "DENIED", "")
	}
	g.call("POST", "/volumes", eve, object{"name": "x", "size_bytes": mib, "tenant_id": "acme"}).Refused(403, "DENIED", "")
	if b := contracttest.As[[]storageapi.Backend](g.call("GET", "/backends", eve, nil).Want(200))[0]; b.ConnectionRef != "" {
		t.Errorf("%+v", b)
	}
	for _, e := range contracttest.As[[]storageapi.AuditEntry](g.call("GET", "/audit", eve, nil).Want(200)) {
		if e.Tenant != "beta" {
			t.Errorf("%+v", e)
		}
	}
	// Volumes that nobody made are nobody's.
	for _, v := range contracttest.As[[]storageapi.Volume](g.call("GET", "/volumes", g.admin, nil).Want(200)) {
		if v.TenantId != "acme" {
			t.Errorf("%+v", v)
		}
	}
}

func TestWhoCancelsADeletionNeedsTheRoleThatItTakes(t *testing.T) {
	t.Parallel()
	g := start(t)
	a := g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib})
	id := g.done(a, g.admin)
	operator := g.token("olga", "operator", "")
	deletion := g.call("DELETE", "/volumes/"+id, g.admin, nil)
	job := contracttest.As[storageapi.VolumeAccepted](deletion.Want(202)).JobId
	g.call("POST", "/jobs/"+job+"/cancel", operator, nil).Refused(403, "DENIED", "")
	g.done(deletion, g.admin)
	made := contracttest.As[storageapi.VolumeAccepted](a).JobId
	g.call("POST", "/jobs/"+made+"/cancel", operator, nil).Refused(409, "CONFLICT", "") // it has ended
}

// A folder that is not there, as when its file system is not mounted, is told, and comes back.
func TestABackendWhoseFolderIsGoneIsUnreachableAndTouchesNothing(t *testing.T) {
	t.Parallel()
	g := start(t)
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	g.write(id, "kept")
	folder := filepath.Join(g.config.Data, "volumes")
	g.stop()
	if err := errors.Join(os.Rename(folder, folder+".away"), os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	g.run()
	a := g.call("POST", "/backends/"+g.local().Id+"/discover", g.admin, nil).Refused(409, "CONFLICT", "")
	if !strings.Contains(a.Body, "is mounted") {
		t.Errorf("%s", a.Body)
	}
	if b := g.local(); b.Status != "unreachable" || b.LastError == "" {
		t.Errorf("%+v", b)
	}
	g.call("POST", "/alerts/evaluate", g.admin, nil).Want(200)
	if a := g.alert("backend_unreachable", g.admin); a.Severity != "critical" || !strings.Contains(a.Description, "is mounted") {
		t.Errorf("%+v", a)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if v := g.volume(id, g.admin); v.State != "available" {
		t.Errorf("what is not known to be gone is %s", v.State)
	}
	if err := errors.Join(os.Remove(folder), os.Rename(folder+".away", folder)); err != nil {
		t.Fatal(err)
	}
	g.call("POST", "/backends/"+g.local().Id+"/discover", g.admin, nil).Want(200)
	if b := g.local(); b.Status != "ready" || b.LastError != "" {
		t.Errorf("%+v", b)
	}
	g.holds(id, "kept")
}

func TestAJobIsAnsweredAsSoonAsItHasEnded(t *testing.T) {
	t.Parallel()
	g := start(t)
	g.call("POST", "/maintenance", g.admin, object{"paused": true}).Want(200)
	id := contracttest.As[storageapi.VolumeAccepted](
		g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}).Want(202)).JobId
	if j := contracttest.As[storageapi.Job](g.call("GET", "/jobs/"+id, g.admin, nil).Want(200)); j.State != "queued" {
		t.Errorf("%+v", j)
	}
	waiting := make(chan answer, 1)
	go func() { waiting <- g.call("GET", "/jobs/"+id+"?wait=600", g.admin, nil) }()
	g.call("POST", "/maintenance", g.admin, object{"paused": false}).Want(200)
	if j := contracttest.As[storageapi.Job]((<-waiting).Want(200)); j.State != "succeeded" {
		t.Errorf("%+v", j)
	}
}

func TestQuotasNameTheLimit(t *testing.T) {
	t.Parallel()
	g := start(t)
	g.call("PUT", "/tenants/acme", g.admin, object{"quota": object{"bytes": 10 * mib}}).Want(200)
	ann := g.token("ann", "operator", "acme")
	id := g.done(g.call("POST", "/volumes", ann, object{"name": "a", "size_bytes": 8 * mib}), ann)
	a := g.call("POST", "/volumes", ann, object{"name": "b", "size_bytes": 8 * mib}).Limited(403, "DENIED", "", "bytes")
	if !strings.Contains(a.Body, "2097152 of 10485760 left") {
		t.Errorf("%s", a.Body)
	}
	g.call("POST", "/volumes/"+id+"/expand", ann, object{"new_size_bytes": 11 * mib}).Limited(403, "DENIED", "", "bytes")
	g.done(g.call("POST", "/volumes/"+id+"/expand", ann, object{"new_size_bytes": 10 * mib}), ann)
}

func TestWithoutCredentialsOnlyThisMachineIsAnswered(t *testing.T) {
	t.Parallel()
	g := start(t, func(c *storage.Config) { c.AuthRequired = false })
	g.done(g.call("POST", "/volumes", "", object{"name": "data", "size_bytes": mib}), "")
	for _, e := range contracttest.As[[]storageapi.AuditEntry](g.call("GET", "/audit?action=volume.create", "", nil).Want(200)) {
		if e.Actor != "anonymous" {
			t.Errorf("%+v", e)
		}
	}
	for header, value := range map[string]string{"Host": "evil.example", "Origin": "https://evil.example"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", g.url+base+"/volumes", nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Set(header, value); header == "Host" {
			r.Host = value
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s: %d", header, value, resp.StatusCode)
		}
	}
	open := g.config
	open.Listen = "0.0.0.0:0"
	if err := open.Validate(); err == nil || !strings.Contains(err.Error(), "auth-required") {
		t.Errorf("%v", err)
	}
	open.AuthRequired = true
	if err := open.Validate(); err != nil {
		t.Error(err)
	}
	open.Directories = []string{"relative=path"}
	if err := open.Validate(); err == nil {
		t.Error("a relative folder was taken")
	}
}

func TestWhatWasAcknowledgedIsThereAfterARestart(t *testing.T) {
	t.Parallel()
	g := start(t)
	id := g.done(g.call("POST", "/volumes", g.admin, object{"name": "data", "size_bytes": mib}), g.admin)
	g.write(id, "kept")
	var begun []string
	for i := range 5 {
		a := g.call("POST", "/volumes/"+id+"/snapshots", g.admin, object{"name": strings.Repeat("s", i+1)})
		begun = append(begun, contracttest.As[storageapi.SnapshotAccepted](a.Want(202)).JobId)
	}
	g.stop()
	g.begin()
	for _, job := range begun {
		if j := g.job(job, g.admin); j.State != "succeeded" {
			t.Errorf("%+v %+v", j, j.Error)
		}
	}
	all := contracttest.As[[]storageapi.Snapshot](g.call("GET", "/volumes/"+id+"/snapshots?limit=2", g.admin, nil).Want(200))
	if len(all) != 2 || all[0].State != "ready" || all[0].Name != "sssss" {
		t.Errorf("%+v", all)
	}
	g.holds(id, "kept")
}
