package driver

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Event is something that happened to a VM at the daemon.
type Event struct {
	ID    string // of the event; it grows
	VM    string // the daemon's id
	Kind  string
	At    time.Time    // by the host's clock
	State record.State // then
	Reset bool         // events may be missing before this one; nothing else is set but ID
	Gone  bool         // the daemon has removed the VM
}

// Events reads what happens to VMs on a host, like Follow, until ctx ends, the stream breaks, or use
// fails, which are all errors. last is the id of the last event that was used; empty: none.
func (d *Driver) Events(ctx context.Context, node, last string, use func(e Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	err := d.stream(ctx, Place{Node: node}, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		var params hypervisorapi.WatchVMsParams
		if last != "" {
			params.LastEventID = &last
		}
		return c.WatchVMs(ctx, &params, acceptEvents)
	}, func(kind, id, data string) {
		var told hypervisorapi.VMEvent
		e := Event{ID: id, Reset: kind == "reset"}
		switch {
		case failed != nil || !e.Reset && (kind != "vm" || json.Unmarshal([]byte(data), &told) != nil):
			return
		case !e.Reset:
			e.VM, e.Kind, e.At, e.Gone = told.VmId, told.Kind, told.At, told.State == nil
			if told.State != nil {
				e.State = stateOf(*told.State)
			}
		}
		if failed = use(e); failed != nil {
			cancel()
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// Measured returns when the last step begins in which the daemon has measured a VM's process, of those
// between two times, and how long steps are. It measures what runs every few seconds. The zero time
// says that it has not measured the process, or does not know any more.
func (d *Driver) Measured(
	ctx context.Context, at Place, since, until time.Time,
) (last time.Time, step time.Duration, err error) {
	points := 1000
	h, err := call[hypervisorapi.VMHistory](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.GetVMHistory(ctx, at.ID, &hypervisorapi.GetVMHistoryParams{Since: &since, Points: &points})
		})
	for _, p := range h.Points {
		if !p.At.After(until) {
			last = p.At
		}
	}
	return last, time.Duration(h.StepSeconds) * time.Second, err
}

// lookForNodes is how often the hosts of a fleet are listed, to follow new ones.
const lookForNodes = time.Minute

// OnEachNode runs follow for the daemon, or for each host of the fleet, until ctx ends.
func (d *Driver) OnEachNode(ctx context.Context, log *slog.Logger, follow func(ctx context.Context, node string)) {
	if !d.cfg.Fleet {
		follow(ctx, "")
		return
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	known := map[string]bool{}
	for {
		nodes, err := d.Nodes(ctx)
		if err != nil && ctx.Err() == nil {
			log.Debug("the hosts of the fleet are not known", "error", err)
		}
		for _, n := range nodes {
			if !known[n.Name] {
				known[n.Name] = true
				followers.Go(func() {
					routine.Keep(ctx, log, "follow "+n.Name, func(ctx context.Context) { follow(ctx, n.Name) })
				})
			}
		}
		if !backoff.Sleep(ctx, lookForNodes) {
			return
		}
	}
}
