package storage_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// tour uses every operation once with success, the way its users would, and checks that each leaves the audit entry
// that the contract promises.
type tour struct {
	*gateway
	audited map[string]int
}

func (tr *tour) ok(id, path string, body any, status int) answer {
	tr.Helper()
	for _, op := range tr.contract.Operations() {
		if op.ID != id {
			continue
		}
		a := tr.call(op.Method, path, tr.admin, body).Want(status)
		if op.Audit == "" || op.Audit == "none" {
			return a
		}
		n := 0
		for _, e := range contracttest.As[[]storageapi.AuditEntry](tr.call("GET", "/audit?limit=1000", tr.admin, nil).Want(200)) {
			if e.Action == op.Audit && e.Result == "ok" {
				n++
			}
		}
		if n <= tr.audited[op.Audit] {
			tr.Errorf("%s left no audit entry %q", id, op.Audit)
		}
		tr.audited[op.Audit] = n
		return a
	}
	tr.Fatalf("no operation %s", id)
	return answer{}
}

func TestEveryOperationIsExercisedRefusesStrangersAndIsAudited(t *testing.T) {
	t.Parallel()
	entry := fakeBucket(t)
	g := start(t, func(c *storage.Config) { c.S3Buckets = []string{"offsite=" + entry} })
	takeTour(&tour{g, map[string]int{}})
	viewer, boss := g.token("vera", "viewer", ""), g.token("bob", "admin", "acme")
	for _, op := range g.contract.Operations() {
		path := strings.NewReplacer("{id}", "none", "{name}", "none", "{osd_id}", "0", "{pool}", "none", "{image}", "none",
			"{snap}", "none").Replace(op.Path)
		g.call(op.Method, path, "", nil).Want(401)
		g.call(op.Method, path, "no.such.token", nil).Want(401)
		if op.Access != "viewer" {
			g.call(op.Method, path, viewer, nil).Want(403)
		}
		if op.Access == "admin" && !ofTenants[op.ID] {
			g.call(op.Method, path, boss, nil).Want(403)
		}
	}
	// What only Ceph does is tested with Ceph.
	missing := slices.DeleteFunc(g.recorder.Missing("open", "viewer"), func(outcome string) bool {
		id, _ := strings.CutSuffix(outcome, ": no success")
		return slices.Contains(onlyCeph, id)
	})
	if len(missing) > 0 {
		t.Errorf("never seen:\n%s\nseen:\n%s", strings.Join(missing, "\n"), g.recorder.Report())
	}
}

// ofTenants are the operations of admins that admins of tenants may call, too.
var ofTenants = map[string]bool{
	"DeleteVolume": true, "ListAudit": true, "DeleteRBDImage": true, "MigrateRBDImage": true,
	"RollbackGroup": true, "PromoteMirror": true, "DemoteMirror": true, "ResyncMirror": true, "RehearseFailover": true,
	"FailOver": true, "PurgeTrash": true,
}

// onlyCeph are the operations that are tested with Ceph.
var onlyCeph = []string{
	"MarkOSDOut", "MarkOSDIn", "ReweightOSD", "CreateRBDImage", "DeleteRBDImage", "CloneRBDImage", "CreateRBDSnapshot",
	"ListRBDSnapshots", "DeleteRBDSnapshot", "RollbackRBDImage", "FlattenRBDImage", "SetRBDQoS", "ResizeRBDImage",
	"MigrateRBDImage", "RefreshRBDUsage", "CreateVolumeGroup", "GetVolumeGroup", "DeleteVolumeGroup",
	"CreateGroupSnapshot", "ListGroupSnapshots", "DeleteGroupSnapshot", "RollbackGroup",
	// Mirrors need two clusters.
	"CreatePeer", "DeletePeer", "EnableMirror", "DisableMirror", "GetMirrorStatus", "PromoteMirror", "DemoteMirror",
	"ResyncMirror", "RehearseFailover", "FailOver", "SetRPO", "GetPoolMirroring", "SetPoolMirroring",
	// Backups need an S3 service, which the tests with Ceph have.
	"CreateBackup", "GetBackup", "DeleteBackup", "RestoreBackup", "VerifyBackup", "ImportBackups",
}

