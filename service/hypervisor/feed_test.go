//go:build linux

package hypervisor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// follower reads a stream of events.
type follower struct {
	*testing.T
	lines *bufio.Scanner
	end   func()
}

// follow opens the stream at a path. last is the Last-Event-ID; empty: none.
func (d *daemon) follow(path, token, last string) *follower {
	d.Helper()
	ctx, cancel := context.WithCancel(d.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", d.url+path, http.NoBody)
	if err != nil {
		d.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(cancel)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		d.Fatalf("%s: %s", path, res.Status)
	}
	return &follower{d.T, bufio.NewScanner(res.Body), func() { cancel(); _ = res.Body.Close() }}
}

// next returns the next event, and "" as its name when the stream has ended.
func (f *follower) next() (id, name string, event hypervisorapi.VMEvent) {
	f.Helper()
	for f.lines.Scan() {
		field, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &event); err != nil {
				f.Fatal(err)
			}
		case "":
			if name != "" {
				return id, name, event
			}
		}
	}
	return "", "", event
}

// until reads up to the event of a kind, and returns it with all before it, as text.
func (f *follower) until(kind string) (id, all string) {
	f.Helper()
	for {
		at, name, e := f.next()
		if name == "" {
			f.Fatalf("the stream ends before %s: %s", kind, all)
		}
		state := ""
		if e.State != nil {
			state = string(*e.State)
		}
		all += fmt.Sprintf("%s %s %s %s %s %s\n", name, e.Tenant, e.Name, e.Kind, state, deref(e.Actor))
		if e.Kind == kind || name == kind {
			return at, all
		}
	}
}

func TestEveryEventOfATenantsVMsReachesItsStreamAndNoOthers(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	d := start(t, usualDocument)
	acme, other, all := d.follow("/v1/events", acmeToken, ""), d.follow("/v1/events", otherToken, ""), d.follow("/v1/events", adminToken, "")
	for _, f := range []*follower{acme, other, all} {
		if _, name, _ := f.next(); name != "reset" {
			t.Errorf("the stream begins with %q", name)
		}
	}
	make := func(token, name string) string {
		t.Helper()
		return contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", token, object{"name": name, "disk_gib": 1}).Want(201)).Id
	}
	theirs, mine := make(otherToken, "theirs"), make(acmeToken, "mine")
	d.callAs(as("acme", "ann"), "PATCH", "/v1/vms/"+mine, adminToken, object{"vcpus": 2}).Want(200)
	d.call("POST", "/v1/vms/"+mine+"/enable", acmeToken, nil).Want(200)
	d.call("DELETE", "/v1/vms/"+mine, acmeToken, nil).Want(204)
	d.call("DELETE", "/v1/vms/"+theirs, adminToken, nil).Want(204)
	const want = "vm acme mine backend creating acme-ci\n" +
		"vm acme mine state stopped acme-ci\n" +
		"vm acme mine config stopped admin/ann\n" +
		"vm acme mine config stopped acme-ci\n" +
		"vm acme mine state deleting acme-ci\n" +
		"vm acme mine deleted  acme-ci\n"
	last, seen := acme.until("deleted")
	if seen != want {
		t.Errorf("the tenant saw:\n%s", seen)
	}
	if _, seen := other.until("deleted"); strings.Contains(seen, "acme") || !strings.Contains(seen, "deleted  admin") {
		t.Errorf("the other tenant saw:\n%s", seen)
	}
	_, seen = all.until("deleted")
	_, more := all.until("deleted")
	if !strings.Contains(seen+more, want[:len("vm acme mine backend")]) || strings.Count(seen+more, "deleted") != 2 {
		t.Errorf("the admin saw:\n%s%s", seen, more)
	}
	// Whoever comes back misses nothing, also of VMs that are gone, and after a restart of the daemon.
	acme.end()
	two := make(acmeToken, "two")
	d.call("DELETE", "/v1/vms/"+two, acmeToken, nil).Want(204)
	other.end()
	all.end()
	d.restart(nil)
	if _, seen := d.follow("/v1/events", acmeToken, last).until("deleted"); strings.Count(seen, "acme two") != 4 || strings.Contains(seen, "mine") {
		t.Errorf("after it came back, the tenant saw:\n%s", seen)
	}
	d.call("GET", "/v1/events", "", nil).Want(401)
	d.callWithHeader("Last-Event-ID", "x", "/v1/events").Refused(400, "invalid", "Last-Event-ID")
}

func (d *daemon) callWithHeader(name, value, path string) answer {
	d.Helper()
	return d.callAs(map[string]string{name: value}, "GET", path, adminToken, nil)
}

func TestAClientThatWasAwayTooLongIsToldToListAnew(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	d := start(t, usualDocument)
	make := func(name string) {
		t.Helper()
		d.call("POST", "/v1/vms", acmeToken, object{"name": name, "disk_gib": 1}).Want(201)
	}
	make("one")
	before := d.follow("/v1/events", acmeToken, "0")
	id, _ := before.until("state")
	before.end()
	at, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// As if 10,000 events had come since.
	d.restart(func() {
		tamper(t, d.cfg.Data, fmt.Sprintf("DELETE FROM vm_feed WHERE id < %d", at))
		tamper(t, d.cfg.Data, fmt.Sprintf("UPDATE vm_feed SET id = id + 20000 WHERE id = %d", at))
	})
	f := d.follow("/v1/events", acmeToken, id)
	if now, name, _ := f.next(); name != "reset" || now != strconv.FormatInt(at+20000, 10) {
		t.Errorf("%s %s", name, now)
	}
	make("two")
	if _, seen := f.until("backend"); !strings.Contains(seen, "acme two") {
		t.Errorf("%s", seen)
	}
	f.end()
	// Nothing older is kept, and a number of the future is from another time.
	if _, name, _ := d.follow("/v1/events", acmeToken, "999999").next(); name != "reset" {
		t.Errorf("%s", name)
	}
	if _, name, _ := d.follow("/v1/events", acmeToken, "0").next(); name != "reset" {
		t.Errorf("%s", name)
	}
}
