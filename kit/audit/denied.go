package audit

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// DeniedLimits bound how many denied attempts get an entry of their own in a minute. What exceeds
// them is counted, and gets one entry a minute.
type DeniedLimits struct {
	PerCaller int // of one caller from one network
	All       int
}

// DefaultDenied are the limits of a Config without any.
var DefaultDenied = DeniedLimits{PerCaller: 60, All: 600}

// limiter counts denied attempts by the minute. It holds at most limits.All callers.
type limiter struct {
	limits DeniedLimits

	mu      sync.Mutex
	began   time.Time
	callers map[string]int
	all     int
	more    int64 // attempts without an entry
}

func newLimiter(limits DeniedLimits) *limiter {
	if limits == (DeniedLimits{}) {
		limits = DefaultDenied
	}
	return &limiter{limits: limits, callers: map[string]int{}}
}

// admit says whether an attempt gets an entry.
func (l *limiter) admit(caller string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := now.Sub(l.began); age >= time.Minute || age < 0 {
		l.began, l.all = now, 0
		clear(l.callers)
	}
	if l.all >= l.limits.All || l.callers[caller] >= l.limits.PerCaller {
		l.more++
		return false
	}
	l.all++
	l.callers[caller]++
	return true
}

// take returns the number of attempts without an entry, and begins to count anew.
func (l *limiter) take() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.more
	l.more = 0
	return n
}

// giveBack counts attempts that take handed out, and that could not be recorded.
func (l *limiter) giveBack(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more += n
}

// network is the part of an address that one caller usually has: the /24 of IPv4, the /64 of IPv6.
func network(address string) string {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return clip(address, maxName)
	}
	addr = addr.Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 24
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return addr.String()
	}
	return prefix.String()
}

// Deny records a denied attempt from an address, in a transaction of its own. Of many attempts in a
// minute, most are only counted: see DeniedLimits.
func (l *Log) Deny(ctx context.Context, address string, e Entry, detail any) error {
	e.Result = Denied
	if !l.denied.admit(clip(e.Actor, maxName)+" "+network(address), l.now()) {
		l.metrics.suppressed.Inc()
		return nil
	}
	return l.db.Update(ctx, func(tx *db.Tx) error { return l.Append(ctx, tx, e, detail) })
}

// recordDenied writes the entry for the attempts that have none.
func (l *Log) recordDenied(ctx context.Context) error {
	n := l.denied.take()
	if n == 0 {
		return nil
	}
	e := Entry{
		Actor:     "mainstay",
		ActorType: System,
		Action:    ActionDenied,
		Result:    Denied,
		Message:   fmt.Sprintf("%d more denied attempts", n),
	}
	err := l.db.Update(ctx, func(tx *db.Tx) error { return l.Append(ctx, tx, e, map[string]int64{"attempts": n}) })
	if err != nil {
		l.denied.giveBack(n)
	}
	return err
}
