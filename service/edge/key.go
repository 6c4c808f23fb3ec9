package edge

import (
	"context"
	"errors"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/pki"
)

func newRouteSealer(key []byte, accepted ...[]byte) (*auth.Sealer, error) {
	return auth.NewSealer(key, "edge route secrets", accepted...)
}

// renewSeals seals the routes' secrets with the current secret key where they are not. If the key
// was rotated, it lets the audit log continue with the new one, too.
func (s *Service) renewSeals(ctx context.Context, tx *db.Tx, rotated bool) (unreadable int, err error) {
	resealed, unreadable, err := keyring.Reseal(ctx, tx, s.routeSecrets, "routes", "id")
	if err != nil || !rotated {
		return unreadable, err
	}
	if err := s.audit.Rotate(ctx, tx); err != nil {
		return unreadable, err
	}
	return unreadable, s.record(asSystem(ctx), tx, entry{
		Action: "secret-key.rotate", Message: "the secret key was rotated",
		Detail: map[string]int{"resealed": resealed, "unreadable": unreadable},
	})
}

// renewLateSeals seals again what other replicas have sealed with an older key.
func (s *Service) renewLateSeals(ctx context.Context) error {
	return s.keys.Renew(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) { return s.renewSeals(ctx, tx, rotated) })
}

// keyFits checks a key against a database that has no fingerprint of it yet: the right key opens
// the secret of any route. used reports whether there is a route to check.
func (s *Service) keyFits(ctx context.Context, key []byte) (used, fits bool, err error) {
	var route struct {
		ID     string `db:"id"`
		Secret string `db:"secret"`
	}
	err = s.db.Get(ctx, &route, "SELECT id, secret FROM routes ORDER BY id LIMIT 1")
	if errors.Is(err, db.ErrNoRows) {
		return false, true, nil
	}
	if err != nil || key == nil {
		return true, false, err
	}
	sealer, err := newRouteSealer(key)
	if err != nil {
		return true, false, err
	}
	_, err = sealer.Open(route.Secret, route.ID)
	return true, err == nil, nil
}

// reasonKeyLost is the reason for disabling a route whose secret can no longer be decrypted.
const reasonKeyLost = "its secret was sealed with a key that is lost; give it a new secret and enable it"

// disableUnreadable disables the routes whose secrets were sealed with a key that was replaced.
// Their pending deliveries become dead letters, which can be replayed.
func (s *Service) disableUnreadable(ctx context.Context) error {
	ctx = asSystem(ctx)
	var ids []string
	if err := s.db.Select(ctx, &ids, "SELECT id FROM routes WHERE enabled ORDER BY id"); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.db.Update(ctx, func(tx *db.Tx) error {
			if err := s.holdRoutes(ctx, tx, id); err != nil {
				return err
			}
			r, err := s.route(ctx, tx, id, tx.ForUpdate())
			if err != nil {
				return err
			}
			if _, err := s.deliveryRoute(r); err == nil {
				return nil
			}
			was := r
			r.Enabled, r.DisabledReason, r.UpdatedAt = false, reasonKeyLost, db.At(s.now())
			_, err = s.changeRoute(ctx, tx, was, r, "route "+r.Name+" disabled: "+r.DisabledReason)
			return err
		}); err != nil {
			return fmt.Errorf("disable route %s, whose secret cannot be read: %w", id, err)
		}
	}
	return nil
}

// authorityName is the name of the certificate authority's fingerprint in the database.
const authorityName = "pki-ca"

// openAuthority loads the certificate authority, or creates one if the database has no fingerprint
// of one.
func (s *Service) openAuthority(ctx context.Context, dir string) error {
	known, err := keyring.Known(ctx, s.db, authorityName)
	if err != nil {
		return err
	}
	const lost = "If it is lost, start once with --replace-lost-keys: every site then needs a new certificate"
	if known != "" && !pki.Exists(dir) && !s.cfg.ReplaceLostKeys {
		return fault.New(
			fault.Conflict,
			"pki-dir: %s holds no certificate authority, and the sites of this database have certificates of one. Restore it from a backup. %s",
			dir, lost,
		).
			WithCode("authority_missing")
	}
	if s.ca, err = pki.LoadOrCreate(dir, "Mainstay edge", s.now()); err != nil {
		return err
	}
	fingerprint := keyring.Fingerprint(s.ca.PublicKeyDER())
	kept, err := keyring.Keep(ctx, s.db, authorityName, fingerprint, s.cfg.ReplaceLostKeys)
	if err != nil {
		return err
	}
	if kept != fingerprint {
		return fault.New(
			fault.Conflict,
			"pki-dir: the certificate authority in %s is not the one that this database was made with. Use that one. %s",
			dir, lost,
		).
			WithCode("wrong_authority")
	}
	return nil
}
