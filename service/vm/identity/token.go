package identity

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// revokedTime is how long it takes until other processes notice that a token was revoked.
	revokedTime = 2 * time.Second
	// maxRevoked is how many revoked tokens of an account are stored. At the next one, all tokens
	// of the account end, for which no list is needed.
	maxRevoked = 1000
)

// Caller is who holds a token.
type Caller struct {
	UserID   string
	Username string
	Role     Role
	Tenant   string // empty: all tenants
	TokenID  string
	Expires  time.Time
}

func callerOf(a account, c auth.Claims) Caller {
	return Caller{
		UserID: a.ID, Username: a.Username, Role: Lower(Role(c.Role), a.effective()), Tenant: a.Tenant,
		TokenID: c.ID, Expires: c.Expires,
	}
}

var errNoToken = fault.New(fault.Unauthenticated, "Authentication required")

// Check returns who holds a token, and what they may do now. The fault is Unauthenticated if the
// token is not valid or no longer so, and Unavailable if that cannot be told.
func (s *Service) Check(ctx context.Context, token string) (Caller, error) {
	claims, err := s.sessions.Check(ctx, token)
	if err != nil {
		return Caller{}, unauthenticated(err)
	}
	a, err := s.account(ctx, claims.Subject)
	if err != nil {
		return Caller{}, err
	}
	c := callerOf(a, claims)
	if a.ID == "" || a.Epoch != claims.Epoch || a.Tenant != claims.Tenant || !c.Role.Valid() {
		return Caller{}, errNoToken
	}
	return c, nil
}

// unauthenticated gives all reasons why a token is not valid the same message.
func unauthenticated(err error) error {
	if fault.Is(err, fault.Unauthenticated) {
		return fault.Wrap(fault.Unauthenticated, err, "%s", errNoToken.Message)
	}
	return err
}

// isRevoked reports whether a token was revoked, as of revokedTime ago at most.
func (s *Service) isRevoked(ctx context.Context, id string) (bool, error) {
	revoked, found, mark := s.revoked.get(id, revokedTime)
	if found {
		return revoked, nil
	}
	var n int
	if err := s.db.Get(ctx, &n, "SELECT COUNT(*) FROM revoked_tokens WHERE id = ?", id); err != nil {
		return false, err
	}
	s.revoked.put(id, n > 0, mark)
	return n > 0, nil
}

// Logout revokes a token until it expires. It also works for a token whose account is gone. The fault
// is Unauthenticated if the token is not valid.
func (s *Service) Logout(ctx context.Context, token string) error {
	claims, err := s.sessions.Check(ctx, token)
	if err != nil {
		return unauthenticated(err)
	}
	return s.end(ctx, claims.Subject, func(account) auth.Claims { return claims })
}

// End revokes the token of a caller until it expires.
func (s *Service) End(ctx context.Context, by Caller) error {
	return s.end(ctx, by.Username, func(a account) auth.Claims {
		return auth.Claims{
			ID: by.TokenID, Subject: by.Username, Role: string(by.Role), Tenant: by.Tenant, Epoch: a.Epoch, Expires: by.Expires,
		}
	})
}

// end revokes a token of an account, if the account is still there.
func (s *Service) end(ctx context.Context, username string, claimsOf func(account) auth.Claims) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		a, found, err := find(ctx, tx, username, tx.ForUpdate())
		if err != nil || !found {
			return err
		}
		claims := claimsOf(a)
		// Those that have expired go whenever one is added.
		if _, err := tx.Exec(ctx, "DELETE FROM revoked_tokens WHERE expires_at < ?", db.At(s.now())); err != nil {
			return err
		}
		if err := s.revoke(ctx, tx, a, claims); err != nil {
			return err
		}
		tx.OnCommit(func() { s.revoked.drop(claims.ID) })
		return s.cfg.Record(ctx, tx, Event{
			By: callerOf(a, claims), Action: "auth.logout", Target: a.Username, Tenant: a.Tenant, Message: "logout",
			Detail: map[string]any{"token": claims.ID},
		})
	})
}

func (s *Service) revoke(ctx context.Context, tx *db.Tx, a account, claims auth.Claims) error {
	var n int
	if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM revoked_tokens WHERE account_id = ?", a.ID); err != nil {
		return err
	}
	if n < maxRevoked {
		_, err := tx.Exec(ctx, "INSERT INTO revoked_tokens (id, account_id, expires_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
			claims.ID, a.ID, db.At(claims.Expires))
		return err
	}
	if a.Epoch != claims.Epoch { // over already
		return nil
	}
	if _, err := tx.Exec(ctx, "DELETE FROM revoked_tokens WHERE account_id = ?", a.ID); err != nil {
		return err
	}
	a.Epoch = newEpoch()
	tx.OnCommit(func() { s.changed(a.Username) })
	return save(ctx, tx, a)
}
