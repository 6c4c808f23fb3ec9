package ticket_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/ticket"
)

// counter is a clock that is set manually.
type counter struct{ at time.Time }

func (c *counter) now() time.Time { return c.at }

func newTickets() (*ticket.Tickets[string], *counter) {
	clock := &counter{time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	return ticket.New("tst_", func(caller string) string { return caller }, clock.now), clock
}

func issue(t *testing.T, tickets *ticket.Tickets[string], caller, subject string, verbs ...string) string {
	t.Helper()
	word, _, err := tickets.Issue(caller, subject, verbs...)
	if err != nil {
		t.Fatal(err)
	}
	return word
}

func TestATicketIsGoodOnceForItsSubjectAndItsVerbs(t *testing.T) {
	t.Parallel()
	tickets, _ := newTickets()
	word := issue(t, tickets, "ann", "vm-1", "console", "screen")
	if who, err := tickets.Redeem(word, "vm-1", "screen"); err != nil || who != "ann" {
		t.Errorf("%q, %v", who, err)
	}
	if who, err := tickets.Redeem(word, "vm-1", "screen"); !fault.Is(err, fault.Unauthenticated) || who != "" {
		t.Errorf("again: %q, %v", who, err)
	}
	for _, c := range []struct{ subject, verb string }{
		{"vm-2", "console"}, {"vm-1", "screen"}, {"", "console"}, {"vm-1", ""},
	} {
		word := issue(t, tickets, "ann", "vm-1", "console")
		if who, err := tickets.Redeem(word, c.subject, c.verb); !fault.Is(err, fault.Unauthenticated) || who != "" {
			t.Errorf("%+v: %q, %v", c, who, err)
		}
		if _, err := tickets.Redeem(word, "vm-1", "console"); err == nil {
			t.Errorf("%+v: the ticket was not spent", c)
		}
	}
	for _, word := range []string{"", "tst_", strings.Repeat("x", 1<<16)} {
		if _, err := tickets.Redeem(word, "vm-1", "console"); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%.10q: %v", word, err)
		}
	}
}

func TestATicketIsGoodForHalfAMinute(t *testing.T) {
	t.Parallel()
	tickets, clock := newTickets()
	word, expires, err := tickets.Issue("ann", "vm-1", "console")
	if err != nil || expires != clock.at.Add(30*time.Second) || !strings.HasPrefix(word, "tst_") {
		t.Fatalf("%q until %s, %v", word, expires, err)
	}
	late := issue(t, tickets, "ann", "vm-1", "console")
	clock.at = expires
	if _, err := tickets.Redeem(word, "vm-1", "console"); err != nil {
		t.Error(err)
	}
	clock.at = expires.Add(1)
	if _, err := tickets.Redeem(late, "vm-1", "console"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("after its time: %v", err)
	}
}

func TestOneCallerCannotUseUpAllTickets(t *testing.T) {
	t.Parallel()
	tickets, clock := newTickets()
	for caller := range 10 {
		for range 1_000 {
			issue(t, tickets, fmt.Sprint(caller), "vm-1", "console")
		}
		_, _, err := tickets.Issue(fmt.Sprint(caller), "vm-1", "console")
		if f := fault.From(err); f == nil || f.Kind != fault.TooMany || f.RetryAfter != ticket.Life {
			t.Fatalf("caller %d: %v", caller, err)
		}
		clock.at = clock.at.Add(time.Second)
	}
	if _, _, err := tickets.Issue("eve", "vm-1", "console"); !fault.Is(err, fault.TooMany) {
		t.Fatalf("beyond all tickets: %v", err)
	}
	clock.at = clock.at.Add(ticket.Life - 10*time.Second + 1) // those of the first caller have expired
	word := issue(t, tickets, "0", "vm-1", "console")
	for range 999 {
		issue(t, tickets, "eve", "vm-1", "console")
	}
	if _, _, err := tickets.Issue("eve", "vm-1", "console"); !fault.Is(err, fault.TooMany) {
		t.Fatalf("beyond all tickets: %v", err)
	}
	if _, err := tickets.Redeem(word, "vm-1", "console"); err != nil {
		t.Fatal(err)
	}
	issue(t, tickets, "eve", "vm-1", "console") // in place of the one that was redeemed
}

func TestTicketsHoldHashesOnly(t *testing.T) {
	t.Parallel()
	tickets, _ := newTickets()
	word := issue(t, tickets, "ann", "vm-1", "console")
	held := fmt.Sprintf("%+v", tickets)
	if strings.Contains(held, word) || strings.Contains(held, strings.TrimPrefix(word, "tst_")) {
		t.Error("a ticket is held as it was issued")
	}
	if !strings.Contains(held, "vm-1") {
		t.Errorf("this does not show what is held: %s", held)
	}
}
