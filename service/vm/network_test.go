package vm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// bridged creates a VM on a bridge, and waits until no job changes it.
func (m *manager) bridged(name, token string, labels object) vmapi.VM {
	m.Helper()
	m.call("POST", "/api/vms", token, object{
		"name": name, "image": "demo", "labels": labels, "network": object{"mode": "bridge"},
	}).Want(201)
	return m.settled(name, token)
}

// started starts a VM.
func (m *manager) started(name, token string) vmapi.VM {
	m.Helper()
	m.call("POST", "/api/vms/"+name+"/start", token, nil).Want(202)
	v := m.settled(name, token)
	if v.State != "running" || len(v.Ips) != 1 {
		m.Fatalf("%s does not run: %+v", name, v)
	}
	return v
}

// cnp returns a network policy.
func cnp(name string, spec object) object {
	return object{"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": object{"name": name}, "spec": spec}
}

func selects(pairs ...string) object {
	labels := object{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return object{"matchLabels": labels}
}

// allowFrom is the spec of a policy that lets VMs reach VMs with the label role=ROLE.
func allowFrom(role, peer string) object {
	return object{"endpointSelector": selects("role", role), "ingress": []object{{"fromEndpoints": []object{selects("role", peer)}}}}
}

func (m *manager) status(name, token string) vmapi.DataplaneStatus {
	m.Helper()
	return contracttest.As[vmapi.DataplaneStatus](m.call("GET", "/api/vms/"+name+"/dataplane/status", token, nil).Want(200))
}

// enforced returns the ingress that the daemon has of a VM, in short.
func (m *manager) enforced(name string) string {
	m.Helper()
	p := m.daemon.Policy(name)
	if p == nil {
		return "none"
	}
	out := string(p.Ingress.Default)
	for _, r := range p.Ingress.Rules {
		out += " " + r.Name + "=" + string(r.Action)
		if r.Peers == nil {
			out += ":all"
			continue
		}
		for _, peer := range *r.Peers {
			out += ":" + *peer.Cidr
		}
	}
	return out
}

func TestAPolicyOfAVMIsAppliedAtOnceAndSurvives(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.bridged("web", m.admin, object{})
		if s := m.status("web", m.admin); s.Status != "none" || s.Policy != nil || s.SchemaVersion != 1 {
			t.Errorf("%+v", s)
		}
		if len(m.daemon.Calls("PutNetworkPolicy")) > 0 {
			t.Error("the daemon is told of no policy")
		}
		policy := object{"ingress": object{"rules": []object{{"cidr": "10.0.0.0/8", "protocol": "tcp", "ports": []object{{"port": 22}}}}}, "egress": object{"default": "deny"}}
		p := contracttest.As[vmapi.VMPolicy](m.call("POST", "/api/vms/web/dataplane/policy", m.admin, policy).Want(200))
		if p.Status != "applied" || m.enforced("web") != "deny vm/ingress/0=allow:10.0.0.0/8" || m.daemon.Policy("web").Egress.Default != "deny" {
			t.Errorf("%+v: %s", p, m.enforced("web"))
		}
		m.again()
		if s := m.status("web", m.admin); s.Status != "applied" || s.Mode != "enforced" || s.Policy == nil || s.Revision != 1 || s.Attached {
			t.Errorf("%+v", s)
		}
		m.started("web", m.admin)
		if s := m.status("web", m.admin); !s.Attached {
			t.Errorf("%+v", s)
		}
		m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{}).Want(200)
		m.eventually("the policy is gone", func() bool { return m.enforced("web") == "none" && m.status("web", m.admin).Status == "none" })
	})
}

