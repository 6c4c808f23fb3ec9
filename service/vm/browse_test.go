package vm_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// readers returns how many VMs of the daemon read backups.
func (m *manager) readers() (n int) {
	for _, vm := range m.daemon.VMs() {
		if vm.ServedDisk != nil && *vm.ServedDisk {
			n++
		}
	}
	return n
}

// backedUp makes a VM with noise on its disk, and a backup of it; it returns where the backup's files are.
func (m *manager) backedUp(name, token string) (files string, content []byte) {
	m.Helper()
	m.daemon.PutImage("demo")
	m.made(name, token)
	content = noise(7, 64<<10)
	m.daemon.Write(name, 0, content)
	return "/api/backups/" + m.backup(token, object{"vm_name": name}).Id + "/files/", content
}

func TestFilesInBackupsAreShownToAdminsOfTheirTenant(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		m.call("PUT", "/api/tenants/other", m.admin, object{}).Want(200)
		boss, user := m.user("boss", "admin", "acme"), m.user("user", "user", "acme")
		stranger := m.user("eve", "admin", "other")
		files, content := m.backedUp("web", user)
		all := contracttest.As[[]vmapi.BackupVolume](m.call("GET", files+"volumes", boss, nil).Want(200))
		if len(all) != 2 || all[0].Name != "vdb" || all[0].SizeBytes != 8<<20 || all[1].Error != "it is encrypted" {
			t.Errorf("%+v", all)
		}
		page := contracttest.As[vmapi.BackupFiles](m.call("GET", files+"list?volume=vdb", boss, nil).Want(200))
		if len(page.Entries) != 2 || page.Entries[0].Name != "disk" || *page.Entries[1].Target != "disk" {
			t.Errorf("%+v", page)
		}
		for range 3 {
			a := m.call("GET", files+"content?volume=vdb&path=/link", boss, nil).Want(200)
			if !bytes.Equal([]byte(a.Body), content) || a.Header.Get("Content-Type") != "application/octet-stream" ||
				a.Header.Get("Content-Disposition") != "attachment; filename=link" {
				t.Errorf("%d bytes, %v", len(a.Body), a.Header)
			}
		}
		made := m.daemon.Calls("ServeDisk")
		if len(made) != 1 || made[0].Tenant != "acme" || made[0].Actor != "boss" || m.readers() != 1 {
			t.Errorf("%+v", made)
		}
		for _, vm := range m.daemon.VMs() {
			if vm.ServedDisk != nil && (vm.Tenant != "acme" || vm.Network.Mode == nil || *vm.Network.Mode != "none") {
				t.Errorf("the VM that reads is %+v", vm)
			}
		}
		for _, what := range []string{"volumes", "list?volume=vdb", "content?volume=vdb&path=/disk"} {
			m.call("GET", files+what, user, nil).Want(403)
			m.call("GET", files+what, stranger, nil).Want(404)
		}
		m.call("DELETE", files+"volumes", stranger, nil).Want(404)
		m.call("GET", files+"list?volume=vdc", boss, nil).Want(409)
		m.call("GET", files+"list?volume=vdx", boss, nil).Want(400)
		m.call("GET", files+"list?volume=vdb&path=/nope", boss, nil).Want(404)
		m.call("GET", files+"list?volume=vdb&path=%00", boss, nil).Want(400)
		m.call("GET", files+"content?volume=vdb&path=%ff", boss, nil).Want(400)
		m.call("GET", files+"content?volume=vdb&path="+strings.Repeat("a", 5000), boss, nil).Want(400)
		m.call("DELETE", files+"volumes", boss, nil).Want(204)
		m.call("DELETE", files+"volumes", boss, nil).Want(204) // it is closed
		if m.readers() != 0 {
			t.Error("the VM that read is left")
		}
		entries := contracttest.As[[]vmapi.AuditEntry](m.call("GET", "/api/audit?limit=1000", m.admin, nil).Want(200))
		opened, taken := 0, 0
		for _, e := range entries {
			switch {
			case e.Action == "backup.browse" && e.Actor == "boss" && e.Tenant == "acme":
				opened++
			case e.Action == "backup.get_file" && e.Actor == "boss":
				taken++
			}
		}
		if opened != 1 || taken != 3 {
			t.Errorf("the audit log has %d openings and %d files", opened, taken)
		}
	})
}

