package vm_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

func TestAVMIsRecordedAtOnceAndMadeByAJob(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		release := m.daemon.Hold("CreateVM")
		v := contracttest.As[vmapi.VM](m.call("POST", "/api/vms", m.admin, object{
			"name": "web", "image": "demo", "cpus": 2, "memory": 1024, "tags": []string{"prod"}, "tenant": "acme",
		}).Want(201))
		if v.State != "stopped" || v.Provisioned || v.Job == nil || v.Job.Kind != "vm.provision" || v.Labels["tenant"] != "acme" {
			t.Errorf("%+v\n%s", v, m.call("GET", "/api/jobs", m.admin, nil).Body)
		}
		release()
		if v = m.settled("web", m.admin); !v.Provisioned || v.Disk != 2 || v.LastError != "" {
			t.Errorf("%+v", v)
		}
		below := m.daemon.VMs()
		if len(below) != 1 || below[0].Labels[driver.Label] != v.Id || below[0].Tenant != "acme" || below[0].Vcpus != 2 {
			t.Errorf("%+v", below)
		}
		if calls := m.daemon.Calls("CreateVM"); len(calls) != 1 || calls[0].Tenant != "acme" || calls[0].Actor != adminName {
			t.Errorf("the daemon was asked as %+v", calls)
		}
	})
}

func TestAFailureToMakeAVMIsInLastErrorAndTheNextStartTriesAgain(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "CreateVM" {
			return &drivertest.Fault{Status: 507}
		}
		return nil
	})
	if v := m.made("web", m.admin); v.Provisioned || v.State != "stopped" || v.LastError != "it does not work" {
		t.Errorf("%+v", v)
	}
	m.daemon.Fail(nil)
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	if v := m.settled("web", m.admin); !v.Provisioned || v.State != "running" || v.LastError != "" {
		t.Errorf("%+v", v)
	}
}

func TestAStartDuringTheMakingFollowsIt(t *testing.T) {
	t.Parallel()
	m := start(t)
	release := m.daemon.Hold("CreateVM")
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "demo"}).Want(201)
	if a := m.call("POST", "/api/vms/web/start", m.admin, object{}).Want(202); !strings.Contains(a.Body, `"starting"`) {
		t.Error(a.Body)
	}
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(409)
	release()
	if v := m.settled("web", m.admin); v.State != "running" || v.Started == nil {
		t.Errorf("%+v", v)
	}
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(409)
}

func TestOptionsOfAStartAreCheckedAndForAdminsOnly(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	alice := m.user("alice", "admin", "acme")
	m.made("own", alice)
	for _, c := range []struct {
		token, name string
		body        object
		field       string
	}{
		{m.admin, "web", object{"network_tap": "tap0"}, "network_tap"},
		{m.admin, "web", object{"bind_mounts": []object{{"source": "x", "destination": "/x"}}}, "bind_mounts.0.source"},
		{m.admin, "web", object{"bind_mounts": []object{{"source": "/a/../b", "destination": "/x"}}}, "bind_mounts.0.source"},
		{m.admin, "web", object{"bind_mounts": []object{{"source": "/a", "destination": "/"}}}, "bind_mounts.0.destination"},
		{m.admin, "web", object{"bind_mounts": []object{{"source": "/a", "destination": "/x\n"}}}, "bind_mounts.0.destination"},
		{m.admin, "web", object{"bind_mounts": []object{{"source": "/a", "destination": "/x"}, {"source": "/b", "destination": "/x"}}},
			"bind_mounts.1.destination"},
		{alice, "own", object{"bind_mounts": []object{{"source": "/a", "destination": "/x"}}}, "bind_mounts"},
		{m.admin, "web", object{"initrd": "/i"}, "initrd"},
		{m.admin, "web", object{"extra_args": []string{"a\nb"}}, "extra_args"},
		{m.admin, "web", object{"linux": 7}, "linux"},
		{alice, "own", object{"linux": "/boot/vmlinuz"}, "linux"},
		{alice, "own", object{"firmware": "/f"}, "firmware"},
		{alice, "own", object{"extra_args": []string{"-rtc"}}, "extra_args"},
	} {
		if a := m.call("POST", "/api/vms/"+c.name+"/start", c.token, c.body).Want(400); !strings.Contains(a.Body, c.field) {
			t.Errorf("%v: %s", c.body, a.Body)
		}
	}
	if v := m.vm("web", m.admin); v.State != "stopped" || v.Job != nil {
		t.Errorf("a refused start changed it: %+v", v)
	}
	m.call("POST", "/api/vms/web/start", m.admin, object{"linux": "/boot/vmlinuz", "extra_args": []string{"-rtc", "base=utc"}}).Want(202)
	if v := m.settled("web", m.admin); v.State != "running" {
		t.Errorf("%+v", v)
	}
}

