package fleet_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

func TestAVMGoesToTheNodeWithMostRoomThatMatches(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	small, large := w.join("small", 4), w.join("large", 16)
	vm, err := w.Create(inTime(t), "acme", spec("web", 2))
	if err != nil || vm.Node != "large" || vm.Name != "web" || vm.Tenant != "acme" || large.count() != 1 {
		t.Errorf("%+v, %v", vm, err)
	}
	only := func(s *hypervisorapi.FleetVMSpec) { s.NodeSelector = &hypervisorapi.Labels{"node": "small"} }
	if vm, err = w.Create(inTime(t), "acme", spec("web", 2, only)); err != nil || vm.Node != "small" ||
		small.count() != 1 {
		t.Errorf("%+v, %v", vm, err)
	}
	_, err = w.Create(inTime(t), "acme", spec("db", 17))
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	contains(t, err, "2 with too few free processors")
}

func TestANamedNodeGetsTheVMDespiteItsCordonButNotWhenItIsSilent(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	w.join("a", 4)
	w.join("b", 8)
	if _, err := w.SetCordon(t.Context(), "a", true, nil); err != nil {
		t.Fatal(err)
	}
	if vm, err := w.Create(inTime(t), "", spec("web", 2, on("a"))); err != nil || vm.Node != "a" {
		t.Errorf("%+v, %v", vm, err)
	}
	if got := w.free("a"); got != 2 {
		t.Errorf("%d free", got)
	}
	for _, name := range []string{"c", "../b", "\x00"} {
		if _, err := w.Create(inTime(t), "", spec("web", 2, on(name))); fault.From(err).Kind != fault.Invalid ||
			fault.From(err).Field != "node" {
			t.Errorf("%q: %v", name, err)
		}
	}
	w.clock.advance(time.Minute)
	_, err := w.Create(inTime(t), "", spec("db", 2, on("b")))
	if f := fault.From(err); err == nil || f.Kind != fault.Unreachable || f.Code != fleet.CodeUnreachable {
		t.Errorf("%v", err)
	}
	contains(t, err, "node b", "no heartbeat since 2025-03-01T12:00:00Z")
}

func TestANodesRefusalIsPassedOnAsItIs(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	a, b := w.join("a", 8), w.join("b", 4)
	for status, kind := range map[int]fault.Kind{400: fault.Invalid, 403: fault.Denied, 409: fault.Conflict, 413: fault.TooLarge} {
		a.instead(func(w http.ResponseWriter, r *http.Request) {
			refuse(w, status, hypervisorapi.Error{
				Code:  "some_code",
				Error: "so it is\x1b[2J",
				Field: new("vcpus"),
				Limit: new("policy.max_vcpus"),
			})
		})
		_, err := w.Create(inTime(t), "", spec("web", 1))
		f := fault.From(err)
		if err == nil || f.Kind != kind || f.Code != "some_code" || f.Message != "so it is [2J" || f.Field != "vcpus" ||
			f.Limit != "policy.max_vcpus" {
			t.Errorf("%d: %#v, %v", status, f, err)
		}
	}
	a.instead(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) }) // no daemon
	_, err := w.Create(inTime(t), "", spec("web", 1))
	if fault.From(err).Code != fleet.CodeUnreachable {
		t.Errorf("%v", err)
	}
	if got := w.free("a"); got != 8 || b.count() != 0 {
		t.Errorf("%d free, %d VMs elsewhere", got, b.count())
	}
}

func TestTheNextBestNodeIsTriedWhereNothingWasMade(t *testing.T) {
	t.Parallel()
	answering := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			refuse(w, status, hypervisorapi.Error{Code: "not_now", Error: "not now"})
		}
	}
	for what, f := range map[string]http.HandlerFunc{"dead": nil, "busy": answering(429), "without an engine": answering(503), "full": answering(507)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := sqlite(t)
			a := w.join("a", 8)
			b := w.join("b", 4)
			if f == nil {
				a.Close()
			} else {
				a.instead(f)
			}
			vm, err := w.Create(inTime(t), "", spec("web", 1))
			if err != nil || vm.Node != "b" || b.count() != 1 {
				t.Errorf("%+v, %v", vm, err)
			}
			if got := w.free("a"); got != 8 {
				t.Errorf("%d free", got)
			}
			if _, err := w.Create(inTime(t), "", spec("large", 6)); err == nil ||
				fault.Is(err, fault.Conflict) { // only a could have it
				t.Errorf("%v", err)
			}
			_, err = w.Create(inTime(t), "", spec("named", 1, on("a")))
			switch code := fault.From(err).Code; {
			case err == nil:
				t.Error("a VM on a node that has none")
			case f == nil && code != fleet.CodeUnreachable,
				f != nil && (code != "not_now" || fault.From(err).RetryAfter != 7*time.Second):
				t.Errorf("%v", err)
			}
		})
	}
}