func TestAVMDoesNotStartBeforeTheDaemonHasItsPolicy(t *testing.T) {
	t.Parallel()
	m := start(t, func(c *vm.Config) { c.CompareInterval = time.Hour })
	m.bridged("web", m.admin, object{})
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "PutNetworkPolicy" {
			return &drivertest.Fault{Status: 400}
		}
		return nil
	})
	p := contracttest.As[vmapi.VMPolicy](m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"ingress": object{"default": "deny"}}).Want(200))
	if p.Status != "failed" || !strings.Contains(p.Reason, "it does not work") {
		t.Errorf("%+v", p)
	}
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	if v := m.settled("web", m.admin); v.State != "stopped" && v.State != "failed" || !strings.Contains(v.LastError, "network policy") {
		t.Errorf("%+v", v)
	}
	if n := len(m.daemon.Calls("StartVM")); n != 0 {
		t.Errorf("the daemon was asked %d times to start it", n)
	}
	if h := contracttest.As[vmapi.DataplaneHealth](m.call("GET", "/api/dataplane/health", m.admin, nil).Want(200)); h.Status != "degraded" || h.Vms.Failed != 1 || h.Problems[0].Vm != "web" {
		t.Errorf("%+v", h)
	}
	m.daemon.Fail(nil)
	m.started("web", m.admin)
	if m.enforced("web") != "deny" {
		t.Error(m.enforced("web"))
	}
}

func TestAVMThatIsCreatedUnderAPolicyNeverRunsWithoutIt(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.call("POST", "/api/dataplane/cnp", m.admin, cnp("closed", object{"endpointSelector": object{}, "ingress": []object{{}}})).Want(201)
	var mu sync.Mutex
	seen := ""
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch c.Operation {
		case "PutNetworkPolicy", "StartVM":
			seen += c.Operation + " "
		}
		return nil
	})
	m.call("POST", "/api/vms", m.admin, object{"name": "web", "image": "demo", "network": object{"mode": "bridge"}}).Want(201)
	m.call("POST", "/api/vms/web/start", m.admin, nil).Want(202)
	if v := m.settled("web", m.admin); v.State != "running" {
		t.Errorf("%+v", v)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.HasPrefix(seen, "PutNetworkPolicy ") || m.enforced("web") != "deny" {
		t.Errorf("%s, then %s", seen, m.enforced("web"))
	}
}

func TestSelectorsFollowLabelsAddressesAndDeletions(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.bridged("db", m.admin, object{"role": "db"})
		m.bridged("web", m.admin, object{"role": "web"})
		m.started("db", m.admin)
		m.call("POST", "/api/dataplane/cnp", m.admin, cnp("db", allowFrom("db", "web"))).Want(201)
		m.eventually("nobody has an address yet", func() bool { return m.enforced("db") == "deny" })
		v := m.started("web", m.admin)
		want := "deny cnp/all:db/ingress/0=allow:" + v.Ips[0] + "/32"
		m.eventually("the address is allowed", func() bool { return m.enforced("db") == want })
		if m.enforced("web") != "none" {
			t.Error(m.enforced("web"))
		}
		m.call("PATCH", "/api/vms/web", m.admin, object{"labels": object{"role": "other"}}).Want(200)
		m.eventually("another label, another identity", func() bool { return m.enforced("db") == "deny" })
		m.call("PATCH", "/api/vms/web", m.admin, object{"labels": object{"role": "web"}}).Want(200)
		m.eventually("it is allowed again", func() bool { return m.enforced("db") == want })
		m.daemon.Change("web", func(vm *hypervisorapi.VM) { vm.Ips = []string{"10.87.9.9"} })
		m.eventually("the new address is allowed", func() bool {
			return m.enforced("db") == "deny cnp/all:db/ingress/0=allow:10.87.9.9/32"
		})
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
		m.eventually("a VM that is gone is allowed nothing", func() bool { return m.enforced("db") == "deny" })
		m.call("DELETE", "/api/dataplane/cnp/db", m.admin, nil).Want(204)
		m.eventually("without the policy, there is none", func() bool { return m.enforced("db") == "none" })
	})
}

