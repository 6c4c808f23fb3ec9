//go:build linux

package hypervisor_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// as returns the headers of a request that is made for somebody; empty: none.
func as(tenant, actor string) map[string]string {
	h := map[string]string{}
	for name, value := range map[string]string{"Mainstay-Tenant": tenant, "Mainstay-Actor": actor} {
		if value != "" {
			h[name] = value
		}
	}
	return h
}

// callAs is call with further headers.
func (d *daemon) callAs(header map[string]string, method, path, token string, body any) answer {
	d.Helper()
	return contracttest.Send(d, nil, contracttest.Request{
		Method: method, URL: d.url + path, Token: token, Body: body, Header: header,
	})
}

func TestAnAdminWhoActsForATenantIsThatTenantsInEveryWay(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	d := start(t, usualDocument+"[[policy.tenants]]\ntenant = \"acme\"\nmax_vms_total = 3\n")
	alice := as("acme", "alice")
	me := contracttest.As[hypervisorapi.Me](d.callAs(alice, "GET", "/v1/me", adminToken, nil).Want(200))
	if me.Name != "admin/alice" || me.Tenant != "acme" || me.Admin {
		t.Errorf("%+v", me)
	}
	others := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms", otherToken, object{"name": "one", "disk_gib": 1}).Want(201),
	)
	own := contracttest.As[hypervisorapi.VM](
		d.callAs(alice, "POST", "/v1/vms", adminToken, object{"name": "one", "disk_gib": 1}).Want(201),
	)
	if own.Tenant != "acme" {
		t.Errorf("the VM is %q's", own.Tenant)
	}
	for method, path := range map[string]string{"GET": "", "DELETE": "", "POST": "/start"} {
		d.callAs(alice, method, "/v1/vms/"+others.Id+path, adminToken, nil).Want(404)
	}
	seen := contracttest.As[[]hypervisorapi.VM](d.callAs(alice, "GET", "/v1/vms", adminToken, nil).Want(200))
	if len(seen) != 1 || seen[0].Id != own.Id {
		t.Errorf("%+v", seen)
	}
	// What tenants may not: name another tenant, name files, exceed their quota, manage the host.
	if two := contracttest.As[hypervisorapi.VM](d.callAs(
		alice, "POST", "/v1/vms", adminToken, object{"name": "two", "tenant": "other", "disk_gib": 1},
	).Want(201)); two.Tenant != "acme" {
		t.Errorf("the VM is %q's", two.Tenant)
	}
	d.callAs(alice, "POST", "/v1/vms", adminToken, object{"name": "three", "image": rawImage(t, "x", 1<<20)}).Limited(
		400, "policy_limit", "image", "policy.allowed_image_dirs",
	)
	d.callAs(as("acme", ""), "POST", "/v1/vms", adminToken, object{"name": "three", "disk_gib": 1}).Want(201)
	d.callAs(alice, "POST", "/v1/vms", adminToken, object{"name": "four", "disk_gib": 1}).Limited(
		400, "policy_limit", "", "policy.tenants[acme].max_vms_total",
	)
	d.callAs(alice, "GET", "/v1/audit", adminToken, nil).Want(403)
	d.callAs(alice, "POST", "/v1/images/clean", adminToken, nil).Want(403)
	d.callAs(alice, "PUT", "/fleet/nodes/host/heartbeat", fleetToken, object{}).Want(403)
	d.callAs(as("", "alice"), "PUT", "/fleet/nodes/host/heartbeat", fleetToken, object{}).Want(403)

	// Without a tenant, the admin remains one, and has a name.
	d.callAs(as("", "root"), "DELETE", "/v1/vms/"+others.Id, adminToken, nil).Want(204)
	var log []string
	for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit", adminToken, nil).Want(200)) {
		log = append(log, strings.Join([]string{e.Actor, e.Action, e.Tenant, e.Result}, " "))
	}
	for _, want := range []string{
		"admin/alice vm.create acme ok", "admin vm.create acme ok", "admin/alice image.clean acme denied",
		"admin/root vm.delete other ok",
	} {
		if !strings.Contains("\n"+strings.Join(log, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("the audit log lacks %q:\n%s", want, strings.Join(log, "\n"))
		}
	}
	events := contracttest.As[[]hypervisorapi.Event](d.call("GET", "/v1/vms/"+own.Id+"/events", acmeToken, nil).Want(200))
	if len(events) == 0 || deref(events[0].Actor) != "admin/alice" {
		t.Errorf("%+v", events)
	}
}