func TestATenantsCallerGetsVMsOfItsTenantAlone(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	a := w.join("a", 8)
	of := func(tenant string) func(*hypervisorapi.FleetVMSpec) {
		return func(s *hypervisorapi.FleetVMSpec) { s.Tenant = &tenant }
	}
	if _, err := w.Create(inTime(t), "acme", spec("web", 1, of("other"))); fault.From(err).Kind != fault.Invalid ||
		fault.From(err).Field != "tenant" {
		t.Errorf("%v", err)
	}
	mine, err := w.Create(inTime(t), "acme", spec("web", 1, of("")))
	if err != nil || mine.Tenant != "acme" {
		t.Fatalf("%+v, %v", mine, err)
	}
	theirs, err := w.Create(inTime(t), "", spec("web", 1, of("other")))
	if err != nil || theirs.Tenant != "other" {
		t.Fatalf("%+v, %v", theirs, err)
	}
	for _, id := range []string{theirs.Id, "a-999999", "..", "x/../" + mine.Id, "", "a?b"} {
		if err := w.Delete(t.Context(), "a", id, "acme"); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if a.count() != 2 {
		t.Errorf("%d VMs", a.count())
	}
	if err := w.Delete(t.Context(), "a", mine.Id, "acme"); err != nil {
		t.Error(err)
	}
	if err := w.Delete(t.Context(), "a", theirs.Id, ""); err != nil || a.count() != 0 {
		t.Errorf("%v, %d VMs", err, a.count())
	}
	if err := w.Delete(t.Context(), "b", mine.Id, ""); fault.From(err).Field != "node" {
		t.Errorf("%v", err)
	}
	a.Close()
	for _, tenant := range []string{"", "acme"} {
		if err := w.Delete(t.Context(), "a", mine.Id, tenant); fault.From(err).Code != fleet.CodeUnreachable {
			t.Errorf("%v", err)
		}
	}
}

func TestASpecThatCannotBeIsRefusedBeforeRoomIsReserved(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	w.join("a", 8)
	for field, s := range map[string]hypervisorapi.FleetVMSpec{
		"name":          spec("", 1),
		"vcpus":         spec("web", -4),
		"memory_mib":    spec("web", 1, func(s *hypervisorapi.FleetVMSpec) { s.MemoryMib = new(-1) }),
		"node_selector": spec("web", 1, func(s *hypervisorapi.FleetVMSpec) { s.NodeSelector = many(65) }),
	} {
		if _, err := w.Create(inTime(t), "", s); fault.From(err).Kind != fault.Invalid ||
			fault.From(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if got := w.free("a"); got != 8 {
		t.Errorf("%d free", got)
	}
}

// A caller that hangs up does not make the outcome unknown.
func TestACreateIsFollowedToItsEndThoughTheCallerIsGone(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	a := w.join("a", 8)
	ctx, hangUp := context.WithCancel(inTime(t))
	a.after = hangUp
	vm, err := w.Create(ctx, "", spec("web", 2))
	if err != nil || vm.Node != "a" {
		t.Errorf("%+v, %v", vm, err)
	}
}

func TestTheSpecReachesTheNodeWhole(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	a := w.join("a", 8)
	var got map[string]any
	a.instead(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, 400, hypervisorapi.Error{Code: "invalid", Error: "no"})
	})
	full := `{"name":"web","tenant":"acme","vcpus":2,"memory_mib":64,"image":"demo","kernel_args":"quiet","ttl_seconds":60,"start":true,"autostart":true,
		"network":{"mode":"none"},"agent":{"enabled":true,"token":"0123456789abcdef"},"labels":{"a":"b"},"cloud_init":{"hostname":"h"},"storage":"dir",
		"backend":"qemu","node":"a","node_selector":{"node":"a"}}`
	bodies := make(chan []byte, 1)
	proxied := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		for n := 0; n < len(body); {
			k, err := r.Body.Read(body[n:])
			if n += k; err != nil {
				break
			}
		}
		bodies <- body
		proxied.ServeHTTP(rw, r)
	})
	var s hypervisorapi.FleetVMSpec
	if err := json.Unmarshal([]byte(full), &s); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(inTime(t), "", s); fault.From(err).Kind != fault.Invalid {
		t.Errorf("%v", err)
	}
	if err := json.Unmarshal(<-bodies, &got); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(full), &want); err != nil {
		t.Fatal(err)
	}
	delete(want, "node")
	delete(want, "node_selector")
	sent, _ := json.Marshal(got)
	asked, _ := json.Marshal(want)
	if string(sent) != string(asked) {
		t.Errorf("sent %s, want %s", sent, asked)
	}
}