func TestWhatSomebodyChangesAtTheDaemonIsPutRight(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.bridged("web", m.admin, object{})
	m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"ingress": object{"default": "deny"}}).Want(200)
	m.daemon.SetPolicy("web", &hypervisorapi.NetworkPolicy{
		Ingress: hypervisorapi.PolicyDirection{Default: "allow", Rules: []hypervisorapi.PolicyRule{}},
		Egress:  hypervisorapi.PolicyDirection{Default: "allow", Rules: []hypervisorapi.PolicyRule{}},
	})
	m.eventually("it is put right", func() bool { return m.enforced("web") == "deny" })
	m.daemon.SetPolicy("web", nil)
	m.eventually("it is put right again", func() bool { return m.enforced("web") == "deny" })
	m.eventually("it is told so", func() bool { return m.status("web", m.admin).Status == "applied" })
	n := len(m.daemon.Calls("PutNetworkPolicy"))
	m.call("PATCH", "/api/vms/web", m.admin, object{"description": "no matter"}).Want(200)
	asked := len(m.daemon.Calls("GetNetworkPolicy"))
	m.eventually("it is compared", func() bool { return len(m.daemon.Calls("GetNetworkPolicy")) > asked+2 })
	if got := len(m.daemon.Calls("PutNetworkPolicy")); got != n {
		t.Errorf("the same policy was sent %d more times", got-n)
	}
}

func TestAComparisonThatBeganBeforeAChangeDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	m := start(t, func(c *vm.Config) { c.CompareInterval = time.Hour })
	const others = 8 // as many as are compared at once
	for i := range others + 1 {
		name := fmt.Sprintf("vm-%d", i)
		m.bridged(name, m.admin, object{})
		m.call("POST", "/api/vms/"+name+"/dataplane/policy", m.admin, object{"ingress": object{"default": "deny"}}).Want(200)
	}
	last := ""
	for _, vm := range m.daemon.VMs() {
		if vm.Name == "vm-8" {
			last = vm.Id
		}
	}
	release, held := make(chan struct{}), make(chan struct{}, others)
	m.daemon.Fail(func(c drivertest.Call) *drivertest.Fault {
		if c.Operation == "GetNetworkPolicy" && !strings.Contains(c.Path, last) {
			held <- struct{}{}
			<-release
		}
		return nil
	})
	m.again() // compares everything
	for range others {
		<-held
	}
	asked := func() (n int) {
		for _, c := range m.daemon.Calls("GetNetworkPolicy") {
			if strings.Contains(c.Path, last) {
				n++
			}
		}
		return n
	}
	p := contracttest.As[vmapi.VMPolicy](m.call("POST", "/api/vms/vm-8/dataplane/policy", m.admin, object{"ingress": object{"rules": []object{{"cidr": "10.0.0.0/8"}}}}).Want(200))
	before, sent := asked(), len(m.daemon.Calls("PutNetworkPolicy"))
	close(release)
	m.eventually("the last one is compared", func() bool { return asked() > before })
	m.daemon.Fail(nil)
	m.again() // when the comparison has ended
	if got := m.enforced("vm-8"); p.Status != "applied" || got != "deny vm/ingress/0=allow:10.0.0.0/8" {
		t.Errorf("%s, then the daemon has %s", p.Status, got)
	}
	for _, c := range m.daemon.Calls("PutNetworkPolicy")[sent:] {
		t.Errorf("a policy was sent again: %+v (the last is %s)", c, last)
	}
}

func TestWhileTheDaemonIsAwayAPolicyIsPendingAndNothingIsClaimed(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.bridged("web", m.admin, object{})
	m.daemon.Fail(func(drivertest.Call) *drivertest.Fault { return &drivertest.Fault{} })
	p := contracttest.As[vmapi.VMPolicy](m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"ingress": object{"default": "deny"}}).Want(200))
	if p.Status != "pending" || p.Ingress.Default == nil {
		t.Errorf("%+v", p)
	}
	if s := m.status("web", m.admin); s.Status != "pending" || s.Mode != "unknown" || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	m.again() // what was acknowledged survives
	m.daemon.Fail(nil)
	m.eventually("it is applied", func() bool { return m.enforced("web") == "deny" && m.status("web", m.admin).Status == "applied" })
}

