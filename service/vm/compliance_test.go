package vm_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// guest answers like the agent of a guest: for a program, its name and last argument, or its name, say
// what it prints.
type guest map[string]hypervisorapi.ExecOutcome

func (g guest) run(_ string, argv []string) *hypervisorapi.ExecOutcome {
	for _, key := range []string{argv[0] + " " + argv[len(argv)-1], argv[0] + " " + argv[1], argv[0]} {
		if out, ok := g[key]; ok {
			return &out
		}
	}
	return nil
}

func prints(text string) hypervisorapi.ExecOutcome { return hypervisorapi.ExecOutcome{Stdout: text} }

// kernel returns what grep prints of kernel parameters.
func kernel(values map[string]string) hypervisorapi.ExecOutcome {
	var b strings.Builder
	for name, value := range values {
		fmt.Fprintf(&b, "/proc/sys/%s:%s\n", strings.ReplaceAll(name, ".", "/"), value)
	}
	return prints(b.String())
}

// hardened is a guest in which every check passes.
func hardened() guest {
	return guest{
		"awk /etc/shadow":    prints(""),
		"awk /etc/passwd":    prints("root\n"), // only root has the id 0; see soft for shells
		"stat":               prints("644 0 /etc/passwd\n644 0 /etc/group\n640 0 /etc/shadow\n440 0 /etc/sudoers\n600 0 /etc/ssh/sshd_config\n600 0 /etc/crontab\n"),
		"sshd":               prints("permitrootlogin no\npermitemptypasswords no\nhostbasedauthentication no\npasswordauthentication no\nx11forwarding no\nmaxauthtries 3\nciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com\n"),
		"cat /proc/mounts":   prints("tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\ntmpfs /tmp tmpfs rw,nosuid,nodev,noexec 0 0\n"),
		"cat /proc/net/tcp6": prints("  sl  local_address rem_address   st\n   0: 0100007F:0017 00000000:0000 0A 00000000:00000000\n   1: 00000000:0016 00000000:0000 0A 0:0\n"),
		"pidof":              prints("123\n"),
		"nft":                prints("table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n}\n"),
		"grep /sys/module/apparmor/parameters/enabled": prints("/sys/module/apparmor/parameters/enabled:Y\n"),
		"find": prints(""),
		"grep": kernel(map[string]string{
			"kernel.randomize_va_space": "2", "fs.protected_symlinks": "1", "fs.protected_hardlinks": "1", "fs.suid_dumpable": "0",
			"net.ipv4.tcp_syncookies": "1", "net.ipv4.conf.all.accept_source_route": "0", "net.ipv4.conf.all.accept_redirects": "0",
			"net.ipv4.icmp_echo_ignore_broadcasts": "1", "net.ipv4.conf.all.rp_filter": "1", "net.ipv4.conf.all.send_redirects": "0",
			"net.ipv4.ip_forward": "0", "net.ipv4.conf.all.log_martians": "1", "kernel.kptr_restrict": "1",
			"kernel.dmesg_restrict": "1", "kernel.yama.ptrace_scope": "1",
		}),
	}
}

// soft is a guest in which every check fails.
func soft() guest {
	g := guest{
		"awk /etc/shadow":    prints("games\n"),
		"awk /etc/passwd":    prints("root\ntoor\n"),
		"stat":               prints("666 0 /etc/passwd\n664 0 /etc/group\n644 0 /etc/shadow\n440 1000 /etc/sudoers\n666 0 /etc/ssh/sshd_config\n646 0 /etc/crontab\n"),
		"sshd":               prints("permitrootlogin yes\npermitemptypasswords yes\nhostbasedauthentication yes\npasswordauthentication yes\nx11forwarding yes\nmaxauthtries 6\nciphers aes256-cbc\n"),
		"cat /proc/mounts":   prints("/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n"),
		"cat /proc/net/tcp6": prints("  sl  local_address rem_address   st\n   0: 00000000:0017 00000000:0000 0A 0:0\n"),
		"pidof":              {ExitCode: 1},
		"nft":                prints(""),
		"grep /sys/module/apparmor/parameters/enabled": {ExitCode: 2},
		"find": prints("/etc/passwd\n/usr/bin/ls\n"),
		"grep": kernel(map[string]string{
			"kernel.randomize_va_space": "0", "fs.protected_symlinks": "0", "fs.protected_hardlinks": "0", "fs.suid_dumpable": "1",
			"net.ipv4.tcp_syncookies": "0", "net.ipv4.conf.all.accept_source_route": "1", "net.ipv4.conf.all.accept_redirects": "1",
			"net.ipv4.icmp_echo_ignore_broadcasts": "0", "net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.all.send_redirects": "1",
			"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.log_martians": "0", "kernel.kptr_restrict": "0",
			"kernel.dmesg_restrict": "0", "kernel.yama.ptrace_scope": "0",
		}),
	}
	return g
}