func takeTour(tr *tour) {
	tr.Helper()
	local := tr.local()
	tr.ok("ListBackends", "/backends?backend_type=nfs", nil, 200)
	tr.ok("GetBackend", "/backends/"+local.Id, nil, 200)
	tr.ok("CreateBackend", "/backends", object{
		"name": "second", "backend_type": "nfs", "mode": "read_only", "connection_ref": "local",
	}, 201)
	tr.ok("DiscoverBackend", "/backends/"+local.Id+"/discover", nil, 200)
	tr.ok("CordonBackend", "/backends/"+local.Id+"/cordon", nil, 200)
	tr.ok("UncordonBackend", "/backends/"+local.Id+"/uncordon", nil, 200)
	clusters := contracttest.As[[]storageapi.Cluster](tr.ok("ListClusters", "/clusters", nil, 200))
	if len(clusters) != 1 {
		tr.Fatalf("%+v", clusters)
	}
	tr.ok("GetClusterHealth", "/clusters/"+clusters[0].Id+"/health", nil, 200)
	tr.ok("GetClusterCapabilities", "/clusters/"+clusters[0].Id+"/capabilities", nil, 200)
	tr.ok("ListNodes", "/nodes?cluster=local", nil, 200)
	tr.ok("ListOSDs", "/osds?cluster="+clusters[0].Id, nil, 200)
	if pools := contracttest.As[[]storageapi.Pool](tr.ok("ListPools", "/pools?backend=local&kind=nfs_export", nil, 200)); len(pools) != 1 {
		tr.Errorf("%+v", pools)
	}
	tr.ok("PutTenant", "/tenants/acme", object{"description": "Acme", "quota": object{"volumes": 9}}, 200)
	tr.ok("PutTenant", "/tenants/empty", object{}, 200)
	tr.ok("PutTenant", "/tenants/beta", object{}, 200)
	tr.ok("ListTenants", "/tenants", nil, 200)
	tr.ok("GetTenant", "/tenants/acme", nil, 200)
	tr.ok("DeleteTenant", "/tenants/empty", nil, 204)
	tr.ok("PutPolicy", "/policies/fast", object{"backend_id": "local", "kind": "block", "pool": "default"}, 200)
	tr.ok("ListPolicies", "/policies", nil, 200)
	tr.ok("GetPolicy", "/policies/shared", nil, 200)
	tr.ok("DeletePolicy", "/policies/fast", nil, 204)

	volume := tr.done(tr.ok("CreateVolume", "/volumes", object{"name": "data", "size_bytes": 8 * mib, "tenant_id": "acme"}, 202), tr.admin)
	tr.ok("ListVolumes", "/volumes?q=DATA&tenant=acme&backend=local&kind=block&state=available", nil, 200)
	tr.ok("GetVolume", "/volumes/"+volume, nil, 200)
	tr.scheduled(volume)
	tr.ok("ListVolumeGroups", "/volume-groups?cluster=local&tenant=acme", nil, 200)
	tr.call("POST", "/volume-groups", tr.admin, object{"name": "pair", "volume_ids": []string{volume}}).
		Refused(400, "UNSUPPORTED", "volume_ids")
	for id, path := range map[string]string{
		"ListPeers": "/dr/peers?cluster=local", "ListMirrors": "/dr/mirrors?tenant=acme&cluster=local", "GetDRStatus": "/dr/status",
		"GetDRPreflight": "/dr/preflight",
	} {
		tr.ok(id, path, nil, 200)
	}
	tr.call("POST", "/dr/peers", tr.admin, object{"name": "west", "secret_ref": "none"}).
		Refused(400, "VALIDATION_ERROR", "secret_ref")
	tr.call("POST", "/volumes/"+volume+"/mirror?peer=none", tr.admin, nil).Refused(400, "UNSUPPORTED", "")
	tr.ok("ListBackups", "/backups?tenant=acme", nil, 200)
	tr.ok("ListOrphans", "/maintenance/orphans", nil, 200)
	tr.ok("ListRBDImages", "/rbd-images?cluster=local&tenant=acme&pool=none", nil, 200)
	tr.alerted()
	tr.done(tr.ok("ExpandVolume", "/volumes/"+volume+"/expand", object{"new_size_bytes": 16 * mib}, 202), tr.admin)
	snapshot := tr.done(tr.ok("CreateSnapshot", "/volumes/"+volume+"/snapshots", object{"name": "one"}, 202), tr.admin)
	tr.ok("ListVolumeSnapshots", "/volumes/"+volume+"/snapshots", nil, 200)
	tr.ok("ListSnapshots", "/snapshots", nil, 200)
	tr.ok("GetSnapshot", "/snapshots/"+snapshot, nil, 200)
	tr.done(tr.ok("CloneSnapshot", "/snapshots/"+snapshot+"/clone", object{"name": "copy"}, 202), tr.admin)
	tr.done(tr.ok("RestoreSnapshot", "/snapshots/"+snapshot+"/restore", nil, 202), tr.admin)
	tr.done(tr.ok("DeleteSnapshot", "/snapshots/"+snapshot+"?force=true", nil, 202), tr.admin)
	tr.done(tr.ok("DeleteVolume", "/volumes/"+volume, nil, 202), tr.admin)

	bucket := tr.done(tr.ok("CreateBucket", "/buckets", object{"name": "offsite", "connection_ref": "offsite", "tenant_id": "beta"}, 202), tr.admin)
	tr.ok("ListBuckets", "/buckets?tenant=beta&state=bound", nil, 200)
	tr.ok("GetBucket", "/buckets/"+bucket, nil, 200)
	if s := contracttest.As[storageapi.BucketStats](tr.ok("GetBucketStats", "/buckets/"+bucket+"/stats", nil, 200)); s.NumObjects != 1 {
		tr.Errorf("%+v", s)
	}
	tr.ok("ListBucketObjects", "/buckets/"+bucket+"/objects?prefix=a&limit=5", nil, 200)
	tr.done(tr.ok("DeleteBucket", "/buckets/"+bucket+"?force=1", nil, 202), tr.admin)

	all := contracttest.As[[]storageapi.Job](tr.ok("ListJobs", "/jobs?state=succeeded&tenant=acme", nil, 200))
	if len(all) != 7 {
		tr.Errorf("%d jobs", len(all))
	}
	tr.ok("GetJob", "/jobs/"+all[0].Id, nil, 200)
	if body := tr.ok("WatchJob", "/jobs/"+all[0].Id+"/watch", nil, 200).Body; !strings.Contains(body, `"succeeded"`) {
		tr.Errorf("%s", body)
	}
	tr.happened(volume)
	tr.trashed()
	tr.paused()
	tr.ok("ListAudit", "/audit?q=acme", nil, 200)
	tr.ok("VerifyAudit", "/audit/verify", nil, 200)
	tr.call("POST", "/audit/acknowledge", tr.admin, object{"through": 1, "note": "nothing"}).Want(400)
	tr.breakAudit()
	v := contracttest.As[storageapi.AuditVerification](tr.ok("VerifyAudit", "/audit/verify", nil, 200))
	tr.ok("AcknowledgeAudit", "/audit/acknowledge", object{"through": v.Breaks[0].Recorded, "note": "tested"}, 204)
}

