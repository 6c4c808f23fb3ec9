//go:build linux

package hypervisor_test

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAForwardedPortLeadsIntoTheGuestUntilTheVMStops(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument+"[policy]\nallowed_forwards = [\"127.0.0.1:1024-65535\"]\n").withDemo()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	forwards := []object{{"host_port": port, "guest_port": 8080}}
	vm := d.boot("one", object{"network": object{"mode": "user", "forwards": forwards}})
	d.call("POST", "/v1/vms", acmeToken, object{
		"name": "two", "memory_mib": 64, "network": object{"mode": "user", "forwards": forwards},
	}).Refused(409, "port_taken", "")
	d.call("POST", "/v1/vms", acmeToken, object{
		"name": "two", "memory_mib": 64,
		"network": object{"mode": "user", "forwards": []object{{"host_port": 80, "guest_port": 80}}},
	}).Limited(400, "policy_limit", "network.forwards.0.host_port", "policy.allowed_forwards")
	d.sh(vm.Id, "echo hello > /tmp/index.html && httpd -p 8080 -h /tmp")
	answers := func() bool {
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Get("http://127.0.0.1:" + strconv.Itoa(port))
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 5)) // it is compared
		return string(text) == "hello"
	}
	reached := func(when string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !answers(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the guest does not answer", when)
			}
		}
	}
	reached("started")
	kill := d.mortal()
	kill()
	d.run()
	d.connected(vm.Id)
	reached("after kill -9")
	d.call("POST", "/v1/vms/"+vm.Id+"/stop", adminToken, object{"force": true}).Want(200)
	if answers() {
		t.Error("the port answers after the VM stopped")
	}
	// Another program has the port now.
	taken, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	a := d.call("POST", "/v1/vms/"+vm.Id+"/start", adminToken, nil)
	if a.Status < 400 || !strings.Contains(a.Body, strconv.Itoa(port)) {
		t.Errorf("a start without its port: %d %s", a.Status, a.Body)
	}
	_ = taken.Close()
	d.call("PATCH", "/v1/vms/"+vm.Id, adminToken, object{"network": object{"forwards": []object{}}}).Want(200)
	d.call("POST", "/v1/vms", adminToken, object{
		"name": "three", "tenant": "acme", "memory_mib": 64, "network": object{"mode": "user", "forwards": forwards},
	}).Want(201) // the port is free again
}

func TestForwardsTakeUserModeAndPortsThatAreTheCallers(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument)
	forward := func(f object) object { return object{"mode": "user", "forwards": []object{f}} }
	for what, c := range map[string]struct {
		network object
		field   string
	}{
		"no address":   {forward(object{"host_address": "host", "host_port": 30000, "guest_port": 1}), "network.forwards.0.host_address"},
		"IPv6":         {forward(object{"host_address": "::1", "host_port": 30000, "guest_port": 1}), "network.forwards.0.host_address"},
		"options":      {forward(object{"host_address": "1.1.1.1,x=y", "host_port": 30000, "guest_port": 1}), "network.forwards.0.host_address"},
		"another mode": {object{"mode": "none", "forwards": []object{{"host_port": 30000, "guest_port": 1}}}, "network.forwards"},
		"twice": {object{"mode": "user", "forwards": []object{
			{"host_port": 30000, "guest_port": 1}, {"host_port": 30000, "guest_port": 2, "host_address": "0.0.0.0"},
		}}, "network.forwards.1.host_port"},
	} {
		t.Log(what)
		d.call("POST", "/v1/vms", adminToken, object{"name": "vm", "memory_mib": 64, "network": c.network}).Refused(400, "invalid", c.field)
	}
	d.call("POST", "/v1/vms", acmeToken, object{
		"name": "vm", "memory_mib": 64, "network": forward(object{"host_address": "0.0.0.0", "host_port": 30000, "guest_port": 1}),
	}).Limited(400, "policy_limit", "network.forwards.0.host_port", "policy.allowed_forwards")
	d.call("POST", "/v1/vms", acmeToken, object{
		"name": "vm", "memory_mib": 64, "network": forward(object{"host_port": 30000, "guest_port": 1}),
	}).Want(201)
}
