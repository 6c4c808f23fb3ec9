package identity

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
)

// loginTime is how long a login may take once it has its turn. It is longer than the host may take.
const loginTime = 30 * time.Second

// Session is a token and whose it is.
type Session struct {
	Token     string
	UserID    string // a UUID
	Role      Role
	Username  string
	Tenant    string // empty: all tenants
	ExpiresAt time.Time
}

var errBadLogin = fault.New(fault.Unauthenticated, "Invalid credentials")

// Login exchanges a username and a password for a token. code is the code of the second factor, or
// one of the recovery codes, for an account that has one, and is ignored otherwise.
//
// The fault is Invalid for what cannot be a username, Unauthenticated for wrong credentials, with the
// code "totp_required" or "bad_totp" if the password was right and the code is missing or wrong,
// TooMany after too many failures, and Unavailable if the host's accounts cannot be checked.
func (s *Service) Login(ctx context.Context, username, password, code string) (Session, error) {
	if err := checkUsername(username); err != nil {
		return Session{}, err
	}
	try, leave, err := s.begin(ctx, username)
	if err != nil {
		return Session{}, err
	}
	defer leave()
	// Whoever hangs up must not avoid the outcome.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTime)
	defer cancel()

	proven, err := s.checkPassword(ctx, username, password)
	if err != nil {
		return Session{}, s.refuse(ctx, try, username, err)
	}
	return s.open(ctx, try, proven, username, code)
}

// proof is an account whose password was right.
type proof struct {
	local account
	host  *pam.Account // nil: local
}

// checkPassword returns whose password it is.
func (s *Service) checkPassword(ctx context.Context, username, password string) (proof, error) {
	a, found, err := find(ctx, s.db, username, "")
	if err != nil {
		return proof{}, err
	}
	var right bool
	switch {
	case found && a.Source == Local:
		right, err = s.cfg.Hasher.VerifyPassword(ctx, a.PasswordHash, password)
		right = right && !s.cfg.HostOnly
	case s.cfg.Host != nil:
		host, err := s.cfg.Host.Authenticate(ctx, username, password)
		if fault.Is(err, fault.Unauthenticated) {
			return proof{}, errBadLogin
		}
		return proof{host: &host}, err
	default:
		right, err = s.cfg.Hasher.VerifyUnknown(ctx, password)
	}
	if err == nil && !right {
		err = errBadLogin
	}
	return proof{local: a}, err
}

// refuse settles an attempt that ends with an error, and returns the error.
func (s *Service) refuse(ctx context.Context, try attempt, username string, err error) error {
	// A full table of hashes or a database that is away has not looked at the password.
	unchecked := errors.Is(err, pam.ErrNotAsked) || !fault.Is(err, fault.Unauthenticated) && !hostFailed(err)
	s.settle(ctx, try, !unchecked)
	if !fault.Is(err, fault.Unauthenticated) {
		s.cfg.Log.WarnContext(ctx, "a login could not be checked", "username", username, "err", err)
		return err
	}
	return s.denied(ctx, username, err)
}

// hostFailed reports whether the host was asked and has not answered.
func hostFailed(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Code == "host_accounts_unavailable"
}

// denied records a refused login and returns the reason.
func (s *Service) denied(ctx context.Context, username string, reason error) error {
	e := Event{
		By: Caller{Username: username}, Action: "auth.login", Target: username, Message: "login failed",
		Detail: map[string]any{"reason": fault.From(reason).PublicCode()},
	}
	return errors.Join(reason, s.cfg.Deny(ctx, e))
}

// open opens a session for whoever has proven their password, if the code is right, too.
func (s *Service) open(ctx context.Context, try attempt, p proof, username, code string) (out Session, err error) {
	var refused error
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		refused = nil
		a, err := s.admit(ctx, tx, p)
		if err == nil {
			err = s.checkCode(ctx, tx, a, code)
		}
		if fault.Is(err, fault.Unauthenticated) {
			refused = err
			if errors.Is(err, errCodeRequired) {
				return try.released(ctx, tx)
			}
			return try.failed(ctx, tx, s.now())
		}
		if err != nil {
			return err
		}
		if err := try.succeeded(ctx, tx); err != nil {
			return err
		}
		var caller Caller
		if out, caller, err = s.issue(a); err != nil {
			return err
		}
		tx.OnCommit(func() { s.changed(a.Username) })
		return s.cfg.Record(ctx, tx, Event{
			By: caller, Action: "auth.login", Target: a.Username, Tenant: a.Tenant, Message: "login",
			Detail: map[string]any{"source": a.Source, "role": a.effective(), "token": caller.TokenID},
		})
	})
	switch {
	case err != nil:
		s.settle(ctx, try, false)
		return Session{}, err
	case errors.Is(refused, errCodeRequired):
		return Session{}, refused
	case refused != nil:
		return Session{}, s.denied(ctx, username, refused)
	}
	return out, nil
}

// admit returns the account as it is in the transaction. An account of the host that is new here
// gets its row.
func (s *Service) admit(ctx context.Context, tx *db.Tx, p proof) (account, error) {
	name := p.local.Username
	if p.host != nil {
		name = p.host.Username
		if !usernamePattern.MatchString(name) { // the host's own spelling
			return account{}, errBadLogin
		}
	}
	a, found, err := find(ctx, tx, name, tx.ForUpdate())
	switch {
	case err != nil:
		return account{}, err
	case p.host == nil:
		// It may have been removed, or its password changed, since the password was checked.
		if !found || a.PasswordHash != p.local.PasswordHash || a.Source != Local {
			return account{}, errBadLogin
		}
		return a, nil
	case found && a.Source == Local:
		return account{}, errBadLogin // hidden by a local account
	case !found:
		a = newAccount(name, Host, s.now())
		a.HostRole = hostRole(*p.host)
		a.HostSeen = db.At(s.now())
		_, err = tx.Exec(ctx, `INSERT INTO accounts (id, username, source, role, host_role, host_seen_at, tenant,
			password_hash, epoch, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (username) DO NOTHING`, a.ID, a.Username, a.Source, a.Role, a.HostRole, a.HostSeen, a.Tenant,
			a.PasswordHash, a.Epoch, a.CreatedAt, a.UpdatedAt)
		if err != nil {
			return account{}, err
		}
		// Another replica may have been first.
		if a, _, err = find(ctx, tx, name, tx.ForUpdate()); err != nil || a.Source != Host {
			return account{}, errors.Join(err, errBadLogin)
		}
	}
	return seen(ctx, tx, a, *p.host, s.now())
}

// issue returns a token for an account.
func (s *Service) issue(a account) (Session, Caller, error) {
	token, claims, err := s.sessions.Issue(auth.Claims{
		Subject: a.Username, Role: string(a.effective()), Tenant: a.Tenant, Epoch: a.Epoch,
	}, s.cfg.Lifetime)
	if err != nil {
		return Session{}, Caller{}, err
	}
	out := Session{
		Token: token, UserID: a.ID, Role: a.effective(), Username: a.Username, Tenant: a.Tenant,
		ExpiresAt: claims.Expires,
	}
	return out, callerOf(a, claims), nil
}
