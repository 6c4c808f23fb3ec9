//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
)

// VM management is killed at any moment while it stores changes and delivers their events: a webhook
// gets the event of each change that was acknowledged, and none of one that was not stored. What
// arrives twice has the same id.
func TestVMManagementThatIsKilledTellsEachChangeToItsWebhooks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	created, ids := map[string]string{}, map[string]string{} // message ids by VM, and VMs by message id
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e struct {
			Data struct {
				VM struct {
					Name string `json:"name"`
				} `json:"vm"`
			} `json:"data"`
		}
		id := r.Header.Get("webhook-id")
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || id == "" {
			t.Errorf("%q: %v", id, err)
		}
		mu.Lock()
		defer mu.Unlock()
		name := e.Data.VM.Name
		if was := created[name]; was != "" && was != id || ids[id] != "" && ids[id] != name {
			t.Errorf("two messages about %s: %s and %s", name, was, id)
		}
		created[name], ids[id] = id, name
	}))
	t.Cleanup(target.Close)
	m := newVMManager(t, freeLoopback(t)) // no daemon: VMs are acknowledged all the same
	m.env = append(m.env, "VM_ALLOW_PRIVATE_TARGETS=true")
	m.start()
	status, raw := m.call("POST", "/api/webhooks", map[string]any{"url": target.URL, "events": []string{"vm.created"}})
	if status != 201 {
		t.Fatalf("%d %s", status, raw)
	}
	hook := hvAs[vmapi.Webhook](t, raw)
	made := map[string]bool{}
	for round := range max(2, kills(t)/2) {
		var work sync.WaitGroup
		stop := make(chan struct{})
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("r%d-%d", round, n)
				if status, _ := m.call("POST", "/api/vms", map[string]any{"name": name, "image": "demo"}); status == 201 {
					mu.Lock()
					made[name] = true
					mu.Unlock()
				}
				time.Sleep(5 * time.Millisecond) // a few hundred VMs are enough
			}
		})
		time.Sleep(time.Duration(20+rand.IntN(500)) * time.Millisecond) // any moment will do
		m.process.kill()
		close(stop)
		work.Wait()
		m.start()
	}
	eventually(t, "each change was told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for name := range made {
			if created[name] == "" {
				return false
			}
		}
		return true
	})
	stored := map[string]bool{}
	for _, v := range m.vms() {
		stored[v.Name] = true
	}
	mu.Lock()
	defer mu.Unlock()
	for name := range created {
		if !stored[name] {
			t.Errorf("%s was told and is not stored", name)
		}
	}
	if len(made) == 0 {
		t.Error("no VM was acknowledged")
	}
	status, raw = m.call("GET", "/api/webhooks/"+hook.Id+"/deliveries?limit=1000", map[string]any{})
	if status != 200 {
		t.Fatalf("%d %s", status, raw)
	}
	for _, d := range hvAs[[]vmapi.WebhookDelivery](t, raw) {
		if d.Status == vmapi.WebhookDeliveryStatusFailed {
			t.Errorf("%+v", d)
		}
	}
}
