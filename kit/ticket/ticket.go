// Package ticket issues words that stand for a caller's credentials once, for a short time.
//
// Browsers cannot send headers with a WebSocket or when they open another address, and a token in a
// URL ends up in logs. A ticket does no harm there: it opens one thing, once, and within half a
// minute.
//
// # Invariants
//
//   - A ticket opens what it was issued for, once, and within Life. Only its hash is stored.
//   - The number of open tickets is bounded, in total and per caller.
//
// It imports auth, fault and httpserve.
package ticket

import (
	"slices"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Life is how long a ticket can be redeemed.
const Life = 30 * time.Second

// Limits on unredeemed tickets: in total, and per caller.
const (
	maxOpen     = 10_000
	maxOfCaller = 1_000
)

var (
	errTooMany = fault.New(fault.TooMany, "too many tickets are open").WithRetryAfter(Life)
	errBad     = fault.New(
		fault.Unauthenticated, "the ticket is not good, or no longer; ask for another",
	)
)

// Tickets issues words that stand for the credentials of a caller C. They are stored in memory
// only: after a restart, clients request new ones. It is safe for concurrent use.
type Tickets[C any] struct {
	prefix string
	owner  func(C) string
	now    func() time.Time
	slots  *httpserve.Slots

	mu    sync.Mutex
	open  map[string]ticket[C] // by the hash of the word
	swept time.Time            // when expired tickets were last removed
}

type ticket[C any] struct {
	caller  C
	subject string
	verbs   []string
	expires time.Time
	release func() // releases its slot
}

// New returns Tickets whose words begin with prefix, such as "mtk_". owner returns the name
// under which a caller's tickets are counted.
func New[C any](prefix string, owner func(C) string, now func() time.Time) *Tickets[C] {
	return &Tickets[C]{
		prefix: prefix, owner: owner, now: now,
		slots: httpserve.NewSlots(maxOpen, maxOfCaller), open: map[string]ticket[C]{},
	}
}

// Issue issues a ticket for a caller and returns its expiry. The ticket opens the subject, such as
// a VM's id, for one of the verbs, such as its console, and for nothing else. An API that does not
// ask for the purpose of a ticket passes all its verbs. It fails with a TooMany fault if the
// caller, or all callers together, have too many open tickets.
func (t *Tickets[C]) Issue(caller C, subject string, verbs ...string) (word string, expires time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.sweep(now)
	release, ok := t.slots.Take(t.owner(caller))
	if !ok {
		return "", time.Time{}, errTooMany
	}
	word, expires = auth.NewToken(t.prefix), now.Add(Life)
	t.open[auth.HashToken(word)] = ticket[C]{caller, subject, verbs, expires, release}
	return word, expires, nil
}

// Redeem returns the caller of a ticket. The ticket is spent even if it was issued for something
// else. An invalid ticket is a fault of kind Unauthenticated.
func (t *Tickets[C]) Redeem(word, subject, verb string) (caller C, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := auth.HashToken(word)
	found, ok := t.open[hash]
	if !ok {
		return caller, errBad
	}
	t.drop(hash)
	if found.subject != subject || !slices.Contains(found.verbs, verb) || found.expires.Before(t.now()) {
		return caller, errBad
	}
	return found.caller, nil
}

// sweep removes expired tickets. It scans all of them, so it runs at most once a second. The lock
// must be held.
func (t *Tickets[C]) sweep(now time.Time) {
	if now.Sub(t.swept) < time.Second {
		return
	}
	t.swept = now
	for hash, old := range t.open {
		if old.expires.Before(now) {
			t.drop(hash)
		}
	}
}

// drop removes an open ticket. The lock must be held.
func (t *Tickets[C]) drop(hash string) {
	t.open[hash].release()
	delete(t.open, hash)
}