func TestFoldersOfTheHostAreMountedOnceTheGuestHasBooted(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	var mu sync.Mutex
	var ran []string
	code := 0
	m.daemon.Guest(func(_ string, argv []string) *hypervisorapi.ExecOutcome {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, strings.Join(argv, " "))
		return &hypervisorapi.ExecOutcome{ExitCode: code, Stderr: "no such device"}
	})
	options := object{"bind_mounts": []object{
		{"source": "/srv/a", "destination": "/a"}, {"source": "/srv/b", "destination": "/b", "read_only": true},
	}}
	m.call("POST", "/api/vms/web/start", m.admin, options).Want(202)
	if v := m.settled("web", m.admin); v.State != "running" || v.LastError != "" {
		t.Errorf("%+v", v)
	}
	const usual = "mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072"
	want := "mkdir -p -- /a; " + usual + " mainstay-0 /a; mkdir -p -- /b; " + usual + ",ro mainstay-1 /b"
	if got := strings.Join(ran, "; "); got != want {
		t.Errorf("the guest ran %s", got)
	}
	m.call("POST", "/api/vms/web/stop", m.admin, nil).Want(200)
	code = 1
	m.call("POST", "/api/vms/web/start", m.admin, options).Want(202)
	if v := m.settled("web", m.admin); v.State != "running" {
		t.Errorf("%+v", v)
	}
	events := m.call("GET", "/api/vms/web/events", m.admin, nil).Want(200).Body
	if !strings.Contains(events, "the VM runs, and /srv/a was not mounted at /a: no such device") {
		t.Errorf("%s", events)
	}
}

// A start may wait for the guest's agent for minutes. Who switches the VM off does not.
func TestAVMIsSwitchedOffWhileItsStartWaits(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.daemon.Guest(func(string, []string) *hypervisorapi.ExecOutcome { return &hypervisorapi.ExecOutcome{} })
	for _, operation := range []string{"PingAgent", "StartVM"} {
		release := m.daemon.Hold(operation)
		began := len(m.daemon.Calls(operation))
		m.call("POST", "/api/vms/web/start", m.admin, object{"bind_mounts": []object{{"source": "/srv/a", "destination": "/a"}}}).Want(202)
		m.eventually("the start waits", func() bool { return len(m.daemon.Calls(operation)) > began })
		job := m.vm("web", m.admin).Job
		m.call("POST", "/api/vms/web/stop", m.admin, object{"force": true}).Want(200)
		v := m.vm("web", m.admin)
		if v.State != "stopped" || v.Job != nil || job == nil {
			t.Fatalf("%s: %+v", operation, v)
		}
		ended := contracttest.As[vmapi.Job](m.call("GET", "/api/jobs/"+job.Id, m.admin, nil).Want(200))
		if ended.Status != vmapi.JobStatusCancelled {
			t.Errorf("%+v", ended)
		}
		release()
	}
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	if v := m.settled("web", m.admin); v.State != "running" || v.LastError != "" {
		t.Errorf("%+v", v)
	}
}

func TestTheVerbsMoveAVMAndAreIdempotentWhereTheyCanBe(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.call("POST", "/api/vms/web/stop", m.admin, nil).Want(200) // it is stopped already
	m.call("POST", "/api/vms/web/pause", m.admin, nil).Want(409)
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	for _, step := range []struct{ verb, status, state string }{
		{"pause", "paused", "paused"}, {"pause", "paused", "paused"}, {"resume", "running", "running"},
		{"resume", "running", "running"}, {"restart", "restarted", "running"}, {"stop", "stopped", "stopped"}, {"stop", "stopped", "stopped"},
	} {
		a := m.call("POST", "/api/vms/web/"+step.verb, m.admin, nil).Want(200)
		if v := m.vm("web", m.admin); !strings.Contains(a.Body, `"`+step.status+`"`) || string(v.State) != step.state {
			t.Errorf("%s: %s, then %s", step.verb, a.Body, v.State)
		}
	}
	m.call("POST", "/api/vms/none/stop", m.admin, nil).Want(404)
}

