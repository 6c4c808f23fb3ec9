package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// A heartbeat that left the node before the VM was there may arrive at any time later.
func TestAHeartbeatFromBeforeAVMDoesNotGiveItsRoomAway(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		n := w.join("a", 8)
		early, after := n.numbers(), w.after["a"]
		if _, err := w.Create(inTime(t), "", spec("web", 3)); err != nil {
			t.Fatal(err)
		}
		if got := w.free("a"); got != 5 {
			t.Fatalf("%d free at once, want 5", got)
		}
		if n := w.beat("a", early); n.FreeVcpus != 5 { // arrives late
			t.Errorf("%d free after a heartbeat from before", n.FreeVcpus)
		}
		if n := w.beat("a", n.numbers()); n.FreeVcpus != 5 { // the answer to the one before came after the create
			t.Errorf("%d free after a heartbeat with the VM", n.FreeVcpus)
		}
		// Its sender had given it up, but it arrives after those that followed.
		w.clock.advance(time.Second)
		late, sequence, err := w.Heartbeat(t.Context(), "a", early, after)
		if err != nil || late.FreeVcpus != 5 || late.Vms != 1 || !late.HeartbeatAt.Equal(w.clock.now()) ||
			sequence != w.after["a"] {
			t.Errorf("%+v, %d, %v", late, sequence, err)
		}
		if n := w.beat("a", n.numbers()); n.FreeVcpus != 5 {
			t.Errorf("%d free in the end", n.FreeVcpus)
		}
	})
}

// While the answer to a create is on its way, heartbeats may come and go.
func TestACreateUnderWayIsCountedWhateverHeartbeatsSay(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	n := w.join("a", 8)
	early := n.numbers()
	n.after = func() {
		w.beat("a", early)
		for range 3 {
			if got := w.beat("a", n.numbers()).FreeVcpus; got > 5 {
				t.Errorf("%d free, though there is a VM with 3 of 8", got)
			}
		}
	}
	if _, err := w.Create(inTime(t), "", spec("web", 3)); err != nil {
		t.Fatal(err)
	}
	w.beat("a", n.numbers())
	if got := w.beat("a", n.numbers()).FreeVcpus; got != 5 {
		t.Errorf("%d free in the end", got)
	}
}

func TestARestartedRegistryStartsFromWhatWasReserved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		n := w.join("a", 4)
		if _, err := w.Create(inTime(t), "", spec("web", 3)); err != nil {
			t.Fatal(err)
		}
		w.restart()
		if _, err := w.Create(inTime(t), "", spec("db", 2)); !fault.Is(err, fault.Conflict) ||
			fault.From(err).Code != "no_capacity" {
			t.Errorf("%v", err)
		}
		if _, err := w.Create(inTime(t), "", spec("db", 1)); err != nil {
			t.Error(err)
		}
		for range 2 { // what the node had from the registry before is no use now
			w.beat("a", n.numbers())
		}
		if got := w.free("a"); got != 0 || n.worst != 0 {
			t.Errorf("%d free, %d at worst", got, n.worst)
		}
	})
}

func TestRefusalsAndDeletesGiveRoomBackAtOnce(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	w.join("a", 4)
	vm, err := w.Create(inTime(t), "", spec("web", 3))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(inTime(t), "", spec("web", 1)); fault.From(err).Code != "name_taken" {
		t.Errorf("%v", err)
	}
	if got := w.free("a"); got != 1 {
		t.Errorf("%d free after a refusal, want 1", got)
	}
	if err := w.Delete(t.Context(), "a", vm.Id, ""); err != nil {
		t.Error(err)
	}
	if got := w.free("a"); got != 4 {
		t.Errorf("%d free after a delete, want 4", got)
	}
}