func TestANetworkThatCannotBeControlledIsCalledUnsupported(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin) // in a network of its own
	p := contracttest.As[vmapi.VMPolicy](m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"ingress": object{"default": "deny"}}).Want(200))
	if s := m.status("web", m.admin); p.Status != "unsupported" || s.Status != "unsupported" || s.Mode != "unsupported" {
		t.Errorf("%+v, %+v", p, s)
	}
}

func TestAGroupThatIsRemovedAndGivenAtOnceIsEitherThereOrNotGiven(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.bridged("web", m.admin, object{})
		for range 5 {
			m.call("POST", "/api/dataplane/groups", m.admin, object{"name": "g"}).Want(201)
			var work sync.WaitGroup
			var given, removed int
			work.Go(func() {
				given = m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"groups": []string{"g"}}).Status
			})
			work.Go(func() { removed = m.call("DELETE", "/api/dataplane/groups/g", m.admin, nil).Status })
			work.Wait()
			if both := fmt.Sprint(given, " ", removed); both != "200 409" && both != "400 204" {
				m.Errorf("given and removed: %s", both)
			}
			m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{}).Want(200)
		}
	})
}

func TestARefusalOfANetworkPolicyNamesThePathAndChangesNothing(t *testing.T) {
	t.Parallel()
	m := start(t)
	ada := m.user("ada", "admin", "acme")
	m.call("POST", "/api/dataplane/cnp", ada, cnp("p", allowFrom("db", "web"))).Want(201)
	a := m.call("POST", "/api/dataplane/cnp", ada, cnp("p", object{"endpointSelector": object{}, "ingress": []object{
		{"toPorts": []object{{"ports": []object{{"port": "80"}}, "rules": object{"http": []object{{}}}}}},
	}})).Want(400)
	if !strings.Contains(a.Body, "spec.ingress[0].toPorts[0].rules: not supported") {
		t.Error(a.Body)
	}
	if a := m.call("GET", "/api/dataplane/cnp/p", ada, nil).Want(200); !strings.Contains(a.Body, "fromEndpoints") {
		t.Error(a.Body)
	}
	for _, body := range []any{"[]", object{}, object{"apiVersion": "v1", "kind": "x", "metadata": object{}}, cnp("UPPER", object{"endpointSelector": object{}})} {
		m.call("POST", "/api/dataplane/cnp", ada, body).Want(400)
	}
}

func TestADaemonWithoutRulesForNamesHasTheOthersAndThatIsSaid(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.daemon.Nameless()
	m.bridged("web", m.admin, object{})
	m.call("POST", "/api/dataplane/cnp", m.admin, cnp("out", object{"endpointSelector": object{}, "egress": []object{
		{"toFQDNs": []object{{"matchName": "example.com"}}}, {"toCIDR": []string{"10.0.0.0/8"}},
	}})).Want(201)
	m.started("web", m.admin)
	p := m.daemon.Policy("web")
	if p == nil || p.Egress.Default != "deny" || len(p.Egress.Rules) != 1 || p.Egress.Rules[0].Name != "cnp/all:out/egress/1" {
		t.Errorf("%+v", p)
	}
	if s := m.status("web", m.admin); s.Status != "failed" || !strings.Contains(s.Reason, "no rules for names") {
		t.Errorf("%+v", s)
	}
	sent, asked := len(m.daemon.Calls("PutNetworkPolicy")), len(m.daemon.Calls("GetNetworkPolicy"))
	m.eventually("it is compared", func() bool { return len(m.daemon.Calls("GetNetworkPolicy")) > asked+2 })
	if got := len(m.daemon.Calls("PutNetworkPolicy")); got != sent {
		t.Errorf("the same policy was sent %d more times", got-sent)
	}
}