func TestAJobThatChangesAVMIsNamedByARefusal(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	release := m.daemon.Hold("StartVM")
	defer release()
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	v := m.vm("web", m.admin)
	a := m.call("POST", "/api/vms/web/snapshots", m.admin, object{"name": "s"}).Want(409)
	if v.Job == nil || !strings.Contains(a.Body, v.Job.Id) || !strings.Contains(a.Body, "vm.start") {
		t.Errorf("%+v: %s", v.Job, a.Body)
	}
}

func TestADeletedVMIsGoneAtOnceAndRemovedFromTheDaemonWhenThatAnswers(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		first := m.made("web", m.admin)
		m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
			if c.Operation == "DeleteVM" {
				return &drivertest.Fault{}
			}
			return nil
		})
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
		m.call("GET", "/api/vms/web", m.admin, nil).Want(404)
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(404)
		m.eventually("the daemon was asked", func() bool { return len(m.daemon.Calls("DeleteVM")) > 0 })
		m.again() // the removal survives
		m.daemon.Fail(nil)
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(404)
		second := m.call("POST", "/api/vms", m.admin, object{"name": "other", "image": "demo"}).Want(201)
		m.call("DELETE", "/api/vms/other", m.admin, nil).Want(204) // nudges the sweep
		m.eventually("both are gone", func() bool { return len(m.daemon.VMs()) == 0 })
		if strings.Contains(second.Body, first.Id) {
			t.Error("an id was used twice")
		}
	})
}

func TestADeletionDuringTheMakingLeavesNothing(t *testing.T) {
	t.Parallel()
	m := start(t)
	release := m.daemon.Hold("CreateVM")
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "demo"}).Want(201)
	m.eventually("the daemon is asked", func() bool { return len(m.daemon.Calls("CreateVM")) > 0 })
	m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
	release()
	m.call("POST", "/api/vms", m.admin, object{"name": "x", "image": "demo"}).Want(201)
	m.settled("x", m.admin)
	m.eventually("only the other VM is there", func() bool {
		all := m.daemon.VMs()
		return len(all) == 1 && all[0].Name == "x"
	})
}

func TestAProtectedVMIsNotDeleted(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.call("PATCH", "/api/vms/web", m.admin, object{"protected": true}).Want(200)
	m.call("DELETE", "/api/vms/web", m.admin, nil).Want(409)
	m.call("PATCH", "/api/vms/web", m.admin, object{"protected": false}).Want(200)
	m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
}

func TestTheDaemonsAnswerThatWasLostDoesNotMakeASecondVM(t *testing.T) {
	t.Parallel()
	m := start(t)
	asked := 0
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation != "CreateVM" {
			return nil
		}
		asked++
		return &drivertest.Fault{Status: 503, After: true} // it was made, but nobody learns that
	})
	v := m.made("web", m.admin)
	m.daemon.Fail(nil)
	if all := m.daemon.VMs(); !v.Provisioned || v.LastError != "" || len(all) != 1 || asked != 1 {
		t.Errorf("%+v: %d VMs, asked %d times", v, len(all), asked)
	}
}

func TestAVMIsMadeWhenTheDaemonIsBackSoon(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.daemon.Fail(func(drivertest.Call) *drivertest.Fault { return &drivertest.Fault{} })
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "demo"}).Want(201)
	m.eventually("the daemon was asked", func() bool { return len(m.daemon.Calls("ListVMs")) > 0 })
	m.daemon.Fail(nil)
	if v := m.settled("web", m.admin); !v.Provisioned || v.LastError != "" {
		t.Errorf("%+v", v)
	}
}

