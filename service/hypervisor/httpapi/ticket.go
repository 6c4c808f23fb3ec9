package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// ticketLife is how long a ticket can be redeemed.
const ticketLife = 30 * time.Second

// maxTickets bounds those that nobody redeemed.
const maxTickets = 10_000

// tickets open one socket each, in place of credentials: browsers cannot send headers
// with a WebSocket, and a token in a URL ends up in logs.
type tickets struct {
	now func() time.Time

	mu     sync.Mutex
	issued map[string]ticket // by the hash
}

type ticket struct {
	vm      string
	caller  caller.Caller
	expires time.Time
}

func newTickets(now func() time.Time) *tickets {
	return &tickets{now: now, issued: map[string]ticket{}}
}

// issue makes a ticket for a VM, and says until when it is good.
func (t *tickets) issue(vm string, c caller.Caller) (string, time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for hash, old := range t.issued {
		if old.expires.Before(now) {
			delete(t.issued, hash)
		}
	}
	if len(t.issued) >= maxTickets {
		return "", time.Time{}, fault.New(fault.TooMany, "too many tickets are open").WithRetryAfter(ticketLife)
	}
	word, expires := auth.NewToken("mtk_"), now.Add(ticketLife)
	t.issued[auth.HashToken(word)] = ticket{vm, c, expires}
	return word, expires, nil
}

// redeem tells whose ticket it is; it is good once, for its VM.
func (t *tickets) redeem(word, vm string) (caller.Caller, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := auth.HashToken(word)
	found, ok := t.issued[hash]
	delete(t.issued, hash)
	if !ok || found.vm != vm || found.expires.Before(t.now()) {
		return caller.Caller{}, fault.New(
			fault.Unauthenticated, "the ticket is not good, or no longer; ask for another",
		)
	}
	return found.caller, nil
}

// ticket makes a word that opens a socket to the VM.
func (a *API) ticket(ctx context.Context, id string) (string, time.Time, error) {
	r, err := a.store.VM(ctx, id)
	if err != nil {
		return "", time.Time{}, err
	}
	word, expires, err := a.tickets.issue(id, caller.From(ctx))
	if err != nil {
		return "", time.Time{}, err
	}
	return word, expires, a.store.Note(ctx, openingOf(&r))
}

// openingOf is the audit entry of an opening of a VM's console or screen.
func openingOf(r *record.VM) audit.Entry {
	return audit.Entry{Action: "vm.console", Target: r.ID, Tenant: r.Tenant, Message: r.Name}
}