// Nobody knows whether there is a VM: it is neither tried elsewhere nor uncounted.
func TestACreateOfUnknownOutcomeKeepsItsRoomAndIsNotRepeated(t *testing.T) {
	t.Parallel()
	made := func(n *node) {
		n.add(hypervisorapi.VMSpec{Name: "web", Vcpus: new(3)})
	}
	for what, f := range map[string]func(n *node, w http.ResponseWriter, r *http.Request){
		"the connection breaks": func(n *node, w http.ResponseWriter, r *http.Request) { made(n); panic(http.ErrAbortHandler) },
		"no answer in time":     func(n *node, w http.ResponseWriter, r *http.Request) { made(n); <-r.Context().Done() },
		"garbage": func(n *node, w http.ResponseWriter, r *http.Request) {
			made(n)
			w.WriteHeader(201)
			_, _ = w.Write([]byte("{"))
		},
		"another VM": func(n *node, w http.ResponseWriter, r *http.Request) {
			made(n)
			answer(w, 201, hypervisorapi.VM{Id: "x", Name: "other"})
		},
		"an internal error":    func(n *node, w http.ResponseWriter, r *http.Request) { made(n); answer(w, 500, map[string]string{}) },
		"a proxy's 503":        func(n *node, w http.ResponseWriter, r *http.Request) { made(n); w.WriteHeader(503) },
		"a redirect":           func(n *node, w http.ResponseWriter, r *http.Request) { made(n); http.Redirect(w, r, n.URL, 307) },
		"a proxy gave it up":   func(n *node, w http.ResponseWriter, r *http.Request) { made(n); w.WriteHeader(504) },
		"a request timed out":  func(n *node, w http.ResponseWriter, r *http.Request) { made(n); w.WriteHeader(408) },
		"an answer too large":  func(n *node, w http.ResponseWriter, r *http.Request) { made(n); w.WriteHeader(201); flood(w, r) },
		"an answer never ends": func(n *node, w http.ResponseWriter, r *http.Request) { made(n); w.WriteHeader(201); drip(w, r) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := sqlite(t, func(c *fleet.Config) { c.CreateDeadline = 300 * time.Millisecond })
			a, b := w.join("a", 8), w.join("b", 4)
			a.instead(func(rw http.ResponseWriter, r *http.Request) { f(a, rw, r) })
			early := a.numbers()
			_, err := w.Create(inTime(t), "", spec("web", 3))
			if f := fault.From(err); err == nil || f.Kind != fault.Unreachable || f.Code != fleet.CodeUnreachable {
				t.Errorf("%v", err)
			}
			contains(t, err, "node a")
			if a.count() != 1 || b.count() != 0 {
				t.Errorf("%d and %d VMs", a.count(), b.count())
			}
			w.beat("a", early)
			for range 3 {
				if got := w.beat("a", a.numbers()).FreeVcpus; got > 5 {
					t.Errorf("%d free", got)
				}
			}
			w.clock.advance(time.Minute)
			if got := w.beat("a", a.numbers()).FreeVcpus; got != 5 {
				t.Errorf("%d free once the node has surely told", got)
			}
		})
	}
}