func TestWhatHappensBelowIsSeen(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	m.settled("web", m.admin)
	m.daemon.Change("web", func(vm *hypervisorapi.VM) { vm.State, vm.LastError = "failed", "the guest died" })
	m.eventually("it has failed", func() bool {
		v := m.vm("web", m.admin)
		return v.State == "failed" && v.LastError == "the guest died"
	})
	kept := m.daemon.Forget("web")
	m.eventually("it is missing, not dropped", func() bool { return m.vm("web", m.admin).State == "missing" })
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(409)
	if a := m.call("GET", "/api/vms/web/metrics", m.admin, nil).Want(200); !strings.Contains(a.Body, `"memory_usage":0`) {
		t.Error(a.Body)
	}
	kept.State, kept.LastError = "stopped", ""
	kept.Generation += 5
	m.daemon.Remember(kept)
	m.eventually("it is back", func() bool {
		v := m.vm("web", m.admin)
		return v.State == "stopped" && v.LastError == ""
	})
	m.daemon.Fail(func(drivertest.Call) *drivertest.Fault { return &drivertest.Fault{} })
	m.eventually("it is unreachable, with its last state", func() bool {
		v := m.vm("web", m.admin)
		return v.State == "stopped" && v.Unreachable
	})
	m.call("GET", "/readyz", "", nil).Want(503)
	m.daemon.Fail(nil)
	m.eventually("it is reachable again", func() bool { return !m.vm("web", m.admin).Unreachable })
}

func TestEventsOfTheDaemonAreSeenWithoutAComparison(t *testing.T) {
	t.Parallel()
	m := start(t, func(c *vm.Config) { c.CompareInterval = time.Hour })
	m.made("web", m.admin)
	m.eventually("the stream has begun", func() bool {
		m.daemon.Change("web", func(vm *hypervisorapi.VM) { vm.State = "running" })
		return m.vm("web", m.admin).State == "running"
	})
	m.daemon.Change("web", func(vm *hypervisorapi.VM) { vm.State = "paused" })
	m.eventually("it is paused", func() bool { return m.vm("web", m.admin).State == "paused" })
	m.daemon.Forget("web")
	m.eventually("it is missing", func() bool { return m.vm("web", m.admin).State == "missing" })
}

func TestClones(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	m.call("POST", "/api/vms/web/clone", m.admin, object{"target_name": "web"}).Want(400)
	m.call("POST", "/api/vms/none/clone", m.admin, object{"target_name": "x"}).Want(404)
	m.call("POST", "/api/vms/web/clone", m.admin, object{"target_name": "web-2"}).Want(201)
	m.call("POST", "/api/vms/web/clone", m.admin, object{"target_name": "web-2"}).Want(409)
	m.settled("web-2", m.admin)
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	m.settled("web", m.admin)
	m.call("POST", "/api/vms/web/clone", m.admin, object{"target_name": "web-3", "linked_clone": true}).Want(409)
	m.call("POST", "/api/vms/web-2/start", m.admin, nil).Want(202)
	if v := m.settled("web-2", m.admin); v.State != "running" {
		t.Errorf("%+v", v)
	}
	if len(m.daemon.VMs()) != 2 {
		t.Errorf("%d VMs", len(m.daemon.VMs()))
	}
}

func TestPortsOfTheHostLeadIntoOneVMOnly(t *testing.T) {
	t.Parallel()
	m := start(t)
	forwards := []object{{"host_port": 30080, "guest_port": 80}}
	m.call("POST", "/api/vms", m.admin, object{
		"name": "x", "image": "demo", "network": object{"mode": "none", "forwards": forwards},
	}).Want(400)
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "demo", "network": object{"forwards": forwards}}).Want(201)
	web := m.settled("web", m.admin)
	if f := *web.Network.Forwards; len(f) != 1 || *f[0].Protocol != "tcp" || *f[0].HostAddress != "127.0.0.1" || f[0].HostPort != 30080 {
		t.Errorf("%+v", f)
	}
	if f := *m.daemon.VMs()[0].Network.Forwards; len(f) != 1 || f[0].HostPort != 30080 || f[0].GuestPort != 80 {
		t.Errorf("%+v", f)
	}
	m.call("POST", "/api/vms/web/clone", m.admin, object{"target_name": "copy"}).Want(201)
	if v := m.settled("copy", m.admin); v.Network.Forwards != nil {
		t.Errorf("a clone has %+v", *v.Network.Forwards)
	}
}

