package identity

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of failures within window.
const (
	maxPerUser = 5
	maxInAll   = 50
	window     = 5 * time.Minute
)

func tooMany(wait time.Duration) error {
	return fault.New(fault.TooMany, "Too many login attempts, try again later").
		WithCode("login_throttled").WithRetryAfter(max(wait, time.Second))
}

// attempt is a place among the failures that are allowed.
type attempt struct{ id, username string }

// begin waits for the username's turn and takes a place. The caller must call leave when the attempt
// is settled. The fault is TooMany if there is no place.
func (s *Service) begin(ctx context.Context, username string) (a attempt, leave func(), err error) {
	username = counted(username)
	// Most who guess are refused here, which takes no lock and no turn.
	if err := limits(ctx, s.db, username, s.now(), " AND NOT pending"); err != nil {
		return attempt{}, nil, err
	}
	leave, ok := s.gate.enter(ctx, username)
	if !ok {
		return attempt{}, nil, tooMany(time.Second)
	}
	a = attempt{uuid.NewString(), username}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if err := lock(ctx, tx, "attempts"); err != nil {
			return err
		}
		now := s.now()
		if err := limits(ctx, tx, username, now, ""); err != nil {
			return err
		}
		// A clock that was set back must not shut anybody out.
		_, err := tx.Exec(ctx, "DELETE FROM login_attempts WHERE at <= ? OR at > ?", db.At(now.Add(-window)), db.At(now.Add(window)))
		if err != nil {
			return err
		}
		return a.put(ctx, tx, true, now)
	})
	if err != nil {
		leave()
		return attempt{}, nil, err
	}
	return a, leave, nil
}

// limits returns a fault if no further attempt is allowed. only narrows the attempts that count.
func limits(ctx context.Context, q db.Querier, username string, now time.Time, only string) error {
	var attempts []struct {
		Username string  `db:"username"`
		At       db.Time `db:"at"`
	}
	err := q.Select(ctx, &attempts,
		"SELECT username, at FROM login_attempts WHERE at > ? AND at <= ?"+only+" ORDER BY at DESC LIMIT ?",
		db.At(now.Add(-window)), db.At(now.Add(window)), maxInAll)
	if err != nil {
		return err
	}
	users := 0
	for i, a := range attempts { // the latest first
		if a.Username == username {
			users++
		}
		if users == maxPerUser || i+1 == maxInAll {
			return tooMany(a.At.Add(window).Sub(now))
		}
	}
	return nil
}

// put stores the attempt.
func (a attempt) put(ctx context.Context, tx *db.Tx, pending bool, now time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO login_attempts (id, username, pending, at) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET pending = excluded.pending, at = excluded.at`, a.id, a.username, pending, db.At(now))
	return err
}

// failed counts the attempt as a failure.
func (a attempt) failed(ctx context.Context, tx *db.Tx, now time.Time) error {
	return a.put(ctx, tx, false, now)
}

// released gives the place back.
func (a attempt) released(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, "DELETE FROM login_attempts WHERE id = ?", a.id)
	return err
}

// succeeded gives the place back and clears the user's failures, which still count among all.
// Attempts in progress are not cleared, since they may fail.
func (a attempt) succeeded(ctx context.Context, tx *db.Tx) error {
	if err := a.released(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE login_attempts SET username = '' WHERE username = ? AND NOT pending", a.username)
	return err
}

// settle counts the attempt as a failure, or gives its place back, in a transaction of its own. If
// that fails, the place stays taken until it is stale.
func (s *Service) settle(ctx context.Context, a attempt, failed bool) {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if failed {
			return a.failed(ctx, tx, s.now())
		}
		return a.released(ctx, tx)
	})
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "a login attempt could not be settled", "err", err)
	}
}