// running makes a VM and starts it.
func (m *manager) running(name, token string) {
	m.Helper()
	m.made(name, token)
	m.call("POST", "/api/vms/"+name+"/start", token, nil).Want(202)
	m.settled(name, token)
}

// scanned scans a VM, and returns the result by check.
func (m *manager) scanned(name, profile, token string) (vmapi.ComplianceResult, map[string]vmapi.ComplianceCheck) {
	m.Helper()
	scan := contracttest.As[vmapi.ComplianceScan](
		m.call("POST", "/api/compliance/scan/"+name, token, object{"profile_id": profile}).Want(202))
	if scan.Status != "running" || scan.VmName != name || scan.ProfileId != profile {
		m.Errorf("%+v", scan)
	}
	m.call("GET", "/api/jobs/"+scan.JobId+"?wait=60", token, nil).Want(200)
	r := contracttest.As[[]vmapi.ComplianceResult](m.call("GET", "/api/compliance/results?vm="+name, token, nil).Want(200))[0]
	if r.ScanId != scan.ScanId {
		m.Fatalf("%+v is not the newest", r)
	}
	checks := map[string]vmapi.ComplianceCheck{}
	for _, c := range r.Checks {
		checks[c.Id] = c
	}
	return r, checks
}

func TestProfilesHaveManyChecksAndTheSecondIncludesTheFirst(t *testing.T) {
	t.Parallel()
	m := start(t)
	profiles := contracttest.As[[]vmapi.ComplianceProfile](m.call("GET", "/api/compliance/profiles", m.admin, nil).Want(200))
	if len(profiles) != 2 || profiles[0].Id != "level-1" || profiles[0].CheckCount < 25 || profiles[1].CheckCount <= profiles[0].CheckCount {
		t.Errorf("%+v", profiles)
	}
	m.daemon.Guest(hardened().run)
	m.running("web", m.admin)
	first, one := m.scanned("web", "level-1", m.admin)
	second, two := m.scanned("web", "level-2", m.admin)
	if len(one) != profiles[0].CheckCount || len(two) != profiles[1].CheckCount || len(first.Checks) != len(one) || len(second.Checks) != len(two) {
		t.Errorf("%d and %d checks of %+v", len(one), len(two), profiles)
	}
	for id, c := range two {
		if c.Title == "" || c.Remedy == "" || c.Evidence == "" {
			t.Errorf("%+v", c)
		}
		delete(one, id)
	}
	if len(one) > 0 {
		t.Errorf("level 2 lacks %v", one)
	}
}

func TestAHardenedGuestPassesAndASoftOneFails(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.running("web", m.admin)
		for want, g := range map[string]guest{"passed": hardened(), "failed": soft()} {
			m.daemon.Guest(g.run)
			r, checks := m.scanned("web", "level-2", m.admin)
			for id, c := range checks {
				if c.Scope != "guest" || id == "guest-system-shells" { // which shares a program's key with another
					continue
				}
				if string(c.Status) != want {
					m.Errorf("%s is %s: %s", id, c.Status, c.Evidence)
				}
			}
			if r.Status != "completed" || r.Completed == nil || r.Passed+r.Failed+r.Skipped != len(r.Checks) {
				m.Errorf("%+v", r)
			}
			if exact := 100 * float64(r.Passed) / float64(r.Passed+r.Failed); float64(r.Score) < exact-0.1 || float64(r.Score) > exact+0.1 {
				m.Errorf("score %v, want %v", r.Score, exact)
			}
		}
		for _, call := range m.daemon.Calls("Exec") {
			if call.Actor != adminName {
				m.Errorf("%+v", call)
			}
		}
	})
}

