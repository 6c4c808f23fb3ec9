package vm_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// noise returns bytes that do not become smaller.
func noise(seed byte, n int) []byte {
	out := make([]byte, n)
	source := rand.NewChaCha8([32]byte{seed})
	_, _ = source.Read(out)
	return out
}

// backup makes a backup and waits for its end.
func (m *manager) backup(token string, spec object) vmapi.Backup {
	m.Helper()
	b := contracttest.As[vmapi.Backup](m.call("POST", "/api/backups", token, spec).Want(201))
	m.call("GET", "/api/jobs/"+*b.JobId+"?wait=60", token, nil).Want(200)
	return contracttest.As[vmapi.Backup](m.call("GET", "/api/backups/"+b.Id, token, nil).Want(200))
}

// restored restores a backup and waits for the end of the job, whose error it returns.
func (m *manager) restored(token string, spec object) string {
	m.Helper()
	j := contracttest.As[vmapi.BackupJob](m.call("POST", "/api/backups/restore", token, spec).Want(200))
	done := contracttest.As[vmapi.Job](m.call("GET", "/api/jobs/"+j.Id+"?wait=60", token, nil).Want(200))
	if done.Status != vmapi.JobStatusCompleted && done.Error == "" {
		m.Fatalf("%+v", done)
	}
	return done.Error
}

func TestABackupBringsBackWhatTheDiskHeld(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		first := noise(1, 3<<20)
		m.daemon.Write("web", 1<<20, first)
		full := m.backup(m.admin, object{"vm_name": "web", "description": "before", "retention_days": 7})
		if full.Status != "completed" || full.BackupType != "full" || full.DiskBytes != 8<<20 || full.SizeBytes < 3<<20 ||
			full.Consistency != "stopped" || full.ExpiresAt == nil || full.StorageLocation == nil {
			t.Errorf("%+v", full)
		}
		m.daemon.Write("web", 2<<20, noise(2, 64<<10))
		second := m.daemon.Disk("web")
		next := m.backup(m.admin, object{"vm_name": "web", "backup_type": "incremental"})
		if next.BackupType != "incremental" || next.ReadBytes > 256<<10 || next.SizeBytes > 400<<10 {
			t.Errorf("%+v", next)
		}
		m.daemon.Write("web", 0, noise(3, 8<<20))

		if failed := m.restored(m.admin, object{"backup_id": full.Id}); failed != "" {
			t.Fatal(failed)
		}
		want := make([]byte, 8<<20)
		copy(want[1<<20:], first)
		if !bytes.Equal(m.daemon.Disk("web"), want) {
			t.Error("the full backup does not bring back what was there")
		}
		if failed := m.restored(m.admin, object{"backup_id": next.Id, "target_vm_name": "copy"}); failed != "" {
			t.Fatal(failed)
		}
		if !bytes.Equal(m.daemon.Disk("copy"), second) {
			t.Error("the incremental backup does not bring back what was there")
		}
		// The restored disk has no checkpoints: the next backup reads everything.
		if again := m.backup(m.admin, object{"vm_name": "web", "backup_type": "incremental"}); again.BackupType != "full" {
			t.Errorf("%+v", again)
		}
		stats := contracttest.As[vmapi.BackupStats](m.call("GET", "/api/backups/stats", m.admin, nil).Want(200))
		if stats.TotalBackups != 3 || stats.ByType["full"] != 2 || stats.ByVm["web"] != 3 || stats.NewestBackup == nil ||
			stats.TotalSizeBytes == 0 {
			t.Errorf("%+v", stats)
		}
		jobs := contracttest.As[[]vmapi.BackupJob](m.call("GET", "/api/backups/jobs", m.admin, nil).Want(200))
		if len(jobs) != 5 || jobs[4].Operation != "backup" || jobs[4].BackupId != full.Id || jobs[4].Progress != 1 {
			t.Errorf("%+v", jobs)
		}
		m.call("DELETE", "/api/backups/"+full.Id, m.admin, nil).Want(204)
		m.call("GET", "/api/backups/"+full.Id, m.admin, nil).Want(404)
		if failed := m.restored(m.admin, object{"backup_id": next.Id}); failed != "" {
			t.Errorf("a backup cannot be restored after the one that it was read after is gone: %s", failed)
		}
	})
}

