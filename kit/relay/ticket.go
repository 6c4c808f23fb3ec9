package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// TicketLife is how long a ticket can be redeemed.
const TicketLife = 30 * time.Second

// The bounds on tickets that nobody has redeemed: in all, and of one caller.
const (
	maxTickets         = 10_000
	maxTicketsOfCaller = 1_000
)

var (
	errTooManyTickets = fault.New(fault.TooMany, "too many tickets are open").WithRetryAfter(TicketLife)
	errBadTicket      = fault.New(
		fault.Unauthenticated, "the ticket is not good, or no longer; ask for another",
	)
)

// Tickets are words that stand for the credentials of a caller C, to open one socket each. Browsers
// cannot send headers with a WebSocket, and a token in a URL ends up in logs. Tickets are held in
// memory only: after a restart, clients ask for others. They are safe for concurrent use.
type Tickets[C any] struct {
	prefix string
	owner  func(C) string
	now    func() time.Time
	slots  *httpserve.Slots

	mu    sync.Mutex
	open  map[string]ticket[C] // by the hash of the word
	swept time.Time            // when those that have expired were forgotten last
}

type ticket[C any] struct {
	caller  C
	subject string
	verbs   []string
	expires time.Time
	release func() // gives back its slot
}

// NewTickets makes Tickets whose words begin with prefix, such as "mtk_". owner says under which
// name the tickets of a caller are counted together.
func NewTickets[C any](prefix string, owner func(C) string, now func() time.Time) *Tickets[C] {
	return &Tickets[C]{
		prefix: prefix, owner: owner, now: now,
		slots: httpserve.NewSlots(maxTickets, maxTicketsOfCaller), open: map[string]ticket[C]{},
	}
}

// Issue makes a ticket for a caller, and says until when it is good. It opens the subject, such as
// a VM's id, for one of the verbs, such as its console, and for nothing else. An API that does not
// ask what a ticket is for names all verbs that it has. It fails with a TooMany fault if the caller,
// or everybody together, has too many tickets open.
func (t *Tickets[C]) Issue(caller C, subject string, verbs ...string) (word string, expires time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.sweep(now)
	release, ok := t.slots.Take(t.owner(caller))
	if !ok {
		return "", time.Time{}, errTooManyTickets
	}
	word, expires = auth.NewToken(t.prefix), now.Add(TicketLife)
	t.open[auth.HashToken(word)] = ticket[C]{caller, subject, verbs, expires, release}
	return word, expires, nil
}

// Redeem says whose ticket it is. The ticket is spent, also if it is for something else. A ticket
// that is not good is a fault of kind Unauthenticated.
func (t *Tickets[C]) Redeem(word, subject, verb string) (caller C, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := auth.HashToken(word)
	found, ok := t.open[hash]
	if !ok {
		return caller, errBadTicket
	}
	t.drop(hash)
	if found.subject != subject || !slices.Contains(found.verbs, verb) || found.expires.Before(t.now()) {
		return caller, errBadTicket
	}
	return found.caller, nil
}

// sweep forgets tickets that have expired. It looks at all of them, so it does that once a second. The
// lock is held.
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

// drop forgets an open ticket. The lock is held.
func (t *Tickets[C]) drop(hash string) {
	t.open[hash].release()
	delete(t.open, hash)
}
