package record

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Ticket stands for a caller's credentials once, for a short time. It is stored, so that every replica can
// redeem it.
type Ticket struct {
	Hash      string  `db:"hash"`    // of the word
	Subject   string  `db:"subject"` // what it opens
	Owner     string  `db:"owner"`   // the account
	Token     string  `db:"token"`   // sealed
	ExpiresAt db.Time `db:"expires_at"`
}

// TicketLife is how long a ticket can be redeemed.
const TicketLife = 30 * time.Second

// maxTickets is how many tickets of one account can be open.
const maxTickets = 100

// AddTicket stores a ticket of the caller's for a VM's console and screen.
func (s *Store) AddTicket(ctx context.Context, t Ticket, vm *VM) (Ticket, error) {
	t.Owner, t.ExpiresAt = caller.From(ctx).ID, db.At(s.now().Add(TicketLife))
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if err := s.forgetTickets(ctx, tx); err != nil {
			return err
		}
		var open int
		if err := tx.Get(ctx, &open, "SELECT COUNT(*) FROM tickets WHERE owner = ?", t.Owner); err != nil {
			return err
		}
		if open >= maxTickets {
			return fault.New(fault.TooMany, "too many tickets of yours are open").WithRetryAfter(TicketLife)
		}
		if err := tx.Insert(ctx, "tickets", t); err != nil {
			return err
		}
		return s.note(ctx, tx, opening(vm))
	})
	return t, err
}

// TakeTicket removes the ticket with a hash, and returns it. It fails with Unauthenticated if there is none,
// or if its time is over.
func (s *Store) TakeTicket(ctx context.Context, hash string) (t Ticket, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		return tx.Get(ctx, &t, "DELETE FROM tickets WHERE hash = ? RETURNING *", hash)
	})
	if errors.Is(err, db.ErrNoRows) || err == nil && t.ExpiresAt.Before(s.now()) {
		return Ticket{}, fault.New(fault.Unauthenticated, "the ticket is not valid, or no longer; ask for another")
	}
	return t, err
}

// ForgetTickets removes tickets whose time is over.
func (s *Store) ForgetTickets(ctx context.Context) error {
	return s.db.Update(ctx, func(tx *db.Tx) error { return s.forgetTickets(ctx, tx) })
}

func (s *Store) forgetTickets(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, "DELETE FROM tickets WHERE expires_at < ?", db.At(s.now()))
	return err
}

// NoteOpening writes the audit entry for opening a VM's console or screen.
func (s *Store) NoteOpening(ctx context.Context, vm *VM) error { return s.Note(ctx, opening(vm)) }

func opening(vm *VM) audit.Entry {
	return audit.Entry{Action: "vm.console", Target: vm.ID, Tenant: vm.Tenant, Message: vm.Name}
}