func TestARestoreBringsBackTheSettingsIfAsked(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.call("PATCH", "/api/vms/web", m.admin, object{"cpus": 3, "tags": []string{"gold"}, "description": "first"}).Want(200)
	b := m.backup(m.admin, object{"vm_name": "web"})
	m.daemon.Write("web", 0, noise(1, 1<<20))
	m.call("PATCH", "/api/vms/web", m.admin, object{"cpus": 1, "tags": []string{}, "description": "second"}).Want(200)
	m.call("POST", "/api/backups/restore", m.admin, object{
		"backup_id": b.Id, "restore_config": false, "restore_disks": false,
	}).Want(400)
	m.call("POST", "/api/backups/restore", m.admin, object{"backup_id": b.Id, "restore_state": true}).Want(400)
	m.restored(m.admin, object{"backup_id": b.Id, "restore_config": false})
	if got := m.settled("web", m.admin); got.Cpus != 1 || got.Description != "second" || m.daemon.Disk("web")[0] != 0 {
		t.Errorf("%+v", got)
	}
	m.daemon.Write("web", 0, []byte{7})
	m.restored(m.admin, object{"backup_id": b.Id, "restore_disks": false})
	got := m.settled("web", m.admin)
	if got.Cpus != 3 || got.Description != "first" || len(got.Tags) != 1 || m.daemon.Disk("web")[0] != 7 {
		t.Errorf("%+v", got)
	}
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	m.settled("web", m.admin)
	m.call("POST", "/api/backups/restore", m.admin, object{"backup_id": b.Id}).Want(409)
	m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
	m.call("POST", "/api/backups/restore", m.admin, object{"backup_id": b.Id}).Want(404)
	if failed := m.restored(m.admin, object{"backup_id": b.Id, "target_vm_name": "web"}); failed != "" {
		t.Error(failed)
	}
}

func TestAVMThatIsMadeOfABackupHasTheNetworkPolicyOfThatTime(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	policy := object{"ingress": object{"default": "deny", "rules": []object{}}}
	m.call("POST", "/api/vms/web/dataplane/policy", m.admin, policy).Want(200)
	b := m.backup(m.admin, object{"vm_name": "web"})
	m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{}).Want(200)
	if failed := m.restored(m.admin, object{"backup_id": b.Id, "target_vm_name": "copy"}); failed != "" {
		t.Fatal(failed)
	}
	got := m.call("GET", "/api/vms/copy/dataplane/effective", m.admin, nil).Want(200)
	if e := contracttest.As[vmapi.EffectivePolicy](got); e.Policy == nil || e.Policy.Ingress.Default != "deny" {
		t.Errorf("%s", got.Body)
	}
}

func TestABackupBeginsAgainIfOtherWorkEndsIt(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.daemon.Write("web", 0, noise(1, 1<<20))
	broken := 0
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "ReadTransfer" && broken == 0 {
			broken++
			return &drivertest.Fault{Status: 409, Body: `{"error":"the transfer is over","code":"transfer_over","request_id":"r"}`}
		}
		return nil
	})
	if b := m.backup(m.admin, object{"vm_name": "web"}); b.Status != "completed" || broken != 1 {
		t.Errorf("%+v", b)
	}
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "ReadTransfer" {
			return &drivertest.Fault{Status: 409}
		}
		return nil
	})
	b := m.backup(m.admin, object{"vm_name": "web"})
	if b.Status != "failed" || b.Error == "" {
		t.Errorf("%+v", b)
	}
	m.daemon.Fail(nil)
	if b := m.backup(m.admin, object{"vm_name": "web"}); b.Status != "completed" {
		t.Errorf("%+v", b)
	}
	events := m.call("GET", "/api/vms/web/events", m.admin, nil).Want(200)
	if !strings.Contains(events.Body, "backup failed: ") || !strings.Contains(events.Body, "backed up (full") {
		t.Error(events.Body)
	}
}