// trashed brings one volume back out of the trash, and removes another one that is in it.
func (tr *tour) trashed() {
	tr.Helper()
	spec := object{"name": "data", "size_bytes": 8 * mib, "tenant_id": "acme"}
	first := tr.done(tr.call("POST", "/volumes", tr.admin, spec), tr.admin)
	tr.write(first, "kept")
	tr.call("DELETE", "/volumes/"+first+"?trash_secs=2592001", tr.admin, nil).Refused(400, "VALIDATION_ERROR", "trash_secs")
	tr.done(tr.call("DELETE", "/volumes/"+first+"?trash_secs=3600", tr.admin, nil), tr.admin)
	tr.call("GET", "/volumes/"+first, tr.admin, nil).Refused(404, "NOT_FOUND", "")
	second := tr.done(tr.call("POST", "/volumes", tr.admin, spec), tr.admin)
	tr.done(tr.call("DELETE", "/volumes/"+second+"?trash_secs=60", tr.admin, nil), tr.admin)

	list := tr.ok("ListTrash", "/trash?tenant=acme&cluster=local&limit=1", nil, 200)
	page := contracttest.As[[]storageapi.TrashItem](list)
	if len(page) != 1 || page[0].Id != second || page[0].State != "trashed" || page[0].DeletedBy != "ada" ||
		page[0].PurgeAt.Sub(page[0].DeletedAt) != time.Minute {
		tr.Errorf("%+v", page)
	}
	nextPage := "/trash?tenant=acme&cursor=" + rest.NextCursor(list.Header)
	next := contracttest.As[[]storageapi.TrashItem](tr.call("GET", nextPage, tr.admin, nil).Want(200))
	if len(next) != 1 || next[0].Id != first {
		tr.Errorf("%+v", next)
	}
	tr.call("GET", "/trash?cursor=x", tr.admin, nil).Refused(400, "VALIDATION_ERROR", "cursor")
	tr.call("POST", "/trash/none/restore", tr.admin, nil).Refused(404, "NOT_FOUND", "")
	tr.done(tr.ok("RestoreTrash", "/trash/"+first+"/restore", object{"name": "data-2"}, 202), tr.admin)
	if v := tr.volume(first, tr.admin); v.Name != "data-2" || v.State != "available" || v.TenantId != "acme" {
		tr.Errorf("%+v", v)
	}
	tr.holds(first, "kept")
	tr.done(tr.ok("PurgeTrash", "/trash/"+second, nil, 202), tr.admin)
	if left := contracttest.As[[]storageapi.TrashItem](tr.call("GET", "/trash", tr.admin, nil).Want(200)); len(left) > 0 {
		tr.Errorf("%+v", left)
	}
}

