// Package watch keeps what is stored about VMs like what the hypervisor daemon tells.
//
// It follows the daemon's event stream (follow.go), and asks for the VM that an event is about. It also
// compares all VMs with the daemon's (watch.go): at the start, every interval, and whenever events may
// be missing. What was missed while the service, the daemon or the network was down is repaired that
// way.
//
// # Invariants
//
//   - A VM that the daemon does not know is missing, and kept. It is asked for once more before that
//     is stored, because it may have been made while the list was read.
//   - A VM whose host does not answer keeps its last state, and is marked unreachable.
//   - What a job leads to is stored by the job, not by what is seen meanwhile.
//
// It imports driver and record.
package watch

import (
	"context"
	"log/slog"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Watcher compares.
type Watcher struct {
	store  *record.Store
	driver *driver.Driver
	log    *slog.Logger
	away   bool // the daemon did not answer the last time
	nudged chan struct{}
}

// New returns a Watcher.
func New(store *record.Store, d *driver.Driver, log *slog.Logger) *Watcher {
	return &Watcher{store: store, driver: d, log: log, nudged: make(chan struct{}, 1)}
}

// Compare compares all VMs once. Calls must not overlap.
func (w *Watcher) Compare(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	known, err := w.store.Known(ctx)
	if err != nil || len(known) == 0 {
		return err
	}
	list, err := w.driver.List(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !w.away {
			w.log.Warn("the VMs' states are not known: the hypervisor daemon does not answer", "error", err)
			w.away = true
		}
		return w.store.AllUnreached(ctx)
	}
	if w.away {
		w.log.Info("the hypervisor daemon answers again")
		w.away = false
	}
	for i := range known {
		if err := w.compare(ctx, &known[i], list); err != nil {
			return err
		}
	}
	return nil
}

func (w *Watcher) compare(ctx context.Context, r *record.VM, list driver.List) error {
	if seen, ok := list.VMs[r.ID]; ok && seen.DriverID == r.DriverID {
		if r.Disk == 0 { // as in rows of an earlier version
			seen = w.driver.Sized(ctx, r.Tenant, seen)
		}
		if r.Same(seen) {
			return nil
		}
		return w.store.Observed(ctx, r.ID, seen, false)
	}
	if _, away := list.Unreachable[r.Node]; away {
		return w.store.Unreached(ctx, r.ID)
	}
	seen, err := w.driver.Get(ctx, driver.PlaceOf(r))
	switch {
	case err == nil:
		return w.store.Observed(ctx, r.ID, seen, false)
	case fault.Is(err, fault.NotFound) && fault.From(err).Code != driver.CodeUnknownNode:
		if r.State == record.Missing {
			return nil
		}
		w.log.Warn("the hypervisor daemon does not know a VM any more", "vm", r.ID, "name", r.Name)
		return w.store.Observed(ctx, r.ID, record.Vanished(r), false)
	}
	return w.store.Unreached(ctx, r.ID)
}
