package hypervisor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
)

// tamper changes the database of a daemon that is stopped.
func tamper(t *testing.T, data, statement string) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{Path: filepath.Join(data, "state", "hypervisor.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), statement)
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestAWipedAuditLogIsFoundByItsCheckpoints(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	d.call("POST", "/v1/images/clean", adminToken, nil).Want(200)
	d.restart(func() {
		if info, err := os.Stat(filepath.Join(d.cfg.Data, "audit-checkpoints.jsonl")); err != nil ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		for _, table := range []string{"audit_entries", "audit_segments", "audit_head"} {
			tamper(t, d.cfg.Data, "DELETE FROM "+table)
		}
	})
	d.call("POST", "/v1/images/clean", adminToken, nil).Want(200) // changes continue
	v := contracttest.As[hypervisorapi.AuditVerification](d.call("GET", "/v1/audit/verify", adminToken, nil).Want(200))
	if v.Ok || !strings.Contains(v.Reason, "nothing that this service signed is left") {
		t.Errorf("%+v", v)
	}
	d.call("GET", "/v1/audit/verify", acmeToken, nil).Want(403)
}

func TestAuditEntriesOfADiskNameItsVM(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms", adminToken, object{"name": "one", "memory_mib": 64, "disk_gib": 1}).Want(201),
	)
	path := "/v1/vms/" + vm.Id
	d.call("POST", path+"/snapshots", adminToken, object{"name": "s1"}).Want(201)
	d.call("POST", path+"/snapshots/s1/revert", adminToken, nil).Want(200)
	d.call("DELETE", path+"/snapshots/s1", adminToken, nil).Want(204)
	d.call("POST", path+"/resize", adminToken, object{"disk_gib": 2}).Want(200)
	entries := contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit?limit=4", adminToken, nil).Want(200))
	for i, action := range []string{"vm.resize", "vm.snapshot.delete", "vm.snapshot.revert", "vm.snapshot"} {
		if e := entries[i]; e.Action != action || e.Target != vm.Id || !strings.HasPrefix(e.Message, "one: ") {
			t.Errorf("%+v, want %s of the VM one", e, action)
		}
	}
}

func TestABackupIsNotPutIntoAVMThatRunsAndTheErrorSaysToStopIt(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, "")
	vm := contracttest.As[hypervisorapi.VM](
		d.call(
			"POST", "/v1/vms", adminToken,
			object{"name": "one", "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}},
		).Want(201),
	)
	path := "/v1/vms/" + vm.Id
	backup := d.finished(d.call("POST", path+"/backups", adminToken, nil))
	d.call("POST", path+"/start", adminToken, nil).Want(200)
	a := d.call("POST", "/v1/backups/"+*backup.BackupId+"/restore", adminToken, object{"vm": vm.Id})
	a.Refused(409, "wrong_state", "")
	if said := a.Body; !strings.Contains(said, "the VM is running: stop it") ||
		strings.Contains(said, "clone") {
		t.Error(said)
	}
}

func TestTheAuditLogIsNarrowedByWhoDidWhatToWhom(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument)
	for token, name := range map[string]string{acmeToken: "shop", otherToken: "blog"} {
		d.call("POST", "/v1/vms", token,
			object{"name": name, "memory_mib": 64, "disk_gib": 1, "network": object{"mode": "none"}}).Want(201)
	}
	d.call("POST", "/v1/images/clean", acmeToken, nil).Want(403)
	for query, want := range map[string]string{
		"action=vm.create":                 "blog shop",
		"action=vm.create&tenant=acme":     "shop",
		"q=SHOP":                           "shop",
		"q=sh%25p":                         "",
		"result=denied&action=image.clean": "denied",
		"actor=nobody":                     "",
		"to=2020-01-01T00:00:00Z":          "",
	} {
		var got []string
		for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit?"+query, adminToken, nil).Want(200)) {
			if e.Result == "denied" {
				e.Message = "denied"
			}
			got = append(got, e.Message)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s lists %q, want %s", query, got, want)
		}
	}
	for query, field := range map[string]string{
		"result=maybe": "result", "from=2026-01-02T03:04:06Z&to=2026-01-02T03:04:05Z": "from",
		"to=2026-01-02T03:04:05Z&to=2026-01-02T03:04:06Z": "to",
	} {
		d.call("GET", "/v1/audit?"+query, adminToken, nil).Refused(400, "invalid", field)
	}
}