func TestListsArePagedCountedAndFiltered(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		for i := range 5 {
			spec := object{"name": fmt.Sprintf("vm-%d", i), "image": "demo", "tags": []string{fmt.Sprintf("n%d", i%2)}}
			if i == 4 {
				spec["tenant"] = "acme"
			}
			m.call("POST", "/api/vms", m.admin, spec).Want(201)
		}
		list := func(query string) vmapi.VMList {
			t.Helper()
			return contracttest.As[vmapi.VMList](m.call("GET", "/api/vms?"+query, m.admin, nil).Want(200))
		}
		for query, want := range map[string]string{
			"":                            "vm-0 vm-1 vm-2 vm-3 vm-4 of 5",
			"offset=1&limit=2":            "vm-1 vm-2 of 5",
			"offset=9":                    " of 5",
			"limit=5000&sort=-name":       "vm-4 vm-3 vm-2 vm-1 vm-0 of 5",
			"tag=n1":                      "vm-1 vm-3 of 2",
			"tenant=acme":                 "vm-4 of 1",
			"q=VM-3":                      "vm-3 of 1",
			"state=running":               " of 0",
			"sort=created&limit=1":        "vm-0 of 5",
			"q=tenant%3Dacme":             "vm-4 of 1",
			"sort=state&tag=n0":           "vm-0 vm-2 vm-4 of 3",
			"node=a":                      " of 0",
			"tenant=tenant&state=running": " of 0",
		} {
			got := list(query)
			var names []string
			for _, v := range got.Items {
				names = append(names, v.Name)
			}
			if text := fmt.Sprintf("%s of %d", strings.Join(names, " "), got.Total); text != want {
				t.Errorf("%s: %s, want %s", query, text, want)
			}
		}
		if got := list("limit=5000"); got.Limit != 1000 {
			t.Errorf("limit %d", got.Limit)
		}
		for _, query := range []string{"limit=0", "limit=-1", "offset=-1", "offset=x", "sort=cpus", "state=odd"} {
			m.call("GET", "/api/vms?"+query, m.admin, nil).Want(http.StatusBadRequest)
		}
	})
}

func TestHostileNamesAndNumbersAreRefusedByTheFieldTheyStandIn(t *testing.T) {
	t.Parallel()
	m := start(t)
	for _, c := range []struct {
		body  any
		field string
	}{
		{object{"image": "demo"}, "name"},
		{object{"name": "", "image": "demo"}, "name"},
		{object{"name": "-x", "image": "demo"}, "name"},
		{object{"name": "a b", "image": "demo"}, "name"},
		{object{"name": "../x", "image": "demo"}, "name"},
		{object{"name": strings.Repeat("x", 64), "image": "demo"}, "name"},
		{object{"name": "x\u0000", "image": "demo"}, "name"},
		{object{"name": "x", "image": "demo", "description": "a\u0000"}, "description: holds NUL"},
		{object{"name": "x", "image": "demo", "tenant": "acme", "labels": object{"tenant": "beta"}}, "tenant: is another one"},
		{object{"name": "x", "image": "demo", "cpus": 0}, "cpus"},
		{object{"name": "x", "image": "demo", "cpus": 1e9}, "cpus"},
		{object{"name": "x", "image": "demo", "memory": -1}, "memory"},
		{object{"name": "x", "image": "demo", "memory": "1"}, "memory"},
		{object{"name": "x", "image": "demo", "disk": 1e18}, "disk"},
		{object{"name": "x", "image": ""}, "image"},
		{object{"name": "x", "image": "de\nmo"}, "image"},
		{object{"name": "x", "image": "demo", "tenant": "a/b"}, "tenant"},
		{object{"name": "x", "image": "demo", "labels": object{"a": "b\n"}}, "labels"},
		{object{"name": "x", "image": "demo", "tags": []string{" "}}, "tags"},
		{object{"name": "x", "image": "demo", "labels": object{"tenant": "a\u0000"}}, "labels"},
	} {
		if a := m.call("POST", "/api/vms", m.admin, c.body).Want(400); !strings.Contains(a.Body, c.field) {
			t.Errorf("%v: %s", c.body, a.Body)
		}
	}
	if got := m.call("GET", "/api/vms", m.admin, nil).Want(200); !strings.Contains(got.Body, `"total":0`) {
		t.Error(got.Body)
	}
}