// scheduled has snapshots taken of a volume of the tenant acme.
func (tr *tour) scheduled(volume string) {
	tr.Helper()
	spec := object{"name": "hourly", "kind": "snapshot", "volume_id": volume, "every_secs": 3600, "keep": 2, "enabled": false}
	c := contracttest.As[storageapi.Schedule](tr.ok("CreateSchedule", "/schedules", spec, 201))
	if c.TenantId != "acme" || c.NextAt != nil || c.Enabled || c.Keep != 2 {
		tr.Errorf("%+v", c)
	}
	tr.call("POST", "/schedules", tr.admin, spec).Refused(409, "CONFLICT", "name")
	spec["name"], spec["first_at"] = "daily", "2099-01-01T00:00:00Z"
	spec["enabled"] = true
	c = contracttest.As[storageapi.Schedule](tr.ok("UpdateSchedule", "/schedules/"+c.Id, spec, 200))
	if c.Name != "daily" || c.NextAt == nil || c.NextAt.Year() != 2099 {
		tr.Errorf("%+v", c)
	}
	tr.ok("ListSchedules", "/schedules?kind=snapshot&tenant=acme&volume_id="+volume, nil, 200)
	tr.ok("GetSchedule", "/schedules/"+c.Id, nil, 200)
	tr.ok("DeleteSchedule", "/schedules/"+c.Id, nil, 204)
	for field, spec := range map[string]object{
		"volume_id":  {"name": "x", "kind": "snapshot", "every_secs": 3600},
		"bucket_id":  {"name": "x", "kind": "backup", "every_secs": 3600, "volume_id": volume},
		"group_id":   {"name": "x", "kind": "verify", "every_secs": 3600, "group_id": "none"},
		"every_secs": {"name": "x", "kind": "snapshot", "every_secs": 1, "volume_id": volume},
		"key_ref":    {"name": "x", "kind": "snapshot", "every_secs": 3600, "volume_id": volume, "key_ref": "none"},
	} {
		tr.call("POST", "/schedules", tr.admin, spec).Refused(400, "VALIDATION_ERROR", field)
	}
}

