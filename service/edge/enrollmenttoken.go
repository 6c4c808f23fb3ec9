package edge

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// EnrollmentToken is a token that enrolls a few sites for a short time, so that a copy left in a
// shell's history or on a shipped disk is useless.
type EnrollmentToken struct {
	ID        string  `db:"id"`
	Hash      string  `db:"hash"`
	OrgID     string  `db:"org_id"`
	Name      string  `db:"name"`
	MaxUses   int64   `db:"max_uses"`
	Uses      int64   `db:"uses"`
	CreatedAt db.Time `db:"created_at"`
	ExpiresAt db.Time `db:"expires_at"`
}

// CreateEnrollmentToken creates a token and returns it in plain text. Only its hash is stored.
func (s *Service) CreateEnrollmentToken(
	ctx context.Context, name, orgID string, ttl time.Duration, maxUses int64,
) (t EnrollmentToken, token string, err error) {
	if err := text.Check("name", name); err != nil {
		return t, "", err
	}
	caller := callerFrom(ctx)
	switch {
	case caller.Global():
	case orgID == "" || orgID == caller.OrgID:
		orgID = caller.OrgID
	default:
		return t, "", fault.New(fault.Denied, "org_id: the token belongs to another org")
	}
	token = auth.NewToken(prefixEnrollment)
	now := s.now()
	t = EnrollmentToken{
		ID:        newID(),
		Hash:      auth.HashToken(token),
		OrgID:     orgID,
		Name:      name,
		MaxUses:   maxUses,
		CreatedAt: db.At(now),
		ExpiresAt: db.At(now.Add(ttl)),
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if orgID != "" {
			var id string
			if err := tx.Get(ctx, &id, "SELECT id FROM orgs WHERE id = ?"+tx.ForUpdate(), orgID); err != nil {
				return db.NotFound(err, "org_id: no org %s", orgID)
			}
		}
		if err := tx.Insert(ctx, "enrollment_tokens", t); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "enrollment_token.create",
			Target:  t.ID,
			OrgID:   orgID,
			Message: "enrollment token " + name + " made",
			Detail:  map[string]any{"max_uses": maxUses, "expires_at": t.ExpiresAt.Time},
		})
	})
	return t, token, err
}

// EnrollmentTokens lists the tokens in scope that have not expired, after the
// given id.
func (s *Service) EnrollmentTokens(ctx context.Context, after string, limit int) ([]EnrollmentToken, error) {
	where, args := callerFrom(ctx).scope().SQL()
	tokens := []EnrollmentToken{}
	err := s.db.Select(
		ctx, &tokens,
		"SELECT * FROM enrollment_tokens WHERE "+where+" AND expires_at > ? AND id > ? ORDER BY id LIMIT ?",
		append(args, db.At(s.now()), after, limit)...)
	return tokens, err
}

// DeleteEnrollmentToken revokes a token. Sites that it enrolled stay enrolled.
func (s *Service) DeleteEnrollmentToken(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		var t EnrollmentToken
		err := tx.Get(ctx, &t, "SELECT * FROM enrollment_tokens WHERE id = ?"+tx.ForUpdate(), id)
		if err == nil && !callerFrom(ctx).sees(t.OrgID) {
			err = db.ErrNoRows
		}
		if err != nil {
			return db.NotFound(err, "no enrollment token %s", id)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM enrollment_tokens WHERE id = ?", id); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "enrollment_token.delete",
			Target:  id,
			OrgID:   t.OrgID,
			Message: "enrollment token " + t.Name + " withdrawn",
		})
	})
}

// useEnrollmentToken uses up one use of the token with this hash, in the transaction of the
// enrollment. It must be called only for tokens of this kind: others have no limited uses.
func (s *Service) useEnrollmentToken(ctx context.Context, tx *db.Tx, hash string) error {
	n, err := tx.Exec(
		ctx, "UPDATE enrollment_tokens SET uses = uses + 1 WHERE hash = ? AND expires_at > ? AND uses < max_uses",
		hash, db.At(s.now()),
	)
	if err == nil && n == 0 {
		err = errEnrollmentToken
	}
	return err
}

var errEnrollmentToken = fault.New(fault.Unauthenticated, "enrollment_token: unknown, expired or used up")
