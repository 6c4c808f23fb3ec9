package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// maxUnderWay is the maximum number of probes in flight: half for backends that answer, half for
// those whose last probe timed out.
const maxUnderWay = 4096

// Options holds the dependencies of a Prober.
type Options struct {
	Log *slog.Logger
	// Dial connects for checks that are not Direct. It must return when ctx ends.
	Dial func(ctx context.Context, id ID, address netip.AddrPort) (net.Conn, error)
	// OnChange is called for each change of state, with the reason in a few words. The first result
	// of a check without a known state counts as a change. The calls for one ID are in order. A
	// call may still arrive for a check that Set removes at the same time.
	OnChange func(id ID, healthy bool, reason string)
	// OnProbe is called with the duration of each probe, and whether it succeeded.
	OnProbe func(took time.Duration, ok bool)
}

// Prober probes a set of backends. The goroutine of Run calls the callbacks of Options, so they
// must return quickly. They may call Set.
type Prober struct {
	options Options
	wake    chan struct{}
	results chan result

	mu     sync.Mutex
	wanted map[ID]Check
	stale  bool // wanted has changed since Run last read it

	// The fields below are used only by Run.
	entries         map[ID]*entry
	due             schedule
	answering, slow lane
	running         sync.WaitGroup
}

// result is the result of a probe.
type result struct {
	entry  *entry
	lane   *lane
	start  time.Time
	took   time.Duration
	reason string
	err    error
}

// New returns a Prober with nothing to probe. OnChange and OnProbe may be nil.
func New(options Options) *Prober {
	if options.OnChange == nil {
		options.OnChange = func(ID, bool, string) {}
	}
	if options.OnProbe == nil {
		options.OnProbe = func(time.Duration, bool) {}
	}
	return &Prober{
		options: options,
		wake:    make(chan struct{}, 1),
		// With a buffer, probes that end while a result is handled need not wait.
		results:   make(chan result, 64),
		entries:   map[ID]*entry{},
		answering: lane{places: maxUnderWay / 2},
		slow:      lane{places: maxUnderWay / 2},
	}
}

// Set replaces the set of checks. A check that is unchanged continues undisturbed. A check that
// changed starts again with a probe at once, from its last state. Set returns an error, and changes
// nothing, if a check is invalid or two checks have the same ID.
func (p *Prober) Set(checks []Check) error {
	wanted := make(map[ID]Check, len(checks))
	for _, c := range checks {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("check of backend %s of %s: %w", c.Backend, c.VIP, err)
		}
		if _, twice := wanted[c.ID]; twice {
			return fault.New(fault.Invalid, "two checks of backend %s of %s", c.Backend, c.VIP)
		}
		if !c.Direct && p.options.Dial == nil {
			return errors.New("a check that is not direct needs Options.Dial")
		}
		wanted[c.ID] = c
	}
	p.mu.Lock()
	p.wanted, p.stale = wanted, true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// Run probes until ctx ends, and returns when the last probe has ended. Call it only once.
func (p *Prober) Run(ctx context.Context) error {
	defer p.running.Wait()
	routine.Keep(ctx, p.options.Log, "health checks", p.run)
	return nil
}

func (p *Prober) run(ctx context.Context) {
	p.renew(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p.adopt(time.Now())
		now := time.Now()
		for e := p.due.next(now); e != nil; e = p.due.next(now) {
			p.begin(ctx, e)
		}
		timer.Reset(p.due.wait(now))
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		case r := <-p.results:
			p.finish(ctx, r)
		}
	}
}

// renew replaces all entries by new ones with the same states. There are entries only if run
// panicked before; the check that was being handled then would never be due again.
func (p *Prober) renew(now time.Time) {
	for id, old := range p.entries {
		old.removed = true
		p.due.remove(old)
		e := &entry{Check: old.Check, health: old.health, slow: old.slow, due: now.Add(firstDelay(old.Interval))}
		p.entries[id] = e
		p.due.add(e)
	}
}

// adopt brings the entries in line with the wanted checks.
func (p *Prober) adopt(now time.Time) {
	p.mu.Lock()
	wanted, stale := p.wanted, p.stale
	p.stale = false
	p.mu.Unlock()
	if !stale {
		return
	}
	for id, e := range p.entries {
		if c, ok := wanted[id]; ok && sameProbe(c, e.Check) {
			continue
		}
		e.removed = true
		p.due.remove(e)
	}
	for id, c := range wanted {
		old := p.entries[id]
		if old != nil && !old.removed {
			continue
		}
		e := &entry{Check: c, health: healthFrom(c.Initial), due: now.Add(firstDelay(c.Interval))}
		if old != nil {
			e.health = health{known: old.health.known, healthy: old.health.healthy}
			e.slow = old.slow
		}
		p.entries[id] = e
		p.due.add(e)
	}
	for id, e := range p.entries {
		if e.removed {
			delete(p.entries, id)
		}
	}
}

// begin starts a probe or queues it.
func (p *Prober) begin(ctx context.Context, e *entry) {
	l := &p.answering
	if e.slow {
		l = &p.slow
	}
	if l.enter(e) {
		p.start(ctx, e, l)
	}
}

func (p *Prober) start(ctx context.Context, e *entry, l *lane) {
	check := e.Check
	r := &result{entry: e, lane: l, start: time.Now(), err: errBroken}
	p.running.Go(func() {
		defer p.deliver(ctx, r)
		_ = routine.Run(p.options.Log, "health check", func() { // logged; r.err stays errBroken
			probing, cancel := context.WithTimeout(ctx, check.Timeout)
			defer cancel()
			r.reason, r.err = p.exchange(probing, check)
		})
	})
}

// errBroken is the result of a probe that panicked.
var errBroken = errors.New("the check broke; see the log")

func (p *Prober) deliver(ctx context.Context, r *result) {
	r.took = time.Since(r.start)
	select {
	case p.results <- *r:
	case <-ctx.Done():
	}
}

// finish records the result of a probe and schedules the next one.
func (p *Prober) finish(ctx context.Context, r result) {
	if next := r.lane.leave(); next != nil {
		p.start(ctx, next, r.lane)
	}
	e := r.entry
	if ctx.Err() != nil || e.removed {
		return
	}
	ok := r.err == nil
	p.options.OnProbe(r.took, ok)
	reason := r.reason
	if !ok {
		reason = failureReason(r.err, e.Timeout)
	}
	e.slow = !ok && timedOut(r.err)
	e.due = r.start.Add(nextDelay(e.Interval))
	p.due.add(e)

	var changed bool
	if e.health, changed = e.health.after(ok, e.Rise, e.Fall); !changed {
		if !ok && e.health.healthy {
			p.options.Log.Debug(
				"probe failed", "vip", e.VIP, "backend", e.Backend, "reason", reason, "failures", e.health.against,
			)
		}
		return
	}
	p.options.OnChange(e.ID, ok, reason)
}
