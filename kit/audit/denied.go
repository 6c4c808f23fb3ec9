package audit

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// DeniedLimits limits how many denied attempts per minute get their own entry. Further attempts are
// counted, and recorded in one entry per minute.
type DeniedLimits struct {
	PerCaller int // per caller and network
	All       int
}

// DefaultDenied is used if Config sets no limits.
var DefaultDenied = DeniedLimits{PerCaller: 60, All: 600}

// limiter counts denied attempts per minute. It tracks at most limits.All callers.
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

// admit reports whether an attempt gets its own entry.
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

// take returns the number of attempts without an entry, and resets it.
func (l *limiter) take() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.more
	l.more = 0
	return n
}

// giveBack adds attempts that take returned and that could not be recorded.
func (l *limiter) giveBack(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more += n
}

// network returns the part of an address that usually belongs to one caller: the /24 of IPv4, the
// /64 of IPv6.
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

// Deny records a denied attempt from an address, in its own transaction. If there are many attempts
// in a minute, most are only counted: see DeniedLimits.
func (l *Log) Deny(ctx context.Context, address string, e Entry, detail any) error {
	e.Result = Denied
	if !l.denied.admit(clip(e.Actor, maxName)+" "+network(address), l.now()) {
		l.metrics.suppressed.Inc()
		return nil
	}
	return l.db.Update(ctx, func(tx *db.Tx) error { return l.Append(ctx, tx, e, detail) })
}

// recordDenied records the attempts that were only counted in one entry.
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