// The node may take a while to begin with what it was asked before the connection was lost.
func TestAVMThatComesLateFindsItsRoomReserved(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	a := w.join("a", 8)
	a.instead(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := w.Create(inTime(t), "", spec("web", 3)); err == nil {
		t.Fatal("a VM without an answer")
	}
	for range 5 {
		w.clock.advance(10 * time.Second)
		if got := w.beat("a", a.numbers()).FreeVcpus; got != 5 {
			t.Errorf("%d free", got)
		}
	}
	a.add(hypervisorapi.VMSpec{Name: "web", Vcpus: new(3)})
	w.clock.advance(10 * time.Second)
	if got := w.beat("a", a.numbers()).FreeVcpus; got != 5 {
		t.Errorf("%d free in the end", got)
	}
}

// With room for all of them, none of many creates at the same time is refused, no node
// gets more than it has, and in the end the registry and the nodes agree. Heartbeats are
// read, delayed, lost and overtaken at random all the while.
func TestManyCreatesAtOnceFillAFleetToTheLastProcessor(t *testing.T) {
	t.Parallel()
	const creates = 200
	w := sqlite(t)
	ctx, done := context.WithCancel(inTime(t))
	defer done()
	var nodes []*node
	for i := range 10 {
		nodes = append(nodes, w.join(fmt.Sprint("n", i), 2+4*i)) // 200 in all
	}
	var beating, creating sync.WaitGroup
	var refused atomic.Int32
	pulse := make(chan struct{}, creates) // one for each VM that was made
	for _, n := range nodes {
		n.after = func() { pulse <- struct{}{} }
		after := w.after[n.name]
		random := rand.New(rand.NewPCG(uint64(n.vcpus), 7))
		beating.Go(func() { beatAtRandom(ctx, w, n, after, random) })
	}
	for i := range creates {
		creating.Go(func() {
			if _, err := w.Create(ctx, fmt.Sprint("t", i%3), spec(fmt.Sprint("vm", i), 1)); err != nil {
				refused.Add(1)
				t.Error(err)
			}
		})
	}
	creating.Wait()
	done()
	beating.Wait()
	total := 0
	for _, n := range nodes {
		total += n.count()
		if n.worst < 0 {
			t.Errorf("%s had %d processors too few", n.name, -n.worst)
		}
	}
	if total != creates-int(refused.Load()) || len(pulse) != total {
		t.Errorf("%d VMs of %d creates, %d refused", total, creates, refused.Load())
	}
	for _, n := range nodes {
		for range 3 { // the first may have been overtaken, the second begins the count
			w.beat(n.name, n.numbers())
		}
		n.mu.Lock()
		if got := w.free(n.name); got != n.left() {
			t.Errorf("%s: the registry has %d free, the node %d", n.name, got, n.left())
		}
		n.mu.Unlock()
	}
}

// beatAtRandom sends heartbeats as a reporter does, on a bad network: some are given up and
// arrive after the next ones, of some the answer is lost.
func beatAtRandom(ctx context.Context, w *world, n *node, after int64, random *rand.Rand) {
	type letter struct {
		hb    hypervisorapi.Heartbeat
		after int64
	}
	var stray []letter
	for ctx.Err() == nil {
		sent := letter{n.numbers(), after}
		for range random.IntN(100) { // on its way
			runtime.Gosched()
		}
		switch random.IntN(6) {
		case 0: // given up; arrives later
			stray = append(stray, sent)
			continue
		case 1:
			for _, old := range stray {
				_, _, _ = w.Heartbeat(ctx, n.name, old.hb, old.after)
			}
			stray = nil
		}
		_, sequence, err := w.Heartbeat(ctx, n.name, sent.hb, sent.after)
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled):
			w.Error(err)
		case err == nil && random.IntN(6) > 0: // else the answer is lost
			after = sequence
		}
	}
}

// Room that is counted twice, by a heartbeat and as reserved, is there after the next one.
func TestACreateWaitsForRoomThatIsCountedTwice(t *testing.T) {
	t.Parallel()
	looked := make(chan struct{}, 1000)
	w := sqlite(t, func(c *fleet.Config) {
		now := c.Now
		c.Now = func() time.Time { looked <- struct{}{}; return now() }
	})
	n := w.join("a", 2)
	if _, err := w.Create(inTime(t), "", spec("one", 1)); err != nil {
		t.Fatal(err)
	}
	if got := w.beat("a", n.numbers()).FreeVcpus; got != 0 {
		t.Fatalf("%d free, want 0: one is counted twice", got)
	}
	if _, err := w.Create(inTime(t), "", spec("three", 3)); !fault.Is(err, fault.Conflict) { // no heartbeat would help
		t.Errorf("%v", err)
	}
	for len(looked) > 0 {
		<-looked
	}
	outcome := make(chan error, 1)
	go func() {
		_, err := w.Create(inTime(t), "", spec("two", 1))
		outcome <- err
	}()
	<-looked // and it holds the lock until it has found no room
	w.beat("a", n.numbers())
	if err := <-outcome; err != nil {
		t.Error(err)
	}
}

func TestACreateDoesNotWaitForEverForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := hangs{make(chan string, 1)}
		w := sqlite(t, func(c *fleet.Config) {
			c.HTTP, c.Patience = &http.Client{Transport: network}, fleet.DefaultPatience
		})
		w.beat("a", numbers(1, 1))
		first := make(chan error, 1)
		go func() {
			_, err := w.Create(t.Context(), "", spec("one", 1))
			first <- err
		}()
		<-network.asked
		began := time.Now()
		_, err := w.Create(t.Context(), "", spec("two", 1))
		if f := fault.From(err); err == nil || f.Code != "no_capacity" || f.RetryAfter != 10*time.Second ||
			time.Since(began) != fleet.DefaultPatience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		if _, err := w.Create(ctx, "", spec("two", 1)); err == nil {
			t.Error("a VM for a caller who is gone")
		}
		if err := <-first; fault.From(err).Code != fleet.CodeUnreachable ||
			time.Since(began) != fleet.DefaultCreateDeadline {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