func TestTheConfigurationOfAVMIsJudged(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.running("web", m.admin)
	_, before := m.scanned("web", "level-2", m.admin)
	for _, id := range []string{"vm-backup-weekly", "vm-backup-daily", "vm-backup-policy", "vm-agent", "vm-network-state", "vm-ingress-deny", "vm-protected"} {
		if c := before[id]; c.Status != "failed" || c.Scope != "vm" {
			t.Errorf("%+v", c)
		}
	}
	m.call("PATCH", "/api/vms/web", m.admin, object{"tags": []string{"prod"}, "protected": true}).Want(200)
	m.call("POST", "/api/backups/policies", m.admin, object{"name": "nightly", "vm_tags": []string{"prod"}, "schedule_type": "daily"}).Want(201)
	m.backup(m.admin, object{"vm_name": "web"})
	m.daemon.Change("web", func(vm *hypervisorapi.VM) { vm.Agent.Connected, vm.Agent.Version = true, "1" })
	m.eventually("the agent is seen", func() bool { return m.vm("web", m.admin).Agent != nil && m.vm("web", m.admin).Agent.Connected })
	_, after := m.scanned("web", "level-2", m.admin)
	for _, id := range []string{"vm-backup-weekly", "vm-backup-daily", "vm-backup-policy", "vm-backups-whole", "vm-agent", "vm-protected", "vm-restarted", "vm-snapshots-fresh"} {
		if c := after[id]; c.Status != "passed" {
			t.Errorf("%+v", c)
		}
	}
	m.bridged("db", m.admin, object{})
	m.call("POST", "/api/vms/db/dataplane/policy", m.admin, object{
		"ingress": object{"default": "deny", "rules": []object{{"protocol": "tcp", "ports": []object{{"port": 22}}, "cidr": "0.0.0.0/0"}}},
	}).Want(200)
	m.call("POST", "/api/vms/db/start", m.admin, nil).Want(202)
	m.settled("db", m.admin)
	_, db := m.scanned("db", "level-2", m.admin)
	if db["vm-network-state"].Status != "passed" || db["vm-ingress-deny"].Status != "passed" || db["vm-egress-deny"].Status != "failed" ||
		db["vm-no-open-management"].Status != "failed" || !strings.Contains(db["vm-no-open-management"].Evidence, "vm/ingress/0") {
		t.Errorf("%+v", db)
	}
	m.call("POST", "/api/vms/db/dataplane/policy", m.admin, object{
		"ingress": object{"default": "deny", "rules": []object{{"protocol": "tcp", "ports": []object{{"port": 22}}, "cidr": "10.0.0.0/8"}}},
	}).Want(200)
	if _, db = m.scanned("db", "level-2", m.admin); db["vm-no-open-management"].Status != "passed" {
		t.Errorf("%+v", db["vm-no-open-management"])
	}
}

func TestAGuestThatFloodsOrTalksNonsenseIsSkippedAndNeverPasses(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.running("web", m.admin)
	long := strings.Repeat("permitrootlogin no\n", 60_000)
	for what, out := range map[string]hypervisorapi.ExecOutcome{
		"a flood": prints(long), "cut off": {Stdout: "permitrootlogin no\n", Truncated: true},
		"nonsense": prints("\x1b[2J\x00permitrootlogin\x00\u202eevil\n{}[]"), "a failure": {Stdout: "permitrootlogin no\n", ExitCode: 77},
		"nothing": {},
	} {
		m.daemon.Guest(func(string, []string) *hypervisorapi.ExecOutcome { return &out })
		r, checks := m.scanned("web", "level-2", m.admin)
		if r.Status != "completed" {
			t.Errorf("%s: %+v", what, r)
		}
		for id, c := range checks {
			if strings.HasPrefix(id, "guest-ssh") && c.Status == "passed" {
				t.Errorf("%s: %+v", what, c)
			}
			if len([]rune(c.Evidence)) > 301 || strings.ContainsFunc(c.Evidence, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: %s has the evidence %q", what, id, c.Evidence)
			}
			if c.Scope == "guest" && what != "nonsense" && what != "nothing" && c.Status != "skipped" {
				t.Errorf("%s: %+v", what, c)
			}
		}
	}
}

func TestWithoutAnAgentGuestChecksAreSkippedWithTheReason(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.running("web", m.admin)
	r, checks := m.scanned("web", "level-1", m.admin)
	for id, c := range checks {
		if c.Scope == "guest" && (c.Status != "skipped" || c.Evidence != "the VM was made without an agent") {
			t.Errorf("%s: %+v", id, c)
		}
	}
	if r.Skipped == 0 || r.Passed+r.Failed == 0 || len(m.daemon.Calls("Exec")) != 2 {
		t.Errorf("%+v; asked %d times", r, len(m.daemon.Calls("Exec")))
	}
	m.daemon.Guest(func(string, []string) *hypervisorapi.ExecOutcome { return nil })
	if _, checks = m.scanned("web", "level-1", m.admin); checks["guest-ssh-root-password"].Evidence != "the guest does not have the program sshd" {
		t.Errorf("%+v", checks["guest-ssh-root-password"])
	}
}

