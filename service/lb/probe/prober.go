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

// maxUnderWay bounds the probes under way: half for backends that answer, half for
// those that last did not in time.
const maxUnderWay = 4096

// Options are what a Prober needs from its surroundings.
type Options struct {
	Log *slog.Logger
	// Dial connects for checks that are not Direct. It must return when ctx ends.
	Dial func(ctx context.Context, id ID, address netip.AddrPort) (net.Conn, error)
	// OnChange is told of each change of state, with the reason in a few words; the
	// first result of a check without a known state is one. For one ID the calls come
	// in order. One may still come for a check that Set removes at that moment.
	OnChange func(id ID, healthy bool, reason string)
	// OnProbe is told how long each probe took, and whether it succeeded.
	OnProbe func(took time.Duration, ok bool)
}

// Prober probes a set of backends. The callbacks of its Options are called by the
// goroutine of Run, so they must be quick; they may call Set.
type Prober struct {
	options Options
	wake    chan struct{}
	results chan result

	mu     sync.Mutex
	wanted map[ID]Check
	stale  bool // wanted has changed since Run looked

	// Run's own.
	entries         map[ID]*entry
	due             schedule
	answering, slow lane
	running         sync.WaitGroup
}

// result is what a probe found out.
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
		// Probes that end while a result is being looked at need not wait for that.
		results:   make(chan result, 64),
		entries:   map[ID]*entry{},
		answering: lane{places: maxUnderWay / 2},
		slow:      lane{places: maxUnderWay / 2},
	}
}

// Set replaces the wanted set of checks. A check that was wanted before as it is now
// continues undisturbed. One that changed begins anew, from the state it was in, with a
// probe at once. Checks that are wrong, or two of one ID, are an error and change nothing.
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

// Run probes until ctx ends, and returns when the last probe is over. It is called once.
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

// renew makes all entries anew, in the states that they were in. There are none unless a panic
// ended run before; the check whose turn it was would never be due again.
func (p *Prober) renew(now time.Time) {
	for id, old := range p.entries {
		old.removed = true
		p.due.remove(old)
		e := &entry{Check: old.Check, health: old.health, slow: old.slow, due: now.Add(firstDelay(old.Interval))}
		p.entries[id] = e
		p.due.add(e)
	}
}

// adopt makes the entries what Set wants.
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

// begin starts a probe, or puts it in line.
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
		_ = routine.Run(p.options.Log, "health check", func() { // logged; err says that it failed
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

// finish takes in the result of a probe: it counts, and the next one gets its time.
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