func TestSecurityGroupsHoldForTheVMsInThemAndAreNotRemovedWhileUsed(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		ada := m.user("ada", "admin", "acme")
		group := func(name string, rules ...object) {
			t.Helper()
			m.call("POST", "/api/dataplane/groups", ada, object{"name": name, "rules": append([]object{}, rules...)}).Want(201)
		}
		group("web")
		group("db", object{"direction": "ingress", "group": "web", "protocol": "tcp", "ports": []object{{"port": 5432}}})
		m.bridged("db", ada, object{})
		m.bridged("web", ada, object{})
		web := m.started("web", ada)
		m.call("POST", "/api/vms/db/dataplane/policy", ada, object{"groups": []string{"nothing"}}).Want(400)
		m.call("POST", "/api/vms/db/dataplane/policy", ada, object{"groups": []string{"db"}}).Want(200)
		m.call("POST", "/api/vms/web/dataplane/policy", ada, object{"groups": []string{"web"}}).Want(200)
		m.eventually("members are allowed", func() bool { return m.enforced("db") == "deny group/db/0=allow:"+web.Ips[0]+"/32" })
		for name, by := range map[string]string{"db": "VM db", "web": "security group db"} {
			if a := m.call("DELETE", "/api/dataplane/groups/"+name, ada, nil).Want(409); !strings.Contains(a.Body, by) {
				t.Error(a.Body)
			}
		}
		group("db", object{"direction": "ingress", "entity": "all"})
		m.eventually("the group is replaced", func() bool { return m.enforced("db") == "deny group/db/0=allow:all" })
		m.call("POST", "/api/vms/web/clone", ada, object{"target_name": "web-2"}).Want(201)
		m.settled("web-2", ada)
		if p := contracttest.As[vmapi.VMPolicy](m.call("GET", "/api/vms/web-2/dataplane/policy", ada, nil).Want(200)); fmt.Sprint(p.Groups) != "[web]" {
			t.Errorf("a clone is in the groups %v", p.Groups)
		}
		m.call("POST", "/api/vms/db/dataplane/policy", ada, object{}).Want(200)
		m.call("DELETE", "/api/dataplane/groups/db", ada, nil).Want(204)
		m.call("GET", "/api/dataplane/groups/db", ada, nil).Want(404)
	})
}