func TestBackupsThatNobodyReadsAreClosed(t *testing.T) {
	t.Parallel()
	m := start(t)
	files, _ := m.backedUp("web", m.admin)
	m.call("GET", files+"volumes", m.admin, nil).Want(200)
	if err := m.service.Browser().Tidy(t.Context()); err != nil || m.readers() != 1 {
		t.Errorf("%d VMs read at once after it was opened, %v", m.readers(), err)
	}
	m.ahead(6 * time.Minute)
	if err := m.service.Browser().Tidy(t.Context()); err != nil {
		t.Error(err)
	}
	m.eventually("the VM is removed", func() bool { return m.readers() == 0 })
	m.call("GET", files+"list?volume=vdb", m.admin, nil).Want(200) // it is opened again
	m.stop()
	if m.readers() != 0 {
		t.Error("the service has ended, and its VM is left")
	}
}

func TestATenantHasTwoBackupsOpen(t *testing.T) {
	t.Parallel()
	m := start(t)
	var files []string
	for i := range 3 {
		f, _ := m.backedUp(fmt.Sprintf("web-%d", i), m.admin)
		files = append(files, f)
		m.call("GET", f+"volumes", m.admin, nil).Want(200)
	}
	m.eventually("the one that was used least recently is closed", func() bool { return m.readers() == 2 })
	// Those that are in use are not closed.
	release := m.daemon.Hold("Exec")
	answers := make(chan int, 2)
	for _, f := range files[1:] {
		go func() { answers <- m.statusOf(f + "list?volume=vdb") }()
	}
	m.eventually("both are in use", func() bool { return len(m.daemon.Calls("Exec")) == 3+2 })
	m.call("GET", files[0]+"volumes", m.admin, nil).Want(429)
	release()
	for range 2 {
		if got := <-answers; got != 200 {
			t.Errorf("a folder answers %d", got)
		}
	}
	m.call("GET", files[0]+"volumes", m.admin, nil).Want(200)
}

// statusOf asks for something, and returns the status of the answer.
func (m *manager) statusOf(path string) int {
	req, err := http.NewRequestWithContext(m.Context(), "GET", m.url+path, nil)
	if err != nil {
		m.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+m.admin)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		m.Error(err)
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode
}

