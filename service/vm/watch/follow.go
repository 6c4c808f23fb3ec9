package watch

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
)

// again is the time between two attempts to follow a host that does not answer.
const again = 5 * time.Second

// Follow reads the event streams of the daemon, or of all hosts of the fleet, until ctx ends, so that
// what happens to VMs is seen at once.
func (w *Watcher) Follow(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	w.driver.OnEachNode(ctx, w.log, w.follow)
}

// follow reads the event stream of a host again and again.
func (w *Watcher) follow(ctx context.Context, node string) {
	last := ""
	for {
		newest, err := w.driver.Follow(ctx, node, last, func(id string) { w.look(ctx, node, id) }, w.nudge)
		if last = newest; ctx.Err() != nil {
			return
		}
		w.log.Debug("the events of a host are not read", "node", node, "error", err)
		w.nudge() // whether it is away is told by a comparison
		if !backoff.Sleep(ctx, again) {
			return
		}
	}
}

// look stores what the daemon tells about one VM, if it is one of this service's.
func (w *Watcher) look(ctx context.Context, node, id string) {
	r, err := w.store.Placed(ctx, node, id)
	if err != nil {
		if !fault.Is(err, fault.NotFound) {
			w.nudge()
		}
		return
	}
	seen, err := w.driver.Get(ctx, driver.PlaceOf(&r))
	if err == nil {
		err = w.store.Observed(ctx, r.ID, seen, false)
	}
	if err != nil {
		w.nudge()
	}
}

// nudge has all VMs compared soon.
func (w *Watcher) nudge() {
	select {
	case w.nudged <- struct{}{}:
	default:
	}
}

// Nudged receives a value when Compare should run soon.
func (w *Watcher) Nudged() <-chan struct{} { return w.nudged }
