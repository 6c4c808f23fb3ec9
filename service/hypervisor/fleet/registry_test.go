package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

func numbers(vcpus, free int) hypervisorapi.Heartbeat {
	return hypervisorapi.Heartbeat{
		Url:           "http://10.0.0.1:7070/",
		Version:       "1.0",
		Vcpus:         vcpus,
		MemoryMib:     vcpus * 1024,
		FreeVcpus:     free,
		FreeMemoryMib: free * 1024,
		Vms:           vcpus - free,
		Backends:      []hypervisorapi.Backend{"qemu"},
	}
}

func TestANodeJoinsWithAHeartbeatAndIsHealthyForThreeIntervals(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		if _, err := w.Node(t.Context(), "a"); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
		hb := numbers(8, 6)
		hb.Labels = &hypervisorapi.Labels{"zone": "x"}
		n := w.beat("a", hb)
		if !n.Healthy || n.Cordoned || n.Url != "http://10.0.0.1:7070" || n.Labels["zone"] != "x" || n.FreeVcpus != 6 ||
			n.FreeMemoryMib != 6144 ||
			n.Vms != 2 ||
			!n.HeartbeatAt.Equal(w.clock.now()) {
			t.Errorf("%+v", n)
		}
		w.clock.advance(33 * time.Second)
		if n, err := w.Node(t.Context(), "a"); err != nil || !n.Healthy {
			t.Errorf("after three intervals with jitter: %+v, %v", n, err)
		}
		w.clock.advance(time.Millisecond)
		if n, err := w.Node(t.Context(), "a"); err != nil || n.Healthy {
			t.Errorf("after that: %+v, %v", n, err)
		}
		w.beat("b", numbers(4, 4))
		nodes, err := w.Nodes(t.Context())
		if err != nil || len(nodes) != 2 || nodes[0].Name != "a" || nodes[0].Healthy || !nodes[1].Healthy {
			t.Errorf("%+v, %v", nodes, err)
		}
		if c, err := w.Capacity(t.Context()); err != nil ||
			c != (hypervisorapi.Capacity{Nodes: 2, HealthyNodes: 1, Vcpus: 4, FreeVcpus: 4, MemoryMib: 4096, FreeMemoryMib: 4096}) {
			t.Errorf("%+v, %v", c, err)
		}
		if n := w.beat("a", numbers(8, 5)); !n.Healthy || n.FreeVcpus != 5 || len(n.Labels) != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestASecondHostCannotTakeTheNameOfOneThatIsAlive(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.beat("a", numbers(8, 6))
		other := numbers(4, 4)
		other.Url = "http://10.0.0.2:7070"
		_, _, err := w.Heartbeat(t.Context(), "a", other, 0)
		if f := fault.From(err); f == nil || f.Kind != fault.Conflict || f.Code != "node_name_taken" {
			t.Errorf("%v", err)
		}
		if n := w.beat("a", numbers(8, 5)); n.Url != "http://10.0.0.1:7070" || n.FreeVcpus != 5 {
			t.Errorf("%+v", n)
		}
		w.clock.advance(time.Minute) // the host has moved
		if n, _, err := w.Heartbeat(t.Context(), "a", other, 0); err != nil || n.Url != other.Url {
			t.Errorf("%+v, %v", n, err)
		}
	})
}

func TestACordonStaysOverHeartbeatsAndRestarts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.beat("a", numbers(8, 8))
		if n, err := w.SetCordon(t.Context(), "a", true, nil); err != nil || !n.Cordoned {
			t.Fatalf("%+v, %v", n, err)
		}
		w.restart()
		if n := w.beat("a", numbers(8, 8)); !n.Cordoned {
			t.Error("a heartbeat has lifted the cordon")
		}
		_, err := w.Create(inTime(t), "", spec("web", 1))
		contains(t, err, "1 cordoned")
		if n, err := w.SetCordon(t.Context(), "a", false, nil); err != nil || n.Cordoned {
			t.Errorf("%+v, %v", n, err)
		}
	})
}

func TestWhatGoesWithAChangeIsInItsTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.beat("a", numbers(8, 8))
		failing := errors.New("the audit log is full")
		fails := func(*db.Tx) error { return failing }
		if _, err := w.SetCordon(t.Context(), "a", true, fails); !errors.Is(err, failing) {
			t.Errorf("%v", err)
		}
		if err := w.Deregister(t.Context(), "a", fails); !errors.Is(err, failing) {
			t.Errorf("%v", err)
		}
		if n, err := w.Node(t.Context(), "a"); err != nil || n.Cordoned {
			t.Errorf("%+v, %v", n, err)
		}
		seen := false
		err := w.Deregister(t.Context(), "a", func(tx *db.Tx) error {
			var left int
			err := tx.Get(t.Context(), &left, "SELECT COUNT(*) FROM nodes")
			seen = left == 0
			return err
		})
		if err != nil || !seen {
			t.Errorf("%v, seen %v", err, seen)
		}
		for _, name := range []string{"a", "", "x\x00y", "../a"} {
			if err := w.Deregister(t.Context(), name, fails); !fault.Is(err, fault.NotFound) {
				t.Errorf("%q: %v", name, err)
			}
			if _, err := w.SetCordon(t.Context(), name, true, fails); !fault.Is(err, fault.NotFound) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if n := w.beat("a", numbers(8, 7)); n.FreeVcpus != 7 {
			t.Errorf("back again: %+v", n)
		}
	})
}

func TestAHeartbeatThatSaysWhatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	for field, change := range map[string]func(*hypervisorapi.Heartbeat){
		"url":             func(hb *hypervisorapi.Heartbeat) { hb.Url = "file:///etc/passwd" },
		"url ":            func(hb *hypervisorapi.Heartbeat) { hb.Url = "http://" },
		"url  ":           func(hb *hypervisorapi.Heartbeat) { hb.Url = "http://user:secret@host" },
		"url   ":          func(hb *hypervisorapi.Heartbeat) { hb.Url = "http://host/?a=b" },
		"url    ":         func(hb *hypervisorapi.Heartbeat) { hb.Url = "http://host/#" },
		"url     ":        func(hb *hypervisorapi.Heartbeat) { hb.Url = "http://" + strings.Repeat("a", 512) },
		"version":         func(hb *hypervisorapi.Heartbeat) { hb.Version = strings.Repeat("1", 65) },
		"version ":        func(hb *hypervisorapi.Heartbeat) { hb.Version = "1\x00" },
		"labels":          func(hb *hypervisorapi.Heartbeat) { hb.Labels = many(65) },
		"labels ":         func(hb *hypervisorapi.Heartbeat) { hb.Labels = &hypervisorapi.Labels{"a": strings.Repeat("b", 64)} },
		"labels  ":        func(hb *hypervisorapi.Heartbeat) { hb.Labels = &hypervisorapi.Labels{"a": "\x1b[2J"} },
		"backends":        func(hb *hypervisorapi.Heartbeat) { hb.Backends = make([]hypervisorapi.Backend, 17) },
		"backends ":       func(hb *hypervisorapi.Heartbeat) { hb.Backends = []hypervisorapi.Backend{"xen"} },
		"vcpus":           func(hb *hypervisorapi.Heartbeat) { hb.Vcpus = 0 },
		"memory_mib":      func(hb *hypervisorapi.Heartbeat) { hb.MemoryMib = 1 << 40 },
		"free_vcpus":      func(hb *hypervisorapi.Heartbeat) { hb.FreeVcpus = hb.Vcpus + 1 },
		"free_memory_mib": func(hb *hypervisorapi.Heartbeat) { hb.FreeMemoryMib = -1 << 40 },
		"vms":             func(hb *hypervisorapi.Heartbeat) { hb.Vms = -1 },
	} {
		hb := numbers(8, 8)
		change(&hb)
		_, _, err := w.Heartbeat(t.Context(), "a", hb, 0)
		if f := fault.From(err); err == nil || f.Kind != fault.Invalid || f.Field != strings.TrimSpace(field) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, name := range []string{"", "a/b", "..", "-a", "a\n", strings.Repeat("a", 64)} {
		if _, _, err := w.Heartbeat(t.Context(), name, numbers(8, 8), 0); fault.From(err).Field != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if nodes, err := w.Nodes(t.Context()); err != nil || len(nodes) != 0 {
		t.Errorf("%+v, %v", nodes, err)
	}
}

func many(n int) *hypervisorapi.Labels {
	labels := hypervisorapi.Labels{}
	for i := range n {
		labels[fmt.Sprint(i)] = "x"
	}
	return &labels
}

func TestAFleetHasAtMostSoManyNodes(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	if err := w.db.Update(t.Context(), func(tx *db.Tx) error {
		for i := range fleet.MaxNodes {
			if _, err := tx.Exec(
				t.Context(),
				`INSERT INTO nodes (name, url, version, labels, backends, cordoned, vcpus, memory_mib, free_vcpus, free_memory_mib, vms, heartbeat_at)
				VALUES (?, '', '', '{}', '[]', FALSE, 1, 1, 1, 1, 0, 0)`,
				fmt.Sprint("n", i),
			); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Heartbeat(t.Context(), "one-more", numbers(8, 8), 0); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	w.beat("n7", numbers(8, 8)) // known already
}
