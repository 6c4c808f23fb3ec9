package edge

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/pki"
)

const (
	certificateValidity = 90 * 24 * time.Hour
	// renewalGrace is how long after its certificate expired a site may still renew it, since sites
	// can be offline for weeks.
	renewalGrace = 30 * 24 * time.Hour
	// crlValidity is the lifetime of a revocation list. Lists are renewed after half of it.
	crlValidity = 24 * time.Hour
)

// issueCertificate signs a certificate for the site and sets it in site. The caller writes the
// site's row.
func (s *Service) issueCertificate(
	ctx context.Context, tx *db.Tx, site *Site, csr *x509.CertificateRequest,
) (*pki.Certificate, error) {
	cert, err := s.ca.Issue(csr, pki.Subject{ID: site.ID, OrgID: site.OrgID}, s.now(), certificateValidity)
	if err != nil {
		return nil, err
	}
	site.CertSerial, site.CertNotAfter = cert.Serial, db.At(cert.NotAfter)
	_, err = tx.Exec(
		ctx, "INSERT INTO certificates (serial, site_id, not_after) VALUES (?, ?, ?)", cert.Serial, site.ID,
		site.CertNotAfter,
	)
	return &cert, err
}

// RotateCertificate signs a new certificate for the calling site. The old one stays valid until it
// expires, so a lost response does no harm.
func (s *Service) RotateCertificate(ctx context.Context, id, csrPEM string) (*pki.Certificate, error) {
	if s.ca == nil {
		return nil, errNoPKI
	}
	caller := callerFrom(ctx)
	if id != caller.SiteID {
		return nil, fault.New(fault.Denied, "an agent may renew its own certificate only")
	}
	csr, err := pki.ParseCSR(csrPEM)
	if err != nil {
		return nil, err
	}
	var cert *pki.Certificate
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		var site Site
		if err := tx.Get(ctx, &site, "SELECT * FROM sites WHERE id = ?"+tx.ForUpdate(), id); err != nil {
			return db.NotFound(err, "no site %s", id)
		}
		if site.Status == siteRevoked {
			return errSiteRevoked
		}
		if !site.CertNotAfter.IsZero() && s.now().After(site.CertNotAfter.Add(renewalGrace)) {
			return fault.New(
				fault.Denied, "the certificate expired more than %d days ago; enroll the site anew",
				int(renewalGrace.Hours()/24),
			).WithCode("certificate_expired")
		}
		var err error
		if cert, err = s.issueCertificate(ctx, tx, &site, csr); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx, "UPDATE sites SET cert_serial = ?, cert_not_after = ? WHERE id = ?", site.CertSerial,
			site.CertNotAfter, id,
		); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(
			ctx,
			tx,
			entry{Action: "site.rotate", Target: id, SiteID: id, OrgID: site.OrgID, Message: "certificate renewed",
				Detail: map[string]any{"serial": cert.Serial, "not_after": cert.NotAfter}},
		)
	})
	return cert, err
}

// revokeCertificates puts all of a site's certificates on the revocation list.
func (s *Service) revokeCertificates(ctx context.Context, tx *db.Tx, siteID string) error {
	n, err := tx.Exec(
		ctx, "UPDATE certificates SET revoked_at = ? WHERE site_id = ? AND revoked_at IS NULL", db.At(s.now()), siteID,
	)
	if err != nil || n == 0 || s.ca == nil {
		return err
	}
	return s.writeCRL(ctx, tx)
}

// writeCRL writes a new revocation list. Certificates stay on it until they are too old to be
// renewed.
func (s *Service) writeCRL(ctx context.Context, tx *db.Tx) error {
	number, err := take(ctx, tx, "crl", 1)
	if err != nil {
		return err
	}
	now := s.now()
	var rows []struct {
		Serial    string  `db:"serial"`
		RevokedAt db.Time `db:"revoked_at"`
	}
	if err := tx.Select(
		ctx, &rows,
		"SELECT serial, revoked_at FROM certificates WHERE revoked_at IS NOT NULL AND not_after > ? ORDER BY serial",
		db.At(now.Add(-renewalGrace)),
	); err != nil {
		return err
	}
	revoked := make([]pki.Revoked, len(rows))
	for i, r := range rows {
		revoked[i] = pki.Revoked{Serial: r.Serial, At: r.RevokedAt.Time}
	}
	next := now.Add(crlValidity)
	der, err := s.ca.CRL(big.NewInt(number), now, next, revoked)
	if err != nil {
		return fmt.Errorf("make revocation list: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO crl (one, number, der, next_update) VALUES (1, ?, ?, ?)
		ON CONFLICT (one) DO UPDATE SET number = excluded.number, der = excluded.der, next_update = excluded.next_update`,
		number, base64.StdEncoding.EncodeToString(der), db.At(next))
	return err
}

// CRL returns the current revocation list in DER.
func (s *Service) CRL(ctx context.Context) ([]byte, error) {
	if s.ca == nil {
		return nil, errNoPKI
	}
	if err := s.renewCRL(ctx); err != nil {
		return nil, err
	}
	var encoded string
	if err := s.db.Get(ctx, &encoded, "SELECT der FROM crl WHERE one = 1"); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(encoded)
}

// renewCRL writes a new list if there is none or half the lifetime of the present one is over. It
// also deletes certificates that no list needs any more.
func (s *Service) renewCRL(ctx context.Context) error {
	if s.ca == nil {
		return nil
	}
	if fresh, err := s.freshCRL(ctx, s.db); err != nil || fresh {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		// The first to lock the counter has already written the list.
		var number int64
		if err := tx.Get(ctx, &number, "SELECT value FROM counters WHERE name = 'crl'"+tx.ForUpdate()); err != nil {
			return err
		}
		if fresh, err := s.freshCRL(ctx, tx); err != nil || fresh {
			return err
		}
		if _, err := tx.Exec(
			ctx, "DELETE FROM certificates WHERE not_after < ?", db.At(s.now().Add(-renewalGrace)),
		); err != nil {
			return err
		}
		return s.writeCRL(ctx, tx)
	})
}

// freshCRL reports whether there is a list with more than half its lifetime left.
func (s *Service) freshCRL(ctx context.Context, q db.Querier) (bool, error) {
	var next db.Time
	err := q.Get(ctx, &next, "SELECT next_update FROM crl WHERE one = 1")
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	return s.now().Before(next.Add(-crlValidity / 2)), err
}
