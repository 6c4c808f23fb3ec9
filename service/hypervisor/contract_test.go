//go:build linux

package hypervisor_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

// tour uses every operation once with success, the way its users would, and checks that
// each leaves the audit entry that the contract promises.
type tour struct {
	*daemon
	audited map[string]int
}

// ok calls an operation and checks status and audit.
func (tr *tour) ok(id, path string, body any, status int) answer {
	tr.Helper()
	for _, op := range tr.contract.Operations() {
		if op.ID != id {
			continue
		}
		token := adminToken
		if op.Access == "node" {
			token = fleetToken
		}
		a := tr.call(op.Method, path, token, body).Want(status)
		if op.Audit == "" || op.Audit == "none" {
			return a
		}
		n := 0
		for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](tr.call("GET", "/v1/audit?limit=1000", adminToken, nil).Want(200)) {
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
	provider := newIssuer(t)
	there := start(t, "", patient, func(c *hypervisor.Config) { c.NodeName = "there" })
	road := newRoad(there)
	there.join("there", road.url)
	d := start(t, provider.document(), func(c *hypervisor.Config) {
		c.Registry, c.Advertise = there.url, "http://127.0.0.1:1"
	}).withDemo()
	tr := &tour{d, map[string]int{}}
	takeTour(tr)
	there.join("there", road.url) // again: the tour may have taken longer than a host may be silent
	tourMigrations(tr, road)
	// Nobody's, and somebody's who belongs to nothing.
	nobody := provider.token(nil)
	for _, op := range d.contract.Operations() {
		path := strings.NewReplacer(
			"{id}", "some-id", "{name}", "some-name", "{snapshot}", "s", "{backup}", "b", "{operation}", "o",
			"{node}", "n", "{migration}", "m", "{file}", "disk",
		).Replace(op.Path)
		d.call(op.Method, path, "", nil).Refused(http.StatusUnauthorized, "unauthenticated", "")
		d.call(op.Method, path, nobody, nil).Refused(http.StatusForbidden, "denied", "")
		if op.Access == "admin" {
			d.call(op.Method, path, acmeToken, nil).Want(http.StatusForbidden)
		}
		if op.Access == "node" {
			d.call(op.Method, path, adminToken, nil).Want(http.StatusForbidden)
		}
	}
	if missing := d.recorder.Missing("open", "any"); len(missing) > 0 {
		t.Errorf("never seen:\n%s\nseen:\n%s", strings.Join(missing, "\n"), d.recorder.Report())
	}
}

func takeTour(tr *tour) {
	tr.Helper()
	dir := tr.TempDir()
	if me := contracttest.As[hypervisorapi.Me](tr.ok("GetMe", "/v1/me", nil, 200)); me.Name != "admin" || !me.Admin {
		tr.Errorf("%+v", me)
	}
	tr.ok("GetHost", "/v1/host", nil, 200)
	made := contracttest.As[hypervisorapi.VM](
		tr.ok(
			"CreateVM",
			"/v1/vms",
			object{
				"name":       "one",
				"image":      "demo",
				"memory_mib": 192,
				"disk_gib":   1,
				"labels":     object{"role": "web"},
				"unknown":    1,
			},
			201,
		),
	)
	vm := "/v1/vms/" + made.Id
	tr.ok("ListVMs", "/v1/vms?label=role=web&state=stopped", nil, 200)
	tr.ok("GetVM", vm, nil, 200)
	stream := tr.follow("/v1/events", adminToken, "")
	stream.next()
	stream.end()
	tr.ok("PatchVM", vm, object{"memory_mib": 200}, 200)
	tr.ok("PutNetworkPolicy", vm+"/network-policy", object{"policy": samplePolicy()}, 200)
	tr.ok("GetNetworkPolicy", vm+"/network-policy", nil, 200)
	tr.ok("DeleteNetworkPolicy", vm+"/network-policy", nil, 204)
	tr.ok("ListFlows", vm+"/flows?limit=3", nil, 200)
	stream = tr.follow("/v1/flows", adminToken, "")
	stream.next()
	stream.end()
	tr.ok("StartVM", vm+"/start", nil, 200)
	tr.ok("WaitVM", vm+"/wait?state=running&timeout=10", nil, 200)
	tr.connected(made.Id)
	tr.ok("PingAgent", vm+"/agent/ping", nil, 200)
	tr.ok("Exec", vm+"/agent/exec", object{"argv": []string{"/bin/sh", "-c", "exit 0"}}, 200)
	tr.call("POST", vm+"/agent/exec", adminToken, object{"argv": []string{"/bin/echo", strings.Repeat("x", 100_000), strings.Repeat("x", 100_000), strings.Repeat("x", 100_000)}}).Refused(400, "invalid", "argv")
	tr.ok("PutFile", vm+"/agent/put-file", object{"path": "/tmp/f", "content": []byte("hello"), "mode": "0600"}, 200)
	if a := tr.ok("GetFile", vm+"/agent/get-file", object{"path": "/tmp/f"}, 200); a.Body != "hello" ||
		a.Header.Get("X-File-Mode") != "0600" {
		tr.Errorf("%q, mode %s", a.Body, a.Header.Get("X-File-Mode"))
	}
	if a := tr.ok("GetVMLog", vm+"/log?tail=1000000", nil, 200); !strings.Contains(a.Body, "mainstay demo guest: ready") {
		tr.Errorf("the serial log is %q", a.Body)
	}
	tr.ok("GetVMMetrics", vm+"/metrics", nil, 200)
	tr.ok("GetVMHistory", vm+"/history", nil, 200)
	tr.ok("ListVMEvents", vm+"/events?limit=2", nil, 200)
	tr.ok("PauseVM", vm+"/pause", nil, 200)
	tr.ok("ResumeVM", vm+"/resume", nil, 200)
	tr.ok("EnableVM", vm+"/enable", nil, 200)
	tr.ok("DisableVM", vm+"/disable", nil, 200)

	tr.ok("CreateSnapshot", vm+"/snapshots", object{"name": "s1", "kind": "full"}, 201)
	tr.ok("ListSnapshots", vm+"/snapshots", nil, 200)
	tr.ok("RevertSnapshot", vm+"/snapshots/s1/revert", nil, 200)
	tr.ok("DeleteSnapshot", vm+"/snapshots/s1", nil, 204)
	op := tr.finished(tr.ok("CreateBackup", vm+"/backups", nil, 202))
	backup := "/v1/backups/" + *op.BackupId
	tr.ok("ListOperations", "/v1/operations", nil, 200)
	tr.ok("GetOperation", "/v1/operations/"+op.Id, nil, 200)
	events := tr.ok("WatchOperation", "/v1/operations/"+op.Id+"/events", nil, 200)
	if text := events.Body; !strings.Contains(text, "event: operation\ndata: {") ||
		strings.Count(text, `"state":"succeeded"`) != 1 {
		tr.Errorf("an operation that has ended is watched as %q", text)
	}
	tr.ok("ListBackups", "/v1/backups?vm="+made.Id, nil, 200)
	tr.ok("GetBackup", backup, nil, 200)
	tr.ok("ExportBackup", backup+"/export", nil, 200)
	tr.finished(tr.ok("RestoreBackup", backup+"/restore", object{"name": "restored"}, 202))
	tr.ok("DeleteBackup", backup, nil, 204)
	reading := tr.ok("CreateTransfer", vm+"/transfers", object{"direction": "read", "consumer": "tour"}, 201)
	transfer := "/v1/transfers/" + contracttest.As[hypervisorapi.Transfer](reading).Id
	tr.ok("GetTransfer", transfer, nil, 200)
	tr.ok("ListTransferRanges", transfer+"/ranges", nil, 200)
	tr.ok("ReadTransfer", transfer+"/data?offset=0&length=512", nil, 200)
	tr.ok("FinishTransfer", transfer+"/finish", nil, 200)
	blank := contracttest.As[hypervisorapi.VM](tr.call("POST", "/v1/vms", adminToken, object{
		"name": "blank", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"},
	}).Want(201))
	writing := tr.call("POST", "/v1/vms/"+blank.Id+"/transfers", adminToken, object{"direction": "write"}).Want(201)
	transfer = "/v1/transfers/" + contracttest.As[hypervisorapi.Transfer](writing).Id
	tr.ok("WriteTransfer", transfer+"/data?offset=0", make([]byte, 512), 204)
	tr.ok("DeleteTransfer", transfer, nil, 204)
	tr.ok("ResizeVM", vm+"/resize", object{"disk_gib": 2}, 200)
	tr.finished(tr.ok("CloneVM", vm+"/clone", object{"name": "two"}, 202))

	ticket := contracttest.As[hypervisorapi.Ticket](tr.ok("CreateTicket", vm+"/tickets", nil, 201))
	tr.dial(vm+"/console?ticket="+ticket.Ticket).Close(websocket.StatusNormalClosure, "")
	screen := contracttest.As[hypervisorapi.VM](
		tr.call("POST", "/v1/vms", adminToken, object{"name": "screen", "memory_mib": 64, "start": true}).Want(201),
	)
	tr.await(screen.Id, "running")
	ticket = contracttest.As[hypervisorapi.Ticket](tr.call("POST", "/v1/vms/"+screen.Id+"/tickets", adminToken, nil).Want(201))
	tr.dial("/v1/vms/"+screen.Id+"/vnc?ticket="+ticket.Ticket).Close(websocket.StatusNormalClosure, "")
	reads := contracttest.As[hypervisorapi.VM](
		tr.call("POST", "/v1/vms", adminToken, object{"name": "reads", "image": "demo", "served_disk": true}).Want(201),
	)
	tr.dialAs(adminToken, "/v1/vms/"+reads.Id+"/served-disk").Close(websocket.StatusNormalClosure, "")
	tr.ok("RestartVM", vm+"/restart", object{"force": true}, 200)
	tr.ok("ResetVM", vm+"/reset", nil, 200)
	tr.ok("StopVM", vm+"/stop", object{"grace_seconds": 20}, 200)
	tr.ok("DeleteVM", vm, nil, 204)

	tourImages(tr, dir)
	tourFleet(tr)
}

// tourMigrations hands a VM over to another host that does not confirm it, and takes another one's.
func tourMigrations(tr *tour, road *road) {
	tr.Helper()
	spec := object{"name": "moving", "image": "demo", "memory_mib": 64}
	made := contracttest.As[hypervisorapi.VM](tr.call("POST", "/v1/vms", adminToken, spec).Want(201))
	vm := "/v1/vms/" + made.Id
	road.on(func(step string) bool { return step == "before commit" })
	tr.ok("MigrateVM", vm+"/migrate", object{"node": "there"}, 202)
	deadline := time.Now().Add(time.Minute)
	for tr.vm(made.Id).HandedOverTo == nil {
		if time.Now().After(deadline) {
			tr.Fatal("the VM is not handed over")
		}
		time.Sleep(10 * time.Millisecond) // the other host prepares it
	}
	tr.ok("TakeBackVM", vm+"/take-back", object{}, 200)
	tr.ok("DeleteVM", vm, nil, 204)

	content := []byte("a kernel")
	offer := offered("arriving", object{"name": "kernel", "size_bytes": len(content)})
	one := contracttest.As[hypervisorapi.Migration](tr.ok("OfferMigration", "/v1/migrations", offer, 201))
	path := "/v1/migrations/" + one.Id
	tr.ok("ListMigrations", "/v1/migrations", nil, 200)
	tr.ok("WriteMigration", path+"/files/kernel?offset=0", content, 204)
	tr.ok("PrepareMigration", path+"/prepare", object{"files": []object{sumOf("kernel", content)}}, 200)
	tr.ok("CommitMigration", path+"/commit", object{}, 200)
	tr.call("DELETE", path, adminToken, nil).Refused(409, "migration_committed", "")
	tr.call("DELETE", "/v1/vms/"+one.VmId, adminToken, nil).Want(204)
	offer = offered("aborted")
	offer["spec"].(object)["boot"] = object{"Disk": false}
	one = contracttest.As[hypervisorapi.Migration](tr.call("POST", "/v1/migrations", adminToken, offer).Want(201))
	tr.ok("AbortMigration", "/v1/migrations/"+one.Id, nil, 204)
}

func tourImages(tr *tour, dir string) {
	tr.Helper()
	path := filepath.Join(dir, "disk.raw")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		tr.Fatal(err)
	}
	tr.finished(tr.ok("AddImage", "/v1/images/catalog", object{"name": "disk", "path": path}, 202))
	tr.finished(tr.ok("UploadImage", "/v1/images/catalog/uploaded/upload", make([]byte, 2<<20), 202))
	tr.finished(tr.ok("BuildDemoImage", "/v1/images/demo", nil, 202))
	tr.ok("ListImages", "/v1/images/catalog", nil, 200)
	tr.ok("GetImage", "/v1/images/catalog/disk", nil, 200)
	tr.ok("CloneImage", "/v1/images/catalog/disk/clone", object{"name": "copy"}, 201)
	tr.ok("RenameImage", "/v1/images/catalog/copy/rename", object{"name": "renamed"}, 200)
	tr.ok("LockImage", "/v1/images/catalog/renamed/lock", nil, 200)
	tr.ok("UnlockImage", "/v1/images/catalog/renamed/unlock", nil, 200)
	tr.ok("SetImageReadOnly", "/v1/images/catalog/renamed/read-only", object{"read_only": true}, 200)
	tr.finished(tr.ok("ResizeImage", "/v1/images/catalog/disk/resize", object{"size_bytes": 4 << 20}, 202))
	if i := contracttest.As[hypervisorapi.Image](tr.ok("GetImage", "/v1/images/catalog/disk", nil, 200)); i.VirtualSizeBytes != 4<<20 {
		tr.Errorf("after a resize: %+v", i)
	}
	tr.ok("ExportImage", "/v1/images/catalog/disk/export", nil, 200)
	tourDisks(tr)
	tr.ok("RemoveImage", "/v1/images/catalog/disk", nil, 204)
	tr.finished(tr.ok("CreateTemplate", "/v1/templates", object{"name": "warm", "image": "demo", "memory_mib": 128}, 202))
	tr.ok("ListTemplates", "/v1/templates", nil, 200)
	tr.ok("GetTemplate", "/v1/templates/warm", nil, 200)
	tr.ok("DeleteTemplate", "/v1/templates/warm", nil, 204)
	tr.ok("CleanImages", "/v1/images/clean", nil, 200)
	if _, err := exec.LookPath("qemu-img"); err != nil {
		tr.Fatal(err)
	}
	a := tr.call("POST", "/v1/images/catalog/third/upload", adminToken, make([]byte, 64<<20)).Want(202)
	op := contracttest.As[hypervisorapi.Operation](a)
	tr.ok("CancelOperation", "/v1/operations/"+op.Id+"/cancel", nil, 200)
	tr.ok("ListAudit", "/v1/audit?limit=3", nil, 200)
	tr.ok("VerifyAudit", "/v1/audit/verify", nil, 200)
	tr.restart(func() { tamper(tr.T, tr.cfg.Data, "UPDATE audit_head SET signature = ''") })
	broken := contracttest.As[hypervisorapi.AuditVerification](tr.call("GET", "/v1/audit/verify", adminToken, nil).Want(200))
	if broken.Ok || len(broken.Breaks) != 1 {
		tr.Fatalf("tampering was not found: %+v", broken)
	}
	tr.ok(
		"AcknowledgeAudit", "/v1/audit/acknowledge",
		object{"through": broken.Breaks[0].Recorded, "note": "it was a test"}, 204,
	)
}

