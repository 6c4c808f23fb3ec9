package billing

import (
	"context"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const (
	// together is how many VMs are counted in a transaction.
	together = 100
	// askers is how many VMs are asked at a time what they have sent.
	askers = 8
	// askLimit is the timeout for asking all VMs.
	askLimit = 45 * time.Second
	// again is the time between two attempts to follow a host.
	again = 5 * time.Second
	// measures is the longest time between two measurements of a process by the daemon, with some slack.
	measures = 15 * time.Second
)

// Measure counts what all VMs have used until now, as the daemon tells. While the daemon does not answer
// it counts nothing.
func (m *Manager) Measure(ctx context.Context) error {
	err := m.measure(caller.ByItself(ctx))
	if fault.Is(err, fault.Unavailable) {
		m.log.Debug("usage is not counted while the daemon does not answer", "error", err)
		return nil
	}
	return err
}

func (m *Manager) measure(ctx context.Context) error {
	known, err := m.store.Known(ctx)
	if err != nil || len(known) == 0 {
		return err
	}
	at := m.now() // before the answer, so that all of them ran then
	list, err := m.driver.List(ctx)
	if err != nil {
		return err
	}
	if err := m.count(ctx, at, list, nil); err != nil {
		return err
	}
	sent := m.ask(ctx, known, list)
	if len(sent) == 0 {
		return nil
	}
	at = m.now()
	after, err := m.driver.List(ctx)
	if err != nil {
		return err
	}
	// A counter belongs to a run only if it was the same run before and after.
	for id := range sent {
		if !after.VMs[id].StartedAt.Equal(list.VMs[id].StartedAt.Time) {
			delete(sent, id)
		}
	}
	return m.count(ctx, at, after, sent)
}

// count stores what was seen of VMs at a time.
func (m *Manager) count(ctx context.Context, at time.Time, list driver.List, sent map[string]driver.Metrics) error {
	batch := make([]record.Sighting, 0, together)
	for id, seen := range list.VMs {
		s := record.Sighting{VM: id, At: at, Seen: seen}
		if metrics, ok := sent[id]; ok {
			s.Sent, s.SentAt = metrics.NetSentBytes, metrics.At
		}
		if batch = append(batch, s); len(batch) < together {
			continue
		}
		if err := m.store.Sighted(ctx, batch); err != nil {
			return err
		}
		batch = batch[:0]
	}
	if len(batch) == 0 {
		return nil
	}
	return m.store.Sighted(ctx, batch)
}

// ask asks the running VMs what they have sent. Those that do not answer are left out.
func (m *Manager) ask(ctx context.Context, known []record.VM, list driver.List) map[string]driver.Metrics {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var mu sync.Mutex
	sent := map[string]driver.Metrics{}
	turns := make(chan struct{}, askers)
	var asking sync.WaitGroup
	for i := range known {
		r := &known[i]
		if seen, ok := list.VMs[r.ID]; !ok || !seen.State.HasProcess() || ctx.Err() != nil {
			continue
		}
		turns <- struct{}{}
		asking.Go(func() {
			defer func() { <-turns }()
			_ = routine.Call(m.log, "usage of a VM", func() error {
				metrics, err := m.driver.Metrics(ctx, driver.PlaceOf(r))
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					sent[r.ID] = metrics
				}
				return err
			})
		})
	}
	asking.Wait()
	return sent
}

// Follow counts what the daemon's events tell, until ctx ends.
func (m *Manager) Follow(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	m.driver.OnEachNode(ctx, m.log, func(ctx context.Context, node string) {
		for ctx.Err() == nil {
			err := m.read(ctx, node)
			m.log.Debug("the events of a host are not counted", "node", node, "error", err)
			if !backoff.Sleep(ctx, again) {
				return
			}
		}
	})
}

// read counts the events of a host, from the last one that was counted on.
func (m *Manager) read(ctx context.Context, node string) error {
	last, err := m.store.UsageCursor(ctx, node)
	if err != nil {
		return err
	}
	// A run that was seen since then, and of which the stream tells that it ended, ended at that time.
	connected := m.now()
	return m.driver.Events(ctx, node, last, func(e driver.Event) error {
		h := record.UsageEvent{
			Event: e.ID, Node: node, DriverID: e.VM, At: e.At, State: e.State, Gone: e.Gone, Cursor: e.Reset,
		}
		switch {
		case e.Reset:
			if err := m.settle(ctx, node); err != nil {
				return err
			}
		case e.Gone || !e.State.HasProcess():
			if h.RanUntil, err = m.ranUntil(ctx, &h, connected); err != nil {
				return err
			}
		}
		return m.store.Happened(ctx, h)
	})
}

// settle counts what is seen now, and ends the runs of a host that are over: the events that said when
// are lost.
func (m *Manager) settle(ctx context.Context, node string) error {
	at := m.now()
	list, err := m.driver.List(ctx)
	if err != nil {
		return err
	}
	if _, away := list.Unreachable[node]; away {
		return fault.New(fault.Unavailable, "host %s does not answer", node)
	}
	if err := m.count(ctx, at, list, nil); err != nil {
		return err
	}
	return m.store.SettleRuns(ctx, node, at)
}

// ranUntil returns until when a process certainly ran that has ended, or the zero time if the event says
// that. The daemon may have been down when the process ended, and then tells it later; but it measures
// what runs.
func (m *Manager) ranUntil(ctx context.Context, h *record.UsageEvent, connected time.Time) (time.Time, error) {
	r, seen, ok, err := m.store.Uncertain(ctx, h.Node, h.DriverID, h.At, connected)
	if err != nil || !ok || h.At.Sub(seen) <= measures {
		return time.Time{}, err
	}
	measured, step, err := m.driver.Measured(ctx, driver.PlaceOf(&r), seen, h.At)
	switch {
	case fault.Is(err, fault.NotFound):
		return seen, nil // the daemon has removed it
	case err != nil:
		return seen, err
	case !h.At.After(measured.Add(step + measures)):
		return time.Time{}, nil
	case measured.After(seen):
		return measured, nil
	}
	return seen, nil
}

const (
	// keepUsage is how many months usage is kept, and keepInvoices how many invoices are.
	keepUsage    = 25
	keepInvoices = 132
)

// Expire removes usage and invoices that are too old.
func (m *Manager) Expire(ctx context.Context) error {
	now := m.now().UTC()
	return m.store.ForgetUsage(caller.ByItself(ctx), now.AddDate(0, -keepUsage, 0), now.AddDate(0, -keepInvoices, 0))
}