func TestTenantsNeitherSeeNorSelectEachOther(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		ada, bea := m.user("ada", "admin", "acme"), m.user("bea", "admin", "beta")
		m.bridged("db", ada, object{"role": "db"})
		m.bridged("spy", bea, object{"role": "web"})
		m.started("db", ada)
		spy := m.started("spy", bea)
		m.call("POST", "/api/dataplane/cnp", ada, cnp("p", allowFrom("db", "web"))).Want(201)
		m.call("POST", "/api/dataplane/cnp", bea, cnp("p", object{"endpointSelector": selects("role", "db"), "ingress": []object{{"fromEntities": []string{"all"}}}})).Want(201)
		m.call("POST", "/api/dataplane/cnp", bea, cnp("q", object{"endpointSelector": selects("tenant", "acme"), "ingressDeny": []object{{"fromEntities": []string{"all"}}}})).Want(201)
		m.call("POST", "/api/dataplane/groups", bea, object{"name": "g"}).Want(201)
		m.eventually("only its own tenant's policy holds", func() bool { return m.enforced("db") == "deny" })
		// A VM cannot become another tenant's.
		m.call("PATCH", "/api/vms/spy", bea, object{"labels": object{"role": "web", "tenant": "acme"}}).Want(400)
		m.call("POST", "/api/vms", bea, object{"name": "x", "image": "demo", "labels": object{"tenant": "acme"}}).Want(403)
		for _, path := range []string{"status", "effective", "stats", "flows", "policy"} {
			m.call("GET", "/api/vms/db/dataplane/"+path, bea, nil).Want(404)
			m.call("GET", "/api/vms/db/dataplane/"+path+"?tenant=acme", bea, nil).Want(404)
		}
		m.call("POST", "/api/vms/db/dataplane/policy", bea, object{}).Want(404)
		m.call("POST", "/api/dataplane/cnp?tenant=acme", bea, cnp("r", allowFrom("db", "web"))).Want(403)
		m.call("GET", "/api/dataplane/groups/g", ada, nil).Want(404)
		m.call("DELETE", "/api/dataplane/groups/g", ada, nil).Want(404)
		m.call("DELETE", "/api/dataplane/cnp/q", ada, nil).Want(404)
		m.call("POST", "/api/vms/db/dataplane/policy", ada, object{"groups": []string{"g"}}).Want(400)
		peer := hypervisorapi.Flow{Time: time.Now(), Direction: "ingress", Verdict: "denied", Protocol: "tcp", Source: spy.Ips[0], Destination: "10.87.0.2"}
		m.daemon.Flow("db", "spy", peer)
		for _, path := range []string{"/api/dataplane/identities", "/api/dataplane/ipcache", "/api/dataplane/observe", "/api/dataplane/health", "/api/dataplane/cnp", "/api/vms/db/dataplane/effective", "/api/vms/db/dataplane/flows"} {
			a := m.call("GET", path, ada, nil).Want(200)
			if strings.Contains(a.Body, "spy") || strings.Contains(a.Body, "beta") {
				t.Errorf("%s: %s", path, a.Body)
			}
		}
		if a := m.call("GET", "/api/dataplane/observe", bea, nil).Want(200); strings.Contains(a.Body, `"db"`) {
			t.Error(a.Body)
		}
		// What is made for every tenant is seen by all, and changed by an admin of everything alone.
		m.call("POST", "/api/dataplane/cnp", m.admin, cnp("all", object{"endpointSelector": object{}, "ingressDeny": []object{{"fromCIDR": []string{"192.0.2.0/24"}}}, "enableDefaultDeny": object{"ingress": false}})).Want(201)
		m.eventually("it holds for both", func() bool {
			return strings.Contains(m.enforced("db"), "cnp/all:all/ingressDeny/0=deny") && strings.Contains(m.enforced("spy"), "cnp/all:all/ingressDeny/0=deny")
		})
		m.call("GET", "/api/dataplane/cnp/all", ada, nil).Want(200)
		m.call("DELETE", "/api/dataplane/cnp/all", ada, nil).Want(403)
		m.call("GET", "/api/dataplane/cnp/p", m.admin, nil).Want(409)
		m.call("GET", "/api/dataplane/cnp/p?tenant=acme", m.admin, nil).Want(200)
		m.call("DELETE", "/api/dataplane/cnp/all?tenant=*", m.admin, nil).Want(204)
	})
}

func TestAPolicyInWhichAKeyIsGivenTwiceIsRefused(t *testing.T) {
	t.Parallel()
	m := start(t)
	policy := json.RawMessage(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"},` +
		`"spec":{"endpointSelector":{},"ingress":[{"fromEntities":["cluster"],"fromEntities":["all"]}]}}`)
	if a := m.call("POST", "/api/dataplane/cnp", m.admin, policy).Want(400); !strings.Contains(a.Body, "spec.ingress.0.fromEntities: is given twice") {
		t.Error(a.Body)
	}
}

func TestATenantThatIsRevivedGetsNoneOfItsPolicies(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		m.call("POST", "/api/dataplane/groups?tenant=acme", m.admin, object{"name": "g"}).Want(201)
		m.call("POST", "/api/dataplane/cnp?tenant=acme", m.admin, cnp("p", object{"endpointSelector": object{}, "ingress": []object{{}}})).Want(201)
		m.call("DELETE", "/api/tenants/acme", m.admin, nil).Want(204)
		m.call("PUT", "/api/tenants/acme", m.admin, object{"revive": true}).Want(200)
		ada := m.user("ada", "admin", "acme")
		m.call("GET", "/api/dataplane/cnp/p", ada, nil).Want(404)
		m.call("GET", "/api/dataplane/groups/g", ada, nil).Want(404)
		// A VM's name passes on; its policy does not.
		m.bridged("web", ada, object{})
		m.call("POST", "/api/vms/web/dataplane/policy", ada, object{"ingress": object{"default": "deny"}}).Want(200)
		m.call("DELETE", "/api/vms/web", ada, nil).Want(204)
		m.eventually("it is removed", func() bool { return len(m.daemon.VMs()) == 0 })
		m.bridged("web", ada, object{})
		if s := m.status("web", ada); s.Status != "none" {
			t.Errorf("%+v", s)
		}
	})
}