// tourDisks gives a VM disks and a CD of the catalog's image disk.
func tourDisks(tr *tour) {
	tr.Helper()
	vm := "/v1/vms/" + tr.withEmptyDisk("drives").Id
	tr.ok("CreateDisk", vm+"/disks", object{"name": "data", "image": "disk"}, 201)
	tr.ok("ListDisks", vm+"/disks", nil, 200)
	tr.ok("GetDisk", vm+"/disks/data", nil, 200)
	tr.ok("ChangeDisk", vm+"/disks/data", object{"size_gib": 2, "iops": 100}, 200)
	tr.ok("RemoveDisk", vm+"/disks/data", nil, 200)
	tr.ok("InsertCD", vm+"/cd", object{"image": "disk"}, 200)
	tr.ok("EjectCD", vm+"/cd", nil, 200)
	tr.call("DELETE", vm, adminToken, nil).Want(204)
}

func tourFleet(tr *tour) {
	tr.Helper()
	beat := object{
		"url":             tr.url,
		"version":         "1",
		"vcpus":           8,
		"memory_mib":      8192,
		"free_vcpus":      8,
		"free_memory_mib": 8192,
		"vms":             0,
		"backends":        []string{"qemu"},
	}
	tr.ok("Heartbeat", "/fleet/nodes/host/heartbeat", beat, 200)
	tr.ok("ListNodes", "/fleet/nodes", nil, 200)
	tr.ok("GetNode", "/fleet/nodes/host", nil, 200)
	tr.ok("GetCapacity", "/fleet/capacity", nil, 200)
	tr.ok("CordonNode", "/fleet/nodes/host/cordon", nil, 200)
	tr.ok("UncordonNode", "/fleet/nodes/host/uncordon", nil, 200)
	made := contracttest.As[hypervisorapi.FleetVM](
		tr.ok("CreateFleetVM", "/fleet/vms", object{"name": "placed", "image": "demo", "memory_mib": 64}, 201),
	)
	tr.ok("ListNodeVMs", "/fleet/nodes/host/vms", nil, 200)
	if all := contracttest.As[hypervisorapi.FleetVMs](tr.ok("ListFleetVMs", "/fleet/vms", nil, 200)); len(all.Items) < 1 ||
		len(all.UnreachableNodes) != 0 {
		tr.Errorf("%+v", all)
	}
	tr.ok("DeleteFleetVM", "/fleet/vms/host/"+made.Id, nil, 204)
	tr.ok("DeregisterNode", "/fleet/nodes/host", nil, 204)
}

// dial opens a socket.
func (d *daemon) dial(path string) *websocket.Conn {
	d.Helper()
	conn, res, err := websocket.Dial(d.Context(), d.url+path, nil)
	if err != nil {
		d.Fatalf("%s: %v, %v", path, err, res)
	}
	conn.SetReadLimit(1 << 20)
	return conn
}

// refusedSocket asks for a socket that it does not get.
func (d *daemon) refusedSocket(path, token string) answer {
	d.Helper()
	o := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if token != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+token)
	}
	conn, res, err := websocket.Dial(d.Context(), d.url+path, o)
	if err == nil {
		_ = conn.CloseNow()
		d.Fatalf("%s: the socket was opened", path)
	}
	if res == nil {
		d.Fatalf("%s: %v", path, err)
	}
	raw, err := io.ReadAll(res.Body) // the library holds it
	if err != nil {
		d.Fatal(err)
	}
	return answer{TB: d, What: "socket " + path, Status: res.StatusCode, Header: res.Header, Body: string(raw)}
}