// happened checks the events about a volume of the tenant acme that is deleted, and of everything else.
func (tr *tour) happened(volume string) {
	tr.Helper()
	var kinds []string
	for _, e := range contracttest.As[[]storageapi.Event](tr.ok("ListVolumeEvents", "/volumes/"+volume+"/events?limit=1000", nil, 200)) {
		if e.ResourceId != volume || e.TenantId != "acme" || e.ResourceType != "volume" || e.Actor != "ada" {
			tr.Errorf("%+v", e)
		}
		kinds = append(kinds, e.Kind)
	}
	want := []string{
		"job.succeeded", "volume.delete", "job.succeeded", "volume.expand", "job.succeeded", "volume.create",
	}
	if !slices.Equal(kinds, want) {
		tr.Errorf("%v, want %v", kinds, want)
	}
	tr.call("GET", "/volumes/none/events", tr.admin, nil).Refused(404, "NOT_FOUND", "")
	all := contracttest.As[[]storageapi.Event](tr.ok("ListEvents", "/events?limit=1000", nil, 200))
	types := map[storageapi.EventType]int{}
	for i, e := range all {
		if types[e.Type]++; i > 0 && e.At.After(all[i-1].At) {
			tr.Errorf("%+v is listed after %+v", e, all[i-1])
		}
	}
	if types["audit"] == 0 || types["job"] != 9 || types["alert"] < 2 {
		tr.Errorf("%v", types)
	}
	p := contracttest.As[storageapi.Preflight](tr.ok("GetUpgradePreflight", "/upgrade/preflight", nil, 200))
	if p.Ready || len(p.Checks) != 4 || len(p.Blockers) != 1 || !strings.Contains(p.Blockers[0], "second") {
		tr.Errorf("%+v", p)
	}
	if a := tr.ok("ListCephMetrics", "/metrics/ceph?prefix=ceph_&cluster=local", nil, 200); strings.TrimSpace(a.Body) != "[]" {
		tr.Errorf("%s", a.Body)
	}
}

