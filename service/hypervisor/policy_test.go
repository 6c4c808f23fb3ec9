//go:build linux

package hypervisor_test

import (
	"net/http"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func samplePolicy() object {
	return object{
		"ingress": object{"default": "deny", "rules": []object{{
			"name": "web", "action": "allow", "ports": []object{{"protocol": "tcp", "port": 80, "end_port": 90}},
			"peers": []object{{"cidr": "10.0.0.0/8", "except": []string{"10.1.0.0/16"}}},
		}}},
		"egress": object{"default": "allow", "rules": []object{{
			"name": "no-ping", "action": "deny", "ports": []object{{"protocol": "icmp", "icmp_type": 8, "icmp_code": 0}},
		}}},
	}
}

func TestANetworkPolicyIsStoredByRevisionAndSurvivesARestart(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	made := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms", acmeToken, object{"name": "web", "disk_gib": 1}).Want(201),
	)
	path := "/v1/vms/" + made.Id + "/network-policy"
	get := func() hypervisorapi.NetworkPolicyState {
		t.Helper()
		return contracttest.As[hypervisorapi.NetworkPolicyState](d.call("GET", path, acmeToken, nil).Want(200))
	}
	if p := get(); p.Revision != 0 || p.Mode != "none" || p.Policy.Ingress.Default != "allow" || p.Attached {
		t.Errorf("without a policy: %+v", p)
	}
	put := contracttest.As[hypervisorapi.NetworkPolicyState](
		d.call("PUT", path, acmeToken, object{"policy": samplePolicy(), "revision": 0}).Want(200),
	)
	if put.Revision != 1 || put.Mode != "unsupported" || len(put.Policy.Ingress.Rules) != 1 {
		t.Errorf("put: %+v", put)
	}
	d.call("PUT", path, acmeToken, object{"policy": samplePolicy(), "revision": 0}).
		Refused(http.StatusConflict, "stale_revision", "")
	d.restart(nil)
	p := get()
	if rule := p.Policy.Ingress.Rules[0]; p.Revision != 1 || rule.Name != "web" ||
		*(*rule.Peers)[0].Cidr != "10.0.0.0/8" || *(*rule.Ports)[0].EndPort != 90 {
		t.Errorf("after a restart: %+v", p)
	}
	if egress := p.Policy.Egress.Rules[0]; *(*egress.Ports)[0].IcmpCode != 0 {
		t.Errorf("an ICMP code of 0 is lost: %+v", egress)
	}
	d.call("DELETE", path, acmeToken, nil).Want(204)
	if p := get(); p.Revision != 2 || p.Mode != "none" || len(p.Policy.Ingress.Rules) != 0 {
		t.Errorf("deleted: %+v", p)
	}

	for field, change := range map[string]object{
		"policy.egress.rules[0].peers[0].fqdn": {"name": "a", "action": "allow", "peers": []object{{"fqdn": "example.com"}}},
		"policy.egress.rules[0].peers[0].cidr": {"name": "a", "action": "allow", "peers": []object{{"cidr": "10.0.0.0/33"}}},
	} {
		bad := samplePolicy()
		bad["egress"] = object{"default": "deny", "rules": []object{change}}
		a := d.call("PUT", path, acmeToken, object{"policy": bad}).Want(400)
		if !strings.Contains(a.Body, `"field":"`+field+`"`) {
			t.Errorf("%s: %s", field, a.Body)
		}
	}
	if p := get(); p.Revision != 2 {
		t.Errorf("what is not valid changed the revision to %d", p.Revision)
	}
	for _, method := range []string{"GET", "DELETE"} {
		d.call(method, path, otherToken, nil).Refused(404, "not_found", "")
	}
	d.call("PUT", path, otherToken, object{"policy": samplePolicy()}).Refused(404, "not_found", "")
	d.call("GET", "/v1/vms/"+made.Id+"/flows", otherToken, nil).Refused(404, "not_found", "")
}