// A checkpoint counts only once its backup is committed: otherwise a change could be missed.
func TestNoChangeIsMissedWhenACheckpointIsNotFinished(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	incremental := object{"vm_name": "web", "backup_type": "incremental"}
	m.daemon.Write("web", 0, noise(1, 1<<20))
	m.backup(m.admin, incremental)
	m.daemon.Write("web", 2<<20, noise(2, 1<<20))
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "FinishTransfer" {
			return &drivertest.Fault{Status: 409}
		}
		return nil
	})
	lost := m.backup(m.admin, incremental)
	m.daemon.Fail(nil)
	if lost.Status != "completed" {
		t.Errorf("%+v", lost)
	}
	m.daemon.Write("web", 4<<20, noise(3, 1<<20))
	want := m.daemon.Disk("web")
	last := m.backup(m.admin, incremental)
	m.restored(m.admin, object{"backup_id": last.Id, "target_vm_name": "copy"})
	if !bytes.Equal(m.daemon.Disk("copy"), want) {
		t.Error("the backup after a checkpoint that was not finished misses changes")
	}
}

func TestAnotherTenantsBackupsDoNotExist(t *testing.T) {
	t.Parallel()
	m := start(t)
	alice, bob, boss := m.user("alice", "user", "acme"), m.user("bob", "user", "other"), m.user("boss", "admin", "acme")
	m.made("web", alice)
	m.daemon.Write("web", 0, noise(1, 1<<20))
	b := m.backup(alice, object{"vm_name": "web"})
	if b.StorageLocation != nil || b.Status != "completed" {
		t.Errorf("%+v", b)
	}
	m.call("POST", "/api/backups", bob, object{"vm_name": "web"}).Want(404)
	m.call("GET", "/api/backups/"+b.Id, bob, nil).Want(404)
	m.call("POST", "/api/backups/restore", bob, object{"backup_id": b.Id, "target_vm_name": "mine"}).Want(404)
	for _, path := range []string{"/api/backups", "/api/backups?vm=web", "/api/backups/jobs"} {
		if a := m.call("GET", path, bob, nil).Want(200); strings.TrimSpace(a.Body) != "[]" {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
	if s := contracttest.As[vmapi.BackupStats](m.call("GET", "/api/backups/stats", bob, nil).Want(200)); s.TotalBackups != 0 {
		t.Errorf("%+v", s)
	}
	m.call("DELETE", "/api/backups/"+b.Id, alice, nil).Want(403)
	m.call("POST", "/api/backups/verify", boss, nil).Want(403)
	// The name of a deleted VM, used by another tenant, leads to nothing.
	m.call("DELETE", "/api/vms/web", boss, nil).Want(204)
	for _, name := range []string{"alice", "boss"} {
		m.call("DELETE", "/api/users/"+name, m.admin, nil).Want(204)
	}
	if a := m.call("DELETE", "/api/tenants/acme", m.admin, nil).Want(409); !strings.Contains(a.Body, "1 backups") {
		t.Error(a.Body)
	}
	alice = m.user("alice", "user", "acme")
	m.made("web", bob)
	m.call("POST", "/api/backups/restore", bob, object{"backup_id": b.Id}).Want(404)
	m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"backup_bytes": 1000}}).Want(200)
	m.made("more", alice)
	if a := m.call("POST", "/api/backups", alice, object{"vm_name": "more"}).Want(403); !strings.Contains(a.Body, "backup_bytes") {
		t.Error(a.Body)
	}
}