func TestIdentitiesAreNumbersOfLabelsThatAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		ada, bea := m.user("ada", "admin", "acme"), m.user("bea", "admin", "beta")
		number := func(vm, token string) (id int64) {
			for _, i := range contracttest.As[[]vmapi.NetworkIdentity](m.call("GET", "/api/dataplane/identities", token, nil).Want(200)) {
				if strings.Contains(" "+strings.Join(i.Vms, " ")+" ", " "+vm+" ") {
					id = i.Id
				}
			}
			return id
		}
		m.bridged("a", ada, object{"role": "x"})
		m.eventually("it has a number", func() bool { return number("a", ada) == 256 })
		m.bridged("b", ada, object{"role": "x"})
		m.bridged("c", bea, object{"role": "x"})
		m.eventually("tenants do not share one", func() bool { return number("b", ada) == 256 && number("c", bea) == 257 })
		m.call("PATCH", "/api/vms/a", ada, object{"labels": object{"role": "y"}}).Want(200)
		m.eventually("other labels are another one", func() bool { return number("a", ada) == 258 && number("b", ada) == 256 })
		m.call("PATCH", "/api/vms/a", ada, object{"labels": object{"role": "x"}}).Want(200)
		m.eventually("equal labels are the same one", func() bool { return number("a", ada) == 256 })
		m.again()
		m.call("PATCH", "/api/vms/a", ada, object{"labels": object{"role": "y"}}).Want(200)
		m.eventually("a number is not used again", func() bool { return number("a", ada) == 259 })
		m.call("POST", "/api/dataplane/cnp", ada, cnp("net", object{"endpointSelector": object{}, "egress": []object{{"toCIDR": []string{"192.0.2.0/24"}}}})).Want(201)
		v := m.started("a", ada)
		m.eventually("addresses have identities", func() bool {
			got := ""
			for _, e := range contracttest.As[[]vmapi.IPCacheEntry](m.call("GET", "/api/dataplane/ipcache", ada, nil).Want(200)) {
				got += fmt.Sprint(e.Cidr, "=", e.Identity, " ")
			}
			return strings.Contains(got, v.Ips[0]+"/32=259") && strings.Contains(got, "192.0.2.0/24=16777216") && strings.Contains(got, "10.87.0.1/32=1 ") && strings.Contains(got, "0.0.0.0/0=2 ")
		})
	})
}

