package identity

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var (
	errHostPassword = fault.New(fault.Conflict, "your password is that of an account of the host: change it there").
			WithCode("host_password")
	errWrongPassword = fault.InvalidField("current_password", "is wrong")
)

// ChangePassword gives the caller another password, and ends all tokens of the account. A wrong current password
// counts as a failed login. The faults are Invalid, Conflict for an account of the host, and TooMany after too
// many failures.
func (s *Service) ChangePassword(ctx context.Context, by Caller, current, next string) error {
	if utf8.RuneCountInString(next) < minPassword {
		return fault.InvalidField("new_password", "must have at least %d characters", minPassword)
	}
	try, leave, err := s.begin(ctx, by.Username)
	if err != nil {
		return err
	}
	defer leave()
	// Whoever hangs up must not avoid the outcome.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTime)
	defer cancel()
	err = s.changePassword(ctx, by, try, current, next)
	if err == nil {
		return nil
	}
	s.settle(ctx, try, errors.Is(err, errWrongPassword))
	if errors.Is(err, errWrongPassword) {
		err = errors.Join(err, s.cfg.Deny(ctx, Event{
			By: by, Action: "auth.password", Target: by.Username, Tenant: by.Tenant, Message: "wrong password",
		}))
	}
	return err
}

func (s *Service) changePassword(ctx context.Context, by Caller, try attempt, current, next string) error {
	before, found, err := find(ctx, s.db, by.Username, "")
	if err == nil && (!found || before.ID != by.UserID) {
		err = errNoToken
	}
	if err != nil {
		return err
	}
	if before.Source != Local {
		return errHostPassword
	}
	right, err := s.cfg.Hasher.VerifyPassword(ctx, before.PasswordHash, current)
	if err != nil {
		return err
	}
	if !right {
		return errWrongPassword
	}
	hash, err := s.cfg.Hasher.HashPassword(ctx, next)
	if err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		a, err := own(ctx, tx, by)
		switch {
		case err != nil:
			return err
		case a.PasswordHash != before.PasswordHash:
			return fault.New(fault.Conflict, "your password was changed meanwhile")
		}
		a.PasswordHash, a.Epoch, a.UpdatedAt = hash, newEpoch(), db.At(s.now())
		if err := save(ctx, tx, a); err != nil {
			return err
		}
		// As with codes, success does not clear the user's failures.
		if err := try.released(ctx, tx); err != nil {
			return err
		}
		tx.OnCommit(func() { s.changed(a.Username) })
		return s.cfg.Record(ctx, tx, Event{
			By: by, Action: "auth.password", Target: a.Username, Tenant: a.Tenant, Message: "password changed",
		})
	})
}