// What a backup has written that the quota ended is there until a prune removes it: repeating such backups must not fill
// the repository.
func TestWhatFailedBackupsHaveLeftCountsForTheQuota(t *testing.T) {
	t.Parallel()
	const quota = 30 << 20
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"backup_bytes": quota}}).Want(200)
		boss := m.user("boss", "admin", "acme")
		used := func() int64 {
			return contracttest.As[vmapi.Tenant](m.call("GET", "/api/tenants/acme", boss, nil).Want(200)).Used.BackupBytes
		}
		m.made("web", boss)
		taken := func() (bytes int64) {
			if err := filepath.WalkDir(filepath.Join(m.config.Data, "backups"), func(_ string, e fs.DirEntry, err error) error {
				if info, infoErr := e.Info(); err == nil && infoErr == nil && info.Mode().IsRegular() {
					bytes += info.Size()
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return bytes
		}
		refused := 0
		for i := range 6 {
			m.daemon.Write("web", 0, noise(byte(10+i), 40<<20))
			a := m.call("POST", "/api/backups", boss, object{"vm_name": "web"})
			if m.eventually("no backup is being made", m.idle); a.Status == 403 {
				refused++
			}
		}
		for _, b := range contracttest.As[[]vmapi.Backup](m.call("GET", "/api/backups", boss, nil).Want(200)) {
			if b.Status != "failed" || !strings.Contains(b.Error, "quota backup_bytes of tenant acme") {
				t.Errorf("%+v", b)
			}
		}
		// What counts may be more than what is there: a pack whose writing was broken off counts, too.
		if used() < quota || refused < 3 || taken() > quota+48<<20 {
			t.Errorf("%d bytes used, %d backups refused; the repository has %d bytes", used(), refused, taken())
		}
		// A backup that is deleted, and a restart of the service, change nothing.
		has := used()
		for _, b := range contracttest.As[[]vmapi.Backup](m.call("GET", "/api/backups", boss, nil).Want(200)) {
			m.call("DELETE", "/api/backups/"+b.Id, boss, nil).Want(204)
		}
		m.again()
		boss = m.login("boss", "password of boss")
		if used() != has {
			t.Errorf("%d bytes used, %d before", used(), has)
		}
		m.call("POST", "/api/backups", boss, object{"vm_name": "web"}).Want(403)
		m.ahead(5 * time.Hour)
		if err := m.service.Backups().Prune(m.Context()); err != nil || used() != 0 {
			t.Errorf("%v; %d bytes used", err, used())
		}
	})
}

func TestTheQuotaOfBackupsHoldsForThoseThatRunAtOnceAndAfterDeletions(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		boss := m.user("boss", "admin", "acme")
		used := func() int64 {
			return contracttest.As[vmapi.Tenant](m.call("GET", "/api/tenants/acme", boss, nil).Want(200)).Used.BackupBytes
		}
		for i := range 3 {
			name := fmt.Sprintf("vm-%d", i)
			m.made(name, boss)
			m.daemon.Write(name, 0, noise(byte(i), 2<<20))
		}
		first := m.backup(boss, object{"vm_name": "vm-0"})
		second := m.backup(boss, object{"vm_name": "vm-0"}) // adds nothing
		has := used()
		if has < 2<<20 || has > 3<<20 {
			t.Fatalf("%d bytes used", has)
		}
		// What the first has brought is needed by the second.
		m.call("DELETE", "/api/backups/"+first.Id, boss, nil).Want(204)
		if now := used(); now != has {
			t.Errorf("%d bytes used after a deletion, %d before", now, has)
		}
		if err := m.service.Backups().Prune(m.Context()); err != nil {
			t.Fatal(err)
		}
		if now := used(); now < 2<<20 || now > has+64<<10 { // the segments of both
			t.Errorf("%d bytes used after a prune, %d before", now, has)
		}
		// Of those that begin while there is room, none exceeds it.
		m.call("PUT", "/api/tenants/acme", m.admin, object{"quota": object{"backup_bytes": used() + 1<<20}}).Want(200)
		for _, name := range []string{"vm-1", "vm-2"} {
			m.call("POST", "/api/backups", boss, object{"vm_name": name})
		}
		m.eventually("no backup is being made", m.idle)
		denied := 0
		for _, b := range contracttest.As[[]vmapi.Backup](m.call("GET", "/api/backups", boss, nil).Want(200)) {
			if b.Status == "failed" && strings.Contains(b.Error, "quota backup_bytes of tenant acme") {
				denied++
			}
		}
		if denied != 2 {
			t.Errorf("%d backups were ended", denied)
		}
		// Without backups nothing is needed, once what the others have left is removed, too.
		m.call("DELETE", "/api/backups/"+second.Id, boss, nil).Want(204)
		m.ahead(5 * time.Hour)
		if err := m.service.Backups().Prune(m.Context()); err != nil || used() != 0 {
			t.Errorf("%v; %d bytes used", err, used())
		}
	})
}