// fakeBucket serves a bucket with one object, and returns the path of a file that tells of it. Real ones are in other
// tests.
func fakeBucket(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		answer := "<VersioningConfiguration/>"
		switch q := r.URL.Query(); {
		case q.Has("lifecycle"):
			w.WriteHeader(http.StatusNotFound)
			answer = "<Error><Code>NoSuchLifecycleConfiguration</Code></Error>"
		case q.Has("list-type"):
			answer = "<ListBucketResult><Contents><Key>a</Key><Size>3</Size><LastModified>2026-11-25T12:00:00Z</LastModified>" +
				"</Contents></ListBucketResult>"
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "offsite.json")
	content := `{"endpoint":"` + server.URL + `","bucket":"offsite","access_key":"a","secret_key":"s"}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// breakAudit changes the audit log behind the service's back.
func (g *gateway) breakAudit() {
	g.Helper()
	g.stop()
	g.change("UPDATE audit_entries SET message = 'changed' WHERE seq = 3")
	g.begin()
}

// paused cancels a job that waits because no jobs are started.
func (tr *tour) paused() {
	tr.Helper()
	tr.ok("SetMaintenance", "/maintenance", object{"paused": true}, 200)
	a := tr.call("POST", "/volumes", tr.admin, object{"name": "brief", "size_bytes": mib}).Want(202)
	j := contracttest.As[storageapi.VolumeAccepted](a)
	m := contracttest.As[storageapi.Maintenance](tr.ok("GetMaintenance", "/maintenance", nil, 200))
	if !m.Paused || m.Queued != 1 || m.Running != 0 || m.By != "ada" || m.Since == nil {
		tr.Errorf("%+v", m)
	}
	if c := contracttest.As[storageapi.Job](tr.ok("CancelJob", "/jobs/"+j.JobId+"/cancel", nil, 200)); c.Error == nil {
		tr.Errorf("%+v", c)
	}
	tr.ok("SetMaintenance", "/maintenance", object{"paused": false}, 200)
	tr.done(tr.call("POST", "/volumes", tr.admin, object{"name": "brief", "size_bytes": mib}), tr.admin)
}

// alerted takes care of an alert about the tenant acme, which has one volume.
func (tr *tour) alerted() {
	tr.Helper()
	tr.call("PUT", "/tenants/acme", tr.admin, object{"quota": object{"volumes": 1}}).Want(200)
	if e := contracttest.As[storageapi.Evaluation](tr.ok("EvaluateAlerts", "/alerts/evaluate", nil, 200)); e.OpenAlerts == 0 || e.Evaluated == 0 {
		tr.Errorf("%+v", e)
	}
	tr.ok("ListAlerts", "/alerts?state=open&severity=critical&limit=1", nil, 200)
	found := tr.alert("quota_almost_used", tr.admin)
	if found.TenantId != "acme" || found.Evidence["used"] != 1.0 {
		tr.Errorf("%+v", found)
	}
	alert := "/alerts/" + found.Id
	if a := contracttest.As[storageapi.Alert](tr.ok("AcknowledgeAlert", alert+"/ack", nil, 200)); a.AcknowledgedBy != "ada" {
		tr.Errorf("%+v", a)
	}
	if a := contracttest.As[storageapi.Alert](tr.ok("SilenceAlert", alert+"/silence", nil, 200)); a.SilencedUntil == nil {
		tr.Errorf("%+v", a)
	}
	for range 2 { // it may be over already
		if a := contracttest.As[storageapi.Alert](tr.ok("ResolveAlert", alert+"/resolve", nil, 200)); a.State != "resolved" {
			tr.Errorf("%+v", a)
		}
	}
	tr.call("POST", alert+"/ack", tr.admin, nil).Refused(409, "ALERT_RESOLVED", "")
	tr.call("POST", "/alerts/none/silence", tr.admin, object{"secs": 60, "reason": "work"}).Refused(404, "NOT_FOUND", "")
	tr.call("POST", alert+"/silence", tr.admin, object{"secs": 2592001}).Refused(400, "VALIDATION_ERROR", "secs")
	tr.call("PUT", "/tenants/acme", tr.admin, object{"quota": object{"volumes": 9}}).Want(200)
	sum := contracttest.As[storageapi.Summary](tr.ok("GetSummary", "/metrics/summary?cluster=local", nil, 200))
	if sum.Clusters != 1 || sum.Pools != 1 || sum.Volumes != 1 || sum.RawCapacityBytes == 0 || len(sum.Forecasts) != 1 {
		tr.Errorf("%+v", sum)
	}
	history := contracttest.As[storageapi.CapacityHistory](tr.ok("GetCapacityHistory", "/metrics/history?points=60", nil, 200))
	if len(history.Points) == 0 || history.Points[0].RawCapacityBytes == 0 || history.Points[0].Health != "ok" {
		tr.Errorf("%+v", history)
	}
}

func TestProbesAndTheVersionNeedNoToken(t *testing.T) {
	t.Parallel()
	g := start(t)
	for path, want := range map[string]string{
		"/health": `"ok"`, "/livez": `"ok"`, "/version": `"api":"v1"`, "/readyz": "", "/healthz": "", "/metrics": "audit_broken",
	} {
		resp, err := http.Get(g.url + path) //nolint:gosec // the test's own server
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, body)
		}
	}
}