func TestFlowsCarryNamesAndIdentitiesAndAreFollowed(t *testing.T) {
	t.Parallel()
	m := start(t)
	ada := m.user("ada", "admin", "acme")
	m.bridged("db", ada, object{"role": "db"})
	m.bridged("web", ada, object{"role": "web"})
	web := m.started("web", ada)
	m.started("db", ada)
	m.call("POST", "/api/vms/db/dataplane/policy", ada, object{"ingress": object{"default": "deny"}}).Want(200)
	port := 5432
	at := time.Now()
	m.eventually("identities are known", func() bool {
		known := 0
		for _, i := range contracttest.As[[]vmapi.NetworkIdentity](m.call("GET", "/api/dataplane/identities", ada, nil).Want(200)) {
			known += len(i.Vms)
		}
		return known == 2 && strings.Contains(m.call("GET", "/api/dataplane/ipcache", ada, nil).Want(200).Body, web.Ips[0])
	})
	flow := func(source, verdict string) hypervisorapi.Flow {
		at = at.Add(time.Second)
		return hypervisorapi.Flow{
			Time: at, Direction: "ingress", Verdict: hypervisorapi.FlowVerdict(verdict), Protocol: "tcp", Source: source, Destination: "10.87.0.3", DestinationPort: &port,
		}
	}
	m.daemon.Flow("db", "web", flow(web.Ips[0], "denied"))
	m.daemon.Flow("db", "", flow("198.51.100.7", "denied"))
	flows := contracttest.As[[]vmapi.NetworkFlow](m.call("GET", "/api/vms/db/dataplane/flows", ada, nil).Want(200))
	if len(flows) != 2 || flows[0].Source.Identity != 2 || flows[1].Source.Vm == nil || *flows[1].Source.Vm != "web" || flows[1].Source.Identity < 256 ||
		strings.Join(flows[1].Source.Labels, " ") != "role=web tenant=acme" || *flows[1].Destination.Vm != "db" || *flows[1].Destination.Port != port {
		t.Errorf("%+v", flows)
	}
	if seen := contracttest.As[vmapi.Observed](m.call("GET", "/api/dataplane/observe?limit=1", ada, nil).Want(200)); len(seen.Flows) != 1 || seen.Flows[0].Source.Address != "198.51.100.7" {
		t.Errorf("%+v", seen)
	}
	lines := m.watch("/api/dataplane/observe", ada, "").lines
	m.eventually("the daemon is asked", func() bool { return len(m.daemon.Calls("FollowFlows")) > 0 })
	m.bridged("other", m.admin, object{})
	m.daemon.Flow("other", "", flow("203.0.113.1", "allowed")) // another tenant's
	m.daemon.Flow("db", "", flow("203.0.113.9", "denied"))
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data:") {
	}
	if text := lines.Text(); !strings.Contains(text, "203.0.113.9") || !strings.Contains(text, `"vm":"db"`) {
		t.Errorf("the first flow is %q (%v)", text, lines.Err())
	}
	if c := m.daemon.Calls("FollowFlows")[0]; c.Tenant != "acme" {
		t.Errorf("%+v", c)
	}
}

func TestTheNetworkPolicyOfTheGuideDoesWhatTheGuideSays(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/services/vm.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(guide), "and nobody else:\n\n")
	text, _, ended := strings.Cut(text, "\n\n")
	var document object
	if err := json.Unmarshal([]byte(text), &document); err != nil || !found || !ended {
		t.Fatalf("%v: %s", err, text)
	}
	m := start(t)
	m.bridged("db", m.admin, object{"role": "db"})
	m.bridged("web", m.admin, object{"role": "web"})
	web := m.started("web", m.admin)
	m.call("POST", "/api/dataplane/cnp", m.admin, document).Want(201)
	m.eventually("web may reach db", func() bool { return m.enforced("db") == "deny cnp/all:db/ingress/0=allow:"+web.Ips[0]+"/32" })
	if p := *(*m.daemon.Policy("db").Ingress.Rules[0].Ports)[0].Port; p != 5432 {
		t.Errorf("port %d", p)
	}
}

func TestPoliciesThatAreTooLargeAreRefusedByTheLimit(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.bridged("web", m.admin, object{})
	rules := make([]object, 600)
	for i := range rules {
		rules[i] = object{"direction": "ingress", "cidr": fmt.Sprintf("10.%d.%d.0/24", i/200, i%200)}
	}
	m.call("POST", "/api/dataplane/groups", m.admin, object{"name": "a", "rules": rules}).Want(201)
	m.call("POST", "/api/dataplane/groups", m.admin, object{"name": "b", "rules": rules}).Want(201)
	a := m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"groups": []string{"a", "b"}}).Want(400)
	if !strings.Contains(a.Body, "1000 rules") {
		t.Error(a.Body)
	}
	m.call("POST", "/api/vms/web/dataplane/policy", m.admin, object{"groups": []string{"a"}, "ingress": object{"rules": rules[:401]}}).Want(400)
	big := cnp("big", object{"endpointSelector": object{}, "description": strings.Repeat("x", 300<<10)})
	m.call("POST", "/api/dataplane/cnp", m.admin, big).Want(413)
	if m.enforced("web") != "none" {
		t.Error("what was refused is enforced")
	}
}