func TestANewInstallationRestoresFromTheRepositoryAndItsKey(t *testing.T) {
	t.Parallel()
	old := start(t)
	old.made("web", old.admin)
	old.daemon.Write("web", 0, noise(1, 2<<20))
	want := old.daemon.Disk("web")
	b := old.backup(old.admin, object{"vm_name": "web", "description": "the last one"})

	fresh := start(t, func(c *vm.Config) {
		c.BackupRepository, c.BackupKeyFile = filepath.Join(old.config.Data, "backups"), filepath.Join(old.config.Data, "backup.key")
	})
	var found []vmapi.Backup
	fresh.eventually("the backups are taken in", func() bool {
		found = contracttest.As[[]vmapi.Backup](fresh.call("GET", "/api/backups", fresh.admin, nil).Want(200))
		return len(found) == 1
	})
	if found[0].Id != b.Id || found[0].VmName != "web" || found[0].Description != "the last one" {
		t.Errorf("%+v", found[0])
	}
	if failed := fresh.restored(fresh.admin, object{"backup_id": b.Id, "target_vm_name": "web"}); failed != "" {
		t.Fatal(failed)
	}
	if !bytes.Equal(fresh.daemon.Disk("web"), want) {
		t.Error("the disk is not what it was")
	}
	scan := contracttest.As[vmapi.BackupScan](fresh.call("POST", "/api/backups/scan", fresh.admin, nil).Want(200))
	if scan.Found != 1 || scan.Added != 0 {
		t.Errorf("%+v", scan)
	}

	// Without the key, nothing can be had, and nothing is overwritten.
	lost := start(t, func(c *vm.Config) { c.BackupRepository = filepath.Join(old.config.Data, "backups") })
	lost.made("web", lost.admin)
	a := lost.call("POST", "/api/backups", lost.admin, object{"vm_name": "web"}).Want(503)
	if !strings.Contains(a.Body, "the file with its key is missing") {
		t.Error(a.Body)
	}
}