func TestAScanTakesARunningVMThatIsNotBeingScannedAndIsKeptFromStrangers(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		alice, bert := m.user("alice", "user", "acme"), m.user("bert", "admin", "beta")
		m.daemon.Guest(hardened().run)
		m.made("web", alice)
		spec := object{"profile_id": "level-1"}
		m.call("POST", "/api/compliance/scan/web", alice, spec).Want(409)
		m.call("POST", "/api/compliance/scan/none", alice, spec).Want(404)
		m.call("POST", "/api/vms/web/start", alice, nil).Want(202)
		m.settled("web", alice)
		m.call("POST", "/api/compliance/scan/web", bert, spec).Want(404)
		m.call("POST", "/api/compliance/scan/web", alice, object{"profile_id": "level-9"}).Want(400)
		m.call("POST", "/api/compliance/scan/web", alice, object{}).Want(400)
		release := m.daemon.Hold("Exec")
		scan := contracttest.As[vmapi.ComplianceScan](m.call("POST", "/api/compliance/scan/web", alice, spec).Want(202))
		if a := m.call("POST", "/api/compliance/scan/web", alice, spec).Want(409); !strings.Contains(a.Body, "being scanned") {
			m.Error(a.Body)
		}
		m.again() // the job is broken off, and begins again
		release()
		alice, bert = m.login("alice", "password of alice"), m.login("bert", "password of bert")
		m.call("GET", "/api/jobs/"+scan.JobId+"?wait=60", alice, nil).Want(200)
		if r := contracttest.As[[]vmapi.ComplianceResult](m.call("GET", "/api/compliance/results", alice, nil).Want(200)); len(r) != 1 || r[0].Status != "completed" || *r[0].Tenant != "acme" {
			m.Errorf("%+v", r)
		}
		m.scanned("web", "level-2", alice)
		page := m.call("GET", "/api/compliance/results?limit=1", alice, nil).Want(200)
		if r := contracttest.As[[]vmapi.ComplianceResult](page); len(r) != 1 || r[0].ProfileId != "level-2" || page.Header.Get("Link") == "" {
			m.Errorf("%+v", r)
		}
		for _, path := range []string{"/api/compliance/results", "/api/compliance/results?vm=web", "/api/compliance/results?tenant=acme"} {
			if a := m.call("GET", path, bert, nil).Want(200); a.Body != "[]\n" && a.Body != "[]" {
				m.Error(a.Body)
			}
		}
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
		if a := m.call("GET", "/api/compliance/results", alice, nil).Want(200); strings.Contains(a.Body, "web") {
			m.Error(a.Body)
		}
	})
}

func TestAScanThatIsCancelledOrLosesItsVMFailsAndAnotherCanBegin(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.daemon.Guest(hardened().run)
	m.running("web", m.admin)
	release := m.daemon.Hold("Exec")
	scan := contracttest.As[vmapi.ComplianceScan](
		m.call("POST", "/api/compliance/scan/web", m.admin, object{"profile_id": "level-1"}).Want(202))
	m.eventually("it has begun", func() bool { return len(m.daemon.Calls("Exec")) > 0 })
	m.call("POST", "/api/jobs/"+scan.JobId+"/cancel", m.admin, nil).Want(200)
	m.call("GET", "/api/jobs/"+scan.JobId+"?wait=60", m.admin, nil).Want(200)
	release()
	r := contracttest.As[[]vmapi.ComplianceResult](m.call("GET", "/api/compliance/results", m.admin, nil).Want(200))[0]
	if r.Status != "failed" || r.Error != "the job was cancelled" || len(r.Checks) != 0 {
		t.Errorf("%+v", r)
	}
	m.scanned("web", "level-1", m.admin)
	// An agent that never answers ends the questions, and not the scan.
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "Exec" {
			return &drivertest.Fault{Status: 504, Body: `{"error":"the guest's agent did not answer in time","code":"agent_silent","request_id":"r"}`}
		}
		return nil
	})
	asked := len(m.daemon.Calls("Exec"))
	if r, _ := m.scanned("web", "level-1", m.admin); r.Status != "completed" || r.Skipped < 15 || len(m.daemon.Calls("Exec"))-asked != 2 {
		t.Errorf("%+v", r)
	}
}
