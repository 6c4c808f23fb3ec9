package identity

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// accountTime is how old an account may be when a token is checked.
	accountTime = 30 * time.Second
	// lookupTime is how long the host may take to look an account up while a request waits.
	lookupTime = 3 * time.Second
	// readTime is how long the database and the host may take together.
	readTime = 10 * time.Second
	// hostGrace is how long what the host said last counts while it cannot be asked.
	hostGrace = 5 * time.Minute
)

// account returns the account with a name as it is now, or was accountTime ago at most. It is zero if
// there is none, or none that may be used.
func (s *Service) account(ctx context.Context, username string) (account, error) {
	a, found, _ := s.current.get(username, accountTime)
	if found {
		return a, nil
	}
	// Of requests at once, one reads for all, even if its own caller goes.
	read, err, _ := s.reading.Do(username, func() (any, error) {
		last, _, _ := s.current.get(username, hostGrace)
		_, _, mark := s.current.get(username, 0)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
		defer cancel()
		a, err := s.readAccount(ctx, username, last)
		if err == nil {
			s.current.put(username, a, mark)
		}
		return a, err
	})
	if err != nil {
		return account{}, err
	}
	return read.(account), nil
}

// changed makes this process read an account again.
func (s *Service) changed(username string) {
	s.current.drop(username)
	s.reading.Forget(username) // a read that began before the change
}

// readAccount reads an account and asks the host about it if it is the host's. last is what was read
// before, if anything.
func (s *Service) readAccount(ctx context.Context, username string, last account) (account, error) {
	a, found, err := find(ctx, s.db, username, "")
	switch {
	case err != nil:
		return account{}, err
	case !found, a.Source == Host && s.cfg.Host == nil, a.Source == Local && s.cfg.HostOnly:
		return account{}, nil
	case a.Source == Local:
		return a, nil
	}
	lookup, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	host, err := s.cfg.Host.Lookup(lookup, username)
	now := s.now()
	switch {
	case fault.Is(err, fault.Unauthenticated) || err == nil && host.Username != username:
		return account{}, nil
	case err != nil:
		if last.ID == a.ID && last.HostSeen.After(a.HostSeen.Time) {
			a.HostRole, a.HostSeen = last.HostRole, last.HostSeen
		}
		if now.Sub(a.HostSeen.Time) >= hostGrace {
			return account{}, err
		}
		s.cfg.Log.WarnContext(ctx, "the host cannot be asked about an account; what it said last counts",
			"username", username, "said", a.HostSeen.Time, "err", err)
		return a, nil
	}
	stored := a
	a.HostRole, a.HostSeen = hostRole(host), db.At(now)
	if a.HostRole == stored.HostRole && now.Sub(stored.HostSeen.Time) < hostGrace/2 {
		return a, nil // not worth a write
	}
	// A database that takes no writes must not end sessions.
	if err := s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := seen(ctx, tx, a, host, now)
		return err
	}); err != nil {
		s.cfg.Log.WarnContext(ctx, "what the host says about an account could not be stored", "username", username, "err", err)
	}
	return a, nil
}