func TestVerifyFindsWhatWasChangedInTheRepository(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.call("POST", "/api/backups/verify", m.admin, nil).Want(409)
	m.made("web", m.admin)
	m.daemon.Write("web", 0, noise(1, 2<<20))
	b := m.backup(m.admin, object{"vm_name": "web"})
	verify := func() vmapi.Job {
		j := contracttest.As[vmapi.Job](m.call("POST", "/api/backups/verify", m.admin, nil).Want(202))
		return contracttest.As[vmapi.Job](m.call("GET", "/api/jobs/"+j.Id+"?wait=60", m.admin, nil).Want(200))
	}
	if j := verify(); j.Status != "completed" {
		t.Errorf("%+v", j)
	}
	get := func() vmapi.Backup {
		return contracttest.As[vmapi.Backup](m.call("GET", "/api/backups/"+b.Id, m.admin, nil).Want(200))
	}
	if now := get(); now.Verified == nil || now.Status != "completed" {
		t.Errorf("%+v", now)
	}
	packs, err := filepath.Glob(filepath.Join(m.config.Data, "backups", "packs", "*", "*"))
	if err != nil || len(packs) == 0 {
		t.Fatal(packs, err)
	}
	content, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/3] ^= 1
	_ = os.Chmod(packs[0], 0o600)
	if err := os.WriteFile(packs[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := verify(); j.Status != "failed" || !strings.Contains(j.Error, "1 backups are damaged") {
		t.Errorf("%+v", j)
	}
	if now := get(); now.Status != "damaged" || now.Error == "" {
		t.Errorf("%+v", now)
	}
	// A VM that was to be made of it is not there with something else on its disk.
	if failed := m.restored(m.admin, object{"backup_id": b.Id, "target_vm_name": "copy"}); failed == "" {
		t.Error("a damaged backup was restored to a new VM")
	}
	m.call("GET", "/api/vms/copy", m.admin, nil).Want(404)
	m.eventually("the daemon has no such VM", func() bool { return len(m.daemon.VMs()) == 1 })
	if failed := m.restored(m.admin, object{"backup_id": b.Id}); failed == "" {
		t.Error("a damaged backup was restored")
	}
	if !bytes.Equal(m.daemon.Disk("web")[:2<<20], noise(1, 2<<20)) {
		t.Error("a restore that failed has changed the disk")
	}
}

func TestAPolicyBacksUpTaggedVMsAndKeepsWhatItSays(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		for _, name := range []string{"one", "two", "three"} {
			m.made(name, m.admin)
		}
		m.call("PATCH", "/api/vms/one", m.admin, object{"tags": []string{"gold"}}).Want(200)
		m.call("PATCH", "/api/vms/two", m.admin, object{"tags": []string{"silver"}}).Want(200)
		p := contracttest.As[vmapi.BackupPolicy](m.call("POST", "/api/backups/policies", m.admin, object{
			"name": "nightly", "vm_tags": []string{"gold", "silver"}, "schedule_type": "daily", "keep_last": 2,
			"timezone": "Europe/Berlin",
		}).Want(201))
		if p.NextRun == nil || p.Time != "02:00" {
			t.Errorf("%+v", p)
		}
		count := func() (n int) {
			for _, b := range contracttest.As[[]vmapi.Backup](m.call("GET", "/api/backups", m.admin, nil).Want(200)) {
				if b.Status == "completed" {
					n++
				}
				if b.VmName == "three" || b.Policy == nil || *b.Policy != p.Id {
					t.Errorf("%+v", b)
				}
			}
			return n
		}
		for day := 1; day <= 4; day++ {
			m.ahead(24 * time.Hour)
			if err := m.service.Backups().RunPolicies(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.eventually("the backups of a run are made", func() bool { return count() == 2*min(day, 2) && m.idle() })
		}
		// Runs that were missed are made up for once.
		m.ahead(10 * 24 * time.Hour)
		before := len(m.daemon.Calls("CreateTransfer"))
		for range 3 {
			if err := m.service.Backups().RunPolicies(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m.eventually("the run is made up for", func() bool {
			return len(m.daemon.Calls("CreateTransfer")) == before+2 && m.idle()
		})
		m.call("POST", "/api/backups/policies", m.admin, object{
			"name": "nightly", "vm_tags": []string{"x"}, "schedule_type": "daily",
		}).Want(409)
		m.call("POST", "/api/backups/policies", m.admin, object{
			"name": "odd", "vm_tags": []string{"x"}, "schedule_type": "daily", "timezone": "Mars/Olympus",
		}).Want(400)
		m.call("PUT", "/api/backups/policies/"+p.Id, m.admin, object{
			"name": "nightly", "vm_tags": []string{"gold"}, "schedule_type": "weekly", "enabled": false,
		}).Want(200)
		list := contracttest.As[[]vmapi.BackupPolicy](m.call("GET", "/api/backups/policies", m.admin, nil).Want(200))
		if len(list) != 1 || list[0].NextRun != nil || list[0].LastRun == nil || !strings.HasPrefix(list[0].LastResult, "2 begun") {
			t.Errorf("%+v", list)
		}
		m.call("DELETE", "/api/backups/policies/"+p.Id, m.admin, nil).Want(204)
	})
}

func TestBackupsExpireUnlessTheyAreProtected(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	gone := m.backup(m.admin, object{"vm_name": "web", "retention_days": 1})
	kept := m.backup(m.admin, object{"vm_name": "web", "retention_days": 1})
	until := m.now().Add(72 * time.Hour).UTC().Format(time.RFC3339)
	m.call("POST", "/api/backups/"+kept.Id+"/protect", m.admin, object{"until": "2020-01-01T00:00:00Z"}).Want(400)
	m.call("POST", "/api/backups/"+kept.Id+"/protect", m.admin, object{"until": until}).Want(200)
	m.call("DELETE", "/api/backups/"+kept.Id, m.admin, nil).Want(409)
	m.ahead(48 * time.Hour)
	if err := m.service.Backups().Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.call("GET", "/api/backups/"+gone.Id, m.admin, nil).Want(404)
	m.call("GET", "/api/backups/"+kept.Id, m.admin, nil).Want(200)
	m.ahead(48 * time.Hour)
	if err := m.service.Backups().Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.call("GET", "/api/backups/"+kept.Id, m.admin, nil).Want(404)
}