func TestABackupThatCannotBeOpenedLeavesNothing(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	files := "/api/backups/" + m.backup(m.admin, object{"vm_name": "web"}).Id + "/files/"
	a := m.call("GET", files+"volumes", m.admin, nil).Want(503)
	if !strings.Contains(a.Body, "mainstay image build-demo") {
		t.Errorf("without the image: %s", a.Body)
	}
	m.daemon.PutImage("demo")
	for what, out := range map[string]hypervisorapi.ExecOutcome{
		"no JSON":             {Stdout: "mounted"},
		"half":                {Stdout: `[{"name":"vdb"`},
		"a path":              {Stdout: `[{"name":"../x","size":1}]`},
		"no name":             {Stdout: `[{"size":1}]`},
		"a name twice":        {Stdout: `[{"name":"a","size":1},{"name":"a","size":1}]`},
		"a size below zero":   {Stdout: `[{"name":"a","size":-1}]`},
		"another type":        {Stdout: `{"name":"a"}`},
		"too many":            {Stdout: "[" + strings.Repeat(`{"name":"a","size":1},`, 300) + `{"name":"b","size":1}]`},
		"a program that ends": {ExitCode: 1, Stderr: "\x1b[31mno\nsuch kernel module"},
	} {
		m.daemon.Inspect(func([]string) hypervisorapi.ExecOutcome { return out })
		if a := m.call("GET", files+"volumes", m.admin, nil); a.Status != 503 && a.Status != 409 || strings.Contains(a.Body, `\u001b`) {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	m.eventually("no VM is left", func() bool { return m.readers() == 0 })

	volumes := `[{"name":"vdb","size":1,"kind":"ext4"}]`
	for _, out := range map[string]string{
		"a path":           `{"entries":[{"name":"a/b","type":"file","size":1}]}`,
		"out of order":     `{"entries":[{"name":"b","type":"file"},{"name":"a","type":"file"}]}`,
		"an unknown type":  `{"entries":[{"name":"a","type":"door"}]}`,
		"more of nothing":  `{"entries":[],"more":true}`,
		"a negative size":  `{"entries":[{"name":"a","type":"file","size":-1}]}`,
		"a time that ends": `{"entries":[{"name":"a","type":"file","modified":"99999-01-01T00:00:00Z"}]}`,
	} {
		m.daemon.Inspect(func(argv []string) hypervisorapi.ExecOutcome {
			if argv[1] == "volumes" {
				return hypervisorapi.ExecOutcome{Stdout: volumes}
			}
			return hypervisorapi.ExecOutcome{Stdout: out}
		})
		m.call("GET", files+"list?volume=vdb", m.admin, nil).Want(503)
	}
	m.call("GET", files+"content?volume=vdb&path=/a", m.admin, nil).Want(503)
}

// A file system that makes the kernel of the VM that reads it fail is not the end of the rest: the next
// request opens the backup anew.
func TestABackupIsOpenedAnewOnceItsReaderHasFailed(t *testing.T) {
	t.Parallel()
	m := start(t)
	boss := m.user("boss", "admin", "acme")
	files, _ := m.backedUp("web", boss)
	m.call("GET", files+"list?volume=vdb", boss, nil).Want(200)
	opened := func() int { return len(m.daemon.Calls("ServeDisk")) }
	for _, broken := range []*drivertest.Fault{
		{Status: 504, Body: `{"code":"agent_timeout","error":"the guest's agent broke off","request_id":"r"}`},
		{Status: 409, Body: `{"code":"agent_not_connected","error":"the guest's agent is not connected","request_id":"r"}`},
	} {
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "Exec" {
				return broken
			}
			return nil
		})
		a := m.call("GET", files+"list?volume=vdb", boss, nil).Want(503)
		if !strings.Contains(a.Body, "the helper VM failed") || strings.Contains(a.Body, "guest's agent") {
			t.Errorf("%s", a.Body)
		}
		m.daemon.Fail(nil)
		before := opened()
		m.call("GET", files+"list?volume=vdb", boss, nil).Want(200)
		if opened() != before+1 {
			t.Errorf("%d times opened, %d before", opened(), before)
		}
	}
	// A guest that has started again has nothing mounted.
	m.daemon.Inspect(func(argv []string) hypervisorapi.ExecOutcome {
		return hypervisorapi.ExecOutcome{ExitCode: 5, Stderr: "there is no such volume"}
	})
	m.call("GET", files+"content?volume=vdb&path=/disk", boss, nil).Want(503)
	m.daemon.Inspect(nil)
	m.call("GET", files+"content?volume=vdb&path=/disk", boss, nil).Want(200)
	m.eventually("one VM reads", func() bool { return m.readers() == 1 })
}

func TestABackupThatIsDeletedIsNotReadAnyMore(t *testing.T) {
	t.Parallel()
	m := start(t)
	boss := m.user("boss", "admin", "acme")
	files, _ := m.backedUp("web", boss)
	m.call("GET", files+"volumes", boss, nil).Want(200)
	m.call("DELETE", strings.TrimSuffix(files, "/files/"), boss, nil).Want(204)
	m.eventually("nothing reads it", func() bool { return m.readers() == 0 })
}

// What a guest makes of a disk of which a part cannot be read says nothing: the damage is told.
func TestDamageOfTheRepositoryIsToldWhileABackupIsRead(t *testing.T) {
	t.Parallel()
	m := start(t)
	boss := m.user("boss", "admin", "acme")
	files, _ := m.backedUp("web", boss)
	packs, err := filepath.Glob(filepath.Join(m.config.Data, "backups", "packs", "*", "*"))
	if err != nil || len(packs) == 0 {
		t.Fatal(packs, err)
	}
	for _, pack := range packs {
		content, err := os.ReadFile(pack)
		if err != nil {
			t.Fatal(err)
		}
		for i := 20; i < len(content)/2; i += 1000 { // the trailer stays
			content[i] ^= 1
		}
		_ = os.Chmod(pack, 0o600)
		if err := os.WriteFile(pack, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := contracttest.As[[]vmapi.BackupVolume](m.call("GET", files+"volumes", boss, nil).Want(200))
	if len(all) != 2 || !strings.Contains(all[1].Error, "a part of the backup is damaged") {
		t.Errorf("%+v", all)
	}
	b := contracttest.As[vmapi.Backup](m.call("GET", strings.TrimSuffix(files, "/files/"), boss, nil).Want(200))
	if b.Status != "damaged" || b.Error == "" {
		t.Errorf("%+v", b)
	}
}