func TestOnlyAdminsActForOthersAndNamesAreChecked(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	for _, header := range []map[string]string{as("acme", ""), as("other", ""), as("", "alice"), as("other", "alice")} {
		d.callAs(header, "GET", "/v1/vms", acmeToken, nil).Refused(403, "denied", "")
		d.callAs(header, "POST", "/v1/vms", acmeToken, object{"name": "one"}).Refused(403, "denied", "")
		d.callAs(header, "GET", "/v1/vms", "no-such-token-000000", nil).Want(401)
	}
	denied := contracttest.As[[]hypervisorapi.AuditEntry](
		d.call("GET", "/v1/audit?action=vm.create&result=denied", adminToken, nil).Want(200),
	)
	if len(denied) == 0 || denied[0].Actor != "acme-ci" || denied[0].Tenant != "acme" {
		t.Errorf("the attempts are not in the audit log: %+v", denied)
	}
	for _, name := range []string{"a b", "é", strings.Repeat("x", 257)} {
		d.callAs(as("", name), "GET", "/v1/vms", adminToken, nil).Refused(400, "invalid", "Mainstay-Actor")
		d.callAs(as(name, ""), "GET", "/v1/vms", adminToken, nil).Refused(400, "invalid", "Mainstay-Tenant")
	}
	d.callAs(as(strings.Repeat("x", 64), ""), "GET", "/v1/vms", adminToken, nil).Refused(400, "invalid", "Mainstay-Tenant")
	for field := range as("a", "b") { // an empty header must not widen a request to an admin's
		d.callAs(map[string]string{field: ""}, "GET", "/v1/vms", adminToken, nil).Want(200) // not sent
		req, err := http.NewRequestWithContext(t.Context(), "GET", d.url+"/v1/vms", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + adminToken}, field: {""}}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != 400 {
			t.Errorf("an empty %s is answered with %s", field, res.Status)
		}
	}
	// What only the registry sends says for whom.
	d.call("GET", "/v1/vms", "acting."+fleetToken, nil).Want(403)
	d.callAs(as("", "ann"), "GET", "/v1/vms", "acting."+fleetToken, nil).Want(200)
}

func TestATicketOfACallerWhoActsForATenantOpensNothingElse(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	d := start(t, usualDocument)
	alice := as("acme", "alice")
	made := contracttest.As[hypervisorapi.VM](d.callAs(alice, "POST", "/v1/vms", adminToken, object{
		"name": "one", "memory_mib": 64, "start": true, "network": object{"mode": "none"},
	}).Want(201))
	d.await(made.Id, "running")
	path := "/v1/vms/" + made.Id
	d.callAs(as("other", "alice"), "POST", path+"/tickets", adminToken, nil).Want(404)
	ticket := func() string {
		return contracttest.As[hypervisorapi.Ticket](d.callAs(alice, "POST", path+"/tickets", adminToken, nil).Want(201)).Ticket
	}
	d.dial(path+"/console?ticket="+ticket()).Close(websocket.StatusNormalClosure, "")
	// The ticket is the tenant's, so it does not let its holder act for another.
	_, res, err := websocket.Dial(d.Context(), d.url+path+"/console?ticket="+ticket(), &websocket.DialOptions{
		HTTPHeader: http.Header{"Mainstay-Tenant": {"other"}},
	})
	if err == nil || res == nil || res.StatusCode != 403 {
		t.Errorf("%v, %v", res, err)
	}
}

func TestIdempotencyKeysBelongToTheTenantAndActor(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	mine := contracttest.As[hypervisorapi.VM](d.callAs(
		as("acme", "alice"), "POST", "/v1/vms", adminToken, object{"name": "one", "disk_gib": 1},
	).Want(201))
	begin := func(tenant, actor string) hypervisorapi.Operation {
		t.Helper()
		header := as(tenant, actor)
		header["Idempotency-Key"] = "k"
		return contracttest.As[hypervisorapi.Operation](
			d.callAs(header, "POST", "/v1/vms/"+mine.Id+"/backups", adminToken, nil).Want(202),
		)
	}
	seen := map[string]string{}
	for who, of := range map[string][2]string{
		"alice": {"acme", "alice"}, "bob": {"acme", "bob"}, "the tenant": {"acme", ""}, "an admin": {"", "alice"}, "nobody": {"", ""},
	} {
		first, again := begin(of[0], of[1]), begin(of[0], of[1])
		if first.Id != again.Id {
			t.Errorf("%s: the request began twice", who)
		}
		if other := seen[first.Id]; other != "" {
			t.Errorf("%s and %s share a key", who, other)
		}
		seen[first.Id] = who
		// The operation remembers the tenant, whoever is asked for it.
		if a := d.call("GET", "/v1/operations/"+first.Id, acmeToken, nil); of[0] == "acme" && a.Status != 200 {
			t.Errorf("%s: the tenant does not see its operation: %d", who, a.Status)
		}
		d.call("GET", "/v1/operations/"+first.Id, otherToken, nil).Want(404)
		d.finished(answerOf(d, first.Id))
	}
}

// answerOf is the answer that began an operation.
func answerOf(d *daemon, id string) answer {
	a := d.call("GET", "/v1/operations/"+id, adminToken, nil).Want(200)
	a.Status = 202
	return a
}
