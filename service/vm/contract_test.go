package vm_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm"
)

var update = flag.Bool("update", false, "write testdata/access.tsv anew")

// tour uses every operation once with success, the way its users would, and checks that each leaves
// the audit entry that the contract promises.
type tour struct {
	*manager
	audited map[string]int
}

// ok calls an operation as the admin and checks status and audit.
func (tr *tour) ok(id, path string, body any, status int) answer {
	tr.Helper()
	return tr.as(tr.admin, id, path, body, status)
}

func (tr *tour) as(token, id, path string, body any, status int) answer {
	tr.Helper()
	for _, op := range tr.contract.Operations() {
		if op.ID != id {
			continue
		}
		a := tr.call(op.Method, path, token, body).Want(status)
		if op.Audit == "" || op.Audit == "none" {
			return a
		}
		n := 0
		for _, e := range contracttest.As[[]vmapi.AuditEntry](tr.call("GET", "/api/audit?limit=1000", tr.admin, nil).Want(200)) {
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
	imports := t.TempDir()
	m := start(t, reachable, func(c *vm.Config) { c.ImageImportFolders = []string{imports} })
	tr := &tour{m, map[string]int{"auth.login": 1}}
	takeTour(tr)
	viewer := m.user("vera", "viewer", "acme")
	for _, op := range m.contract.Operations() {
		if op.Access == "open" {
			continue
		}
		path := strings.NewReplacer("{id}", "none", "{name}", "none", "{job}", "none", "{username}", "none", "{policy}", "none", "{delivery}", "none", "{vm_name}", "none", "{tenant_id}", "none").Replace(op.Path)
		a := m.call(op.Method, path, "", nil).Want(401)
		if !strings.Contains(a.Body, `"Authentication required"`) {
			t.Errorf("%s: %s", op.ID, a.Body)
		}
		m.call(op.Method, path, "no.such.token", nil).Want(401)
		if op.Access != "viewer" {
			m.call(op.Method, path, viewer, nil).Want(403)
		}
	}
	if missing := m.recorder.Missing("open", "viewer"); len(missing) > 0 {
		t.Errorf("never seen:\n%s\nseen:\n%s", strings.Join(missing, "\n"), m.recorder.Report())
	}
}

// code returns the code of a second factor.
func code(t *testing.T, secret string, now time.Time) string {
	t.Helper()
	code, err := totp.GenerateCode(secret, now)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func takeTour(tr *tour) {
	tr.Helper()
	tr.ok("GetHealth", "/health", nil, 200)
	tr.ok("Login", "/api/auth/login", object{"username": adminName, "password": adminPassword}, 200)
	tr.ok("GetMe", "/api/auth/me", nil, 200)

	tr.ok("PutTenant", "/api/tenants/acme", object{"description": "Acme", "quota": object{"vms": 9}}, 200)
	tr.ok("ListTenants", "/api/tenants", nil, 200)
	tr.ok("GetTenant", "/api/tenants/acme", nil, 200)
	tr.ok("CreateUser", "/api/users", object{"username": "alice", "role": "user", "tenant": "acme", "password": "long enough"}, 201)
	tr.ok("ListUsers", "/api/users", nil, 200)
	tr.ok("UpdateUser", "/api/users/alice", object{"role": "admin"}, 200)
	alice := tr.login("alice", "long enough")
	setup := contracttest.As[vmapi.TwoFactorSetup](tr.as(alice, "SetUpTwoFactor", "/api/auth/2fa/setup", nil, 200))
	enabled := contracttest.As[vmapi.TwoFactorEnabled](
		tr.as(alice, "VerifyTwoFactor", "/api/auth/2fa/verify", object{"code": code(tr.T, setup.Secret, tr.now())}, 200))
	tr.as(alice, "DisableTwoFactor", "/api/auth/2fa/disable", object{"code": enabled.RecoveryCodes[0]}, 200)
	tr.as(alice, "ChangePassword", "/api/auth/password", object{"current_password": "long enough", "new_password": "longer than that"}, 204)
	alice = tr.login("alice", "longer than that")
	tr.as(alice, "Logout", "/api/auth/logout", nil, 204)
	tr.ok("DeleteUser", "/api/users/alice", nil, 204)
	tr.ok("PutTenant", "/api/tenants/empty", object{}, 200)
	tr.ok("DeleteTenant", "/api/tenants/empty", nil, 204)

	made := contracttest.As[vmapi.VM](tr.ok("CreateVM", "/api/vms", object{"name": "web", "image": "demo", "unknown": 1}, 201))
	tr.settled("web", tr.admin)
	tr.ok("ListVMs", "/api/vms", nil, 200)
	tr.ok("GetVM", "/api/vms/web", nil, 200)
	tr.ok("UpdateVM", "/api/vms/web", object{"description": "the web", "autostart": true, "labels": object{"a": "b"}, "tags": []string{"x"}}, 200)
	tr.ok("CreateSnapshot", "/api/vms/web/snapshots", object{"name": "s1"}, 201)
	s := contracttest.As[[]vmapi.Snapshot](tr.ok("ListSnapshots", "/api/vms/web/snapshots", nil, 200))[0]
	tr.ok("GetSnapshot", "/api/vms/web/snapshots/"+s.Id, nil, 200)
	tr.ok("GetSnapshotTree", "/api/vms/web/snapshots/tree", nil, 200)
	tr.ok("RevertSnapshot", "/api/vms/web/snapshots/"+s.Id+"/revert", nil, 200)
	tr.ok("DeleteSnapshot", "/api/vms/web/snapshots/"+s.Id, nil, 204)
	tr.ok("StartVM", "/api/vms/web/start", object{}, 202)
	tr.settled("web", tr.admin)
	tr.ok("PauseVM", "/api/vms/web/pause", nil, 200)
	tr.ok("ResumeVM", "/api/vms/web/resume", nil, 200)
	tr.ok("RestartVM", "/api/vms/web/restart", nil, 200)
	if m := contracttest.As[vmapi.Metrics](tr.ok("GetVMMetrics", "/api/vms/web/metrics", nil, 200)); math.Round(m.CpuUsage) != 50 || m.DiskUsage != 7 {
		tr.Errorf("%+v", m)
	}
	tr.ok("GetVMHistory", "/api/vms/web/history?points=10", nil, 200)
	tr.ok("ListVMEvents", "/api/vms/web/events?limit=2", nil, 200)
	stream := tr.watch("/api/vms/web/events/stream", tr.admin, "1")
	if e, more := stream.next(); !more || e.Id != 2 {
		tr.Errorf("the stream begins with %+v", e)
	}
	stream.end()
	tourGuests(tr)
	tr.ok("CloneVM", "/api/vms/web/clone", object{"target_name": "two"}, 201)
	tr.settled("two", tr.admin)
	tr.ok("StopVM", "/api/vms/web/stop", object{"grace_seconds": 1}, 200)

	tourImages(tr)
	tourBackups(tr)
	takeNetworkTour(tr)
	tourWebhooks(tr)
	tourCompliance(tr)
	takeBillingTour(tr)
	jobs := contracttest.As[[]vmapi.Job](tr.ok("ListJobs", "/api/jobs?vm="+made.Id, nil, 200))
	job := "/api/jobs/" + jobs[0].Id
	tr.ok("GetJob", job, nil, 200)
	if events := tr.ok("WatchJob", job+"/events", nil, 200); !strings.Contains(events.Body, "event: operation\ndata: {") {
		tr.Errorf("a job that has ended is watched as %q", events.Body)
	}
	release := tr.daemon.Hold("StartVM")
	tr.call("POST", "/api/vms/web/start", tr.admin, nil).Want(202)
	tr.ok("CancelJob", "/api/jobs/"+tr.vm("web", tr.admin).Job.Id+"/cancel", nil, 200)
	release()
	tr.settled("web", tr.admin)
	tr.ok("DeleteVM", "/api/vms/web", nil, 204)
	tr.ok("ListAudit", "/api/audit", nil, 200)
	tr.ok("VerifyAudit", "/api/audit/verify", nil, 200)
	tr.call("POST", "/api/audit/acknowledge", tr.admin, object{"through": 1, "note": "nothing"}).Want(400)
	tr.breakAudit()
	v := contracttest.As[vmapi.AuditVerification](tr.ok("VerifyAudit", "/api/audit/verify", nil, 200))
	tr.ok("AcknowledgeAudit", "/api/audit/acknowledge", object{"through": v.Breaks[0].Recorded, "note": "tested"}, 204)
}

func tourGuests(tr *tour) {
	tr.Helper()
	tr.daemon.Guest(func(string, []string) *hypervisorapi.ExecOutcome { return &hypervisorapi.ExecOutcome{Stdout: "out"} })
	tr.ok("CreateTicket", "/api/vms/web/tickets", nil, 201)
	for id, path := range map[string]string{"OpenConsole": "/api/vms/web/console", "OpenScreen": "/api/vms/web/screen"} {
		tr.ok(id, path, nil, 426)
		if _, status := tr.open(path, tr.admin); status != 101 {
			tr.Errorf("%s: %d", path, status)
		}
	}
	tr.ok("Exec", "/api/vms/web/agent/exec", object{"argv": []string{"true"}}, 200)
	tr.ok("PutFile", "/api/vms/web/agent/put-file", object{"path": "/f", "content": "Zg=="}, 200)
	tr.ok("GetFile", "/api/vms/web/agent/get-file", object{"path": "/f"}, 200)
	tr.daemon.Guest(nil)
}

func tourImages(tr *tour) {
	tr.Helper()
	path := filepath.Join(tr.config.ImageImportFolders[0], "disk.raw")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		tr.Fatal(err)
	}
	made := tr.image(tr.ok("ImportImage", "/api/images/import", object{"name": "base", "path": path, "format": "raw"}, 201))
	tr.ok("GetImage", "/api/images/"+made.Id.String(), nil, 200)
	tr.ok("ListImages", "/api/images?state=completed&q=base", nil, 200)
	tr.ok("ListISOImages", "/api/images/iso", nil, 200)
	tr.ok("GetImageLog", "/api/images/"+made.Id.String()+"/log", nil, 200)
	tr.ok("ResizeImage", "/api/images/"+made.Id.String()+"/resize", object{"size_gb": 2}, 200)
	tr.ok("ListImageDownloads", "/api/images/downloads", nil, 200)
	tr.image(tr.ok("BuildImage", "/api/images/build", object{"name": "leap", "distribution": "opensuse"}, 201))
	tr.image(tr.ok("DownloadImage", "/api/images/download", object{"distribution": "debian", "version": "12"}, 201))
	if v := contracttest.As[vmapi.VM](tr.ok("InsertCD", "/api/vms/web/cd", object{"image": "base"}, 200)); v.Cd == nil {
		tr.Errorf("%+v", v)
	}
	tr.ok("AddDisk", "/api/vms/web/disks", object{"name": "data", "size": 2, "image": "base"}, 201)
	tr.ok("ChangeDisk", "/api/vms/web/disks/data", object{"size": 3}, 200)
	tr.ok("ListDisks", "/api/vms/web/disks", nil, 200)
	tr.ok("RemoveDisk", "/api/vms/web/disks/data", nil, 200)
	tr.call("DELETE", "/api/images/"+made.Id.String(), tr.admin, nil).Want(409) // it is in a drive
	tr.ok("EjectCD", "/api/vms/web/cd", nil, 200)
	tr.ok("DeleteImage", "/api/images/"+made.Id.String(), nil, 204)
}

func tourBackups(tr *tour) {
	tr.Helper()
	made := contracttest.As[vmapi.Backup](tr.ok("CreateBackup", "/api/backups", object{"vm_name": "web"}, 201))
	tr.call("GET", "/api/jobs/"+*made.JobId+"?wait=60", tr.admin, nil).Want(200)
	tr.ok("ListBackups", "/api/backups?vm=web", nil, 200)
	tr.ok("GetBackup", "/api/backups/"+made.Id, nil, 200)
	tr.daemon.PutImage("demo")
	files := "/api/backups/" + made.Id + "/files/"
	tr.ok("OpenBackupVolumes", files+"volumes", nil, 200)
	tr.ok("ListBackupFiles", files+"list?volume=vdb", nil, 200)
	tr.ok("GetBackupFile", files+"content?volume=vdb&path=/disk", nil, 200)
	tr.ok("CloseBackupVolumes", files+"volumes", nil, 204)
	booted := contracttest.As[vmapi.Job](tr.ok("BootBackup", "/api/backups/"+made.Id+"/boot", nil, 202))
	tr.call("GET", "/api/jobs/"+booted.Id+"?wait=60", tr.admin, nil).Want(200)
	tr.ok("GetBackupStats", "/api/backups/stats", nil, 200)
	tr.ok("ListBackupJobs", "/api/backups/jobs", nil, 200)
	tr.ok("ScanBackups", "/api/backups/scan", nil, 200)
	verified := contracttest.As[vmapi.Job](tr.ok("VerifyBackups", "/api/backups/verify", nil, 202))
	tr.call("GET", "/api/jobs/"+verified.Id+"?wait=60", tr.admin, nil).Want(200)
	tr.ok("RestoreBackup", "/api/backups/restore", object{"backup_id": made.Id, "target_vm_name": "restored"}, 200)
	tr.settled("restored", tr.admin)
	spec := object{"name": "nightly", "vm_tags": []string{"x"}, "schedule_type": "daily"}
	p := contracttest.As[vmapi.BackupPolicy](tr.ok("CreateBackupPolicy", "/api/backups/policies", spec, 201))
	tr.ok("ListBackupPolicies", "/api/backups/policies", nil, 200)
	tr.ok("UpdateBackupPolicy", "/api/backups/policies/"+p.Id, spec, 200)
	tr.ok("DeleteBackupPolicy", "/api/backups/policies/"+p.Id, nil, 204)
	tr.ok("DeleteBackup", "/api/backups/"+made.Id, nil, 204)
	made = contracttest.As[vmapi.Backup](tr.ok("CreateBackup", "/api/backups", object{"vm_name": "web"}, 201))
	tr.call("GET", "/api/jobs/"+*made.JobId+"?wait=60", tr.admin, nil).Want(200)
	until := tr.now().Add(time.Hour).UTC().Format(time.RFC3339)
	tr.ok("ProtectBackup", "/api/backups/"+made.Id+"/protect", object{"until": until}, 200)
}

func tourWebhooks(tr *tour) {
	tr.Helper()
	to := receive(tr.T)
	spec := object{"url": to.url, "events": []string{"vm.created"}}
	w := contracttest.As[vmapi.Webhook](tr.ok("CreateWebhook", "/api/webhooks", spec, 201))
	path := "/api/webhooks/" + w.Id
	tr.ok("ListWebhooks", "/api/webhooks", nil, 200)
	tr.ok("GetWebhook", path, nil, 200)
	tr.ok("UpdateWebhook", path, object{"description": "changed"}, 200)
	tr.ok("TestWebhook", "/api/webhooks/test", object{"webhook_id": w.Id}, 200)
	d := contracttest.As[[]vmapi.WebhookDelivery](tr.ok("ListDeliveries", path+"/deliveries", nil, 200))[0]
	tr.ok("GetDelivery", path+"/deliveries/"+d.Id, nil, 200)
	tr.ok("ReplayDelivery", path+"/deliveries/"+d.Id+"/replay", nil, 202)
	tr.ok("DeleteWebhook", path, nil, 204)
}

func tourCompliance(tr *tour) {
	tr.Helper()
	tr.ok("ListComplianceProfiles", "/api/compliance/profiles", nil, 200)
	tr.made("checked", tr.admin)
	tr.call("POST", "/api/vms/checked/start", tr.admin, nil).Want(202)
	tr.settled("checked", tr.admin)
	scan := contracttest.As[vmapi.ComplianceScan](
		tr.ok("StartComplianceScan", "/api/compliance/scan/checked", object{"profile_id": "level-1"}, 202))
	tr.call("GET", "/api/jobs/"+scan.JobId+"?wait=60", tr.admin, nil).Want(200)
	tr.ok("ListComplianceResults", "/api/compliance/results?vm=checked", nil, 200)
	tr.ok("DeleteVM", "/api/vms/checked", nil, 204)
}

func takeNetworkTour(tr *tour) {
	tr.Helper()
	tr.ok("PutSecurityGroup", "/api/dataplane/groups", object{"name": "base", "rules": []object{{"direction": "egress", "entity": "all"}}}, 201)
	tr.ok("ListSecurityGroups", "/api/dataplane/groups", nil, 200)
	tr.ok("GetSecurityGroup", "/api/dataplane/groups/base", nil, 200)
	tr.ok("SetVMPolicy", "/api/vms/two/dataplane/policy", object{"groups": []string{"base"}}, 200)
	tr.ok("GetVMPolicy", "/api/vms/two/dataplane/policy", nil, 200)
	tr.ok("PutNetworkPolicy", "/api/dataplane/cnp", cnp("names", object{
		"endpointSelector": object{}, "egress": []object{{"toFQDNs": []object{{"matchName": "example.com"}}}},
	}), 201)
	tr.ok("ListNetworkPolicies", "/api/dataplane/cnp", nil, 200)
	tr.ok("GetNetworkPolicy", "/api/dataplane/cnp/names", nil, 200)
	e := contracttest.As[vmapi.EffectivePolicy](tr.ok("GetEffectivePolicy", "/api/vms/two/dataplane/effective", nil, 200))
	if e.Rules != 2 || len(e.Sources) != 3 || e.Policy.Egress.Default != "deny" {
		tr.Errorf("%+v", e)
	}
	tr.ok("GetDataplaneStatus", "/api/vms/two/dataplane/status", nil, 200)
	tr.bridged("three", tr.admin, object{})
	tr.ok("SetVMPolicy", "/api/vms/three/dataplane/policy", object{"groups": []string{"base"}}, 200)
	s := contracttest.As[vmapi.DataplaneStats](tr.ok("GetDataplaneStats", "/api/vms/three/dataplane/stats", nil, 200))
	if len(s.Rules) != 2 || s.Allowed.Packets != 4 || s.Denied.Packets != 3 || s.Rules[0].Action != "allow" {
		tr.Errorf("%+v", s)
	}
	tr.ok("ListVMFlows", "/api/vms/three/dataplane/flows?limit=5", nil, 200)
	tr.ok("ListIdentities", "/api/dataplane/identities", nil, 200)
	tr.ok("ListIPCache", "/api/dataplane/ipcache", nil, 200)
	tr.ok("GetDataplaneHealth", "/api/dataplane/health", nil, 200)
	tr.ok("Observe", "/api/dataplane/observe?limit=5", nil, 200)
	if r := contracttest.As[vmapi.DNSRefreshed](tr.ok("RefreshDNS", "/api/dataplane/refresh-dns", object{}, 200)); r.Names != 1 || r.Vms != 4 {
		tr.Errorf("%+v", r)
	}
	tr.ok("DeleteNetworkPolicy", "/api/dataplane/cnp/names", nil, 204)
	tr.ok("SetVMPolicy", "/api/vms/two/dataplane/policy", object{}, 200)
	tr.ok("SetVMPolicy", "/api/vms/three/dataplane/policy", object{}, 200)
	tr.ok("DeleteSecurityGroup", "/api/dataplane/groups/base", nil, 204)
}

// Every operation is tried by every kind of caller. The table testdata/access.tsv says what each may
// do; it is reviewed like code (rewrite it with -update).
func TestAccessMatrix(t *testing.T) {
	t.Parallel()
	m := start(t)
	names := []string{"nobody", "garbage", "viewer", "user", "admin of acme", "admin", "revoked", "removed", "demoted"}
	tokens := map[string]string{
		"nobody": "", "garbage": "garbage", "viewer": m.user("vera", "viewer", "acme"), "user": m.user("uma", "user", "acme"),
		"admin of acme": m.user("ada", "admin", "acme"), "admin": m.admin, "revoked": m.user("rex", "admin", ""),
		"removed": m.user("remi", "admin", ""), "demoted": m.user("dave", "admin", ""),
	}
	m.call("POST", "/api/auth/logout", tokens["revoked"], nil).Want(204)
	m.call("DELETE", "/api/users/remi", m.admin, nil).Want(204)
	m.call("PATCH", "/api/users/dave", m.admin, object{"role": "viewer"}).Want(200)
	var got strings.Builder
	fmt.Fprintf(&got, "operation\tclass\t%s\n", strings.Join(names, "\t"))
	for _, op := range m.contract.Operations() {
		if op.ID == "Logout" { // it would end the session under test
			continue
		}
		fmt.Fprintf(&got, "%s\t%s", op.ID, op.Access)
		path := strings.NewReplacer("{id}", "none", "{name}", "none", "{job}", "none", "{username}", "none", "{policy}", "none", "{delivery}", "none", "{vm_name}", "none", "{tenant_id}", "none").Replace(op.Path)
		for _, name := range names {
			body := any(nil)
			if op.Method != "GET" && op.Method != "DELETE" {
				body = "[]" // admitted callers are told that it is not valid
			}
			switch a := m.call(op.Method, path, tokens[name], body); {
			case op.Access != "open" && (a.Status == 401 || a.Status == 403):
				fmt.Fprintf(&got, "\t%d", a.Status)
			default:
				fmt.Fprint(&got, "\tyes")
			}
		}
		got.WriteString("\n")
	}
	const file = "testdata/access.tsv"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got.String() != string(want) {
		t.Errorf("what callers may do differs from %s (%v):\n%s", file, err, got.String())
	}
}
