package identity

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"image/png"

	"github.com/pquerna/otp"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var (
	errCodeRequired = fault.New(fault.Unauthenticated, "Two-factor code required").WithCode("totp_required")
	errBadCode      = fault.New(fault.Unauthenticated, "Invalid two-factor code").WithCode("bad_totp")
	errEnabled      = fault.New(
		fault.Conflict, "two-factor login is enabled already; disable it first",
	).WithCode("two_factor_enabled")
	errNotSetUp = fault.New(fault.Conflict, "two-factor login is not set up").WithCode("two_factor_not_set_up")
)

// qrSize is the width of a QR code in pixels.
const qrSize = 256

// Setup is what an authenticator app takes. QRCode is the URI as a PNG in a data URI.
type Setup struct{ Secret, ProvisioningURI, QRCode string }

type secondFactor struct {
	Secret   string            `db:"secret"`
	Enabled  bool              `db:"enabled"`
	LastStep int64             `db:"last_step"`
	Recovery db.JSON[[]string] `db:"recovery"`
}

// SetUp makes the secret of a second factor, in place of one that was not verified. Logins take no
// code until it is verified. The fault is Conflict if the second factor is enabled.
func (s *Service) SetUp(ctx context.Context, by Caller) (Setup, error) {
	secret, uri := auth.NewTOTP(s.cfg.Issuer, by.Username)
	image, err := qrCode(uri)
	if err != nil {
		return Setup{}, err
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		a, err := own(ctx, tx, by)
		if err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `INSERT INTO second_factors (account_id, secret, enabled, last_step, recovery, created_at)
			VALUES (?, ?, FALSE, 0, '[]', ?) ON CONFLICT (account_id) DO UPDATE
			SET secret = excluded.secret, created_at = excluded.created_at WHERE NOT second_factors.enabled`,
			a.ID, s.cfg.Sealer.Seal([]byte(secret), a.ID), db.At(s.now()))
		if err == nil && n == 0 {
			return errEnabled
		}
		return errors.Join(err, s.recordFactor(ctx, tx, by, "auth.2fa_setup", "second factor set up"))
	})
	if err != nil {
		return Setup{}, err
	}
	return Setup{Secret: secret, ProvisioningURI: uri, QRCode: image}, nil
}

func qrCode(uri string) (string, error) {
	key, err := otp.NewKeyFromURL(uri)
	if err != nil {
		return "", err
	}
	image, err := key.Image(qrSize, qrSize)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := png.Encode(&out, image); err != nil {
		return "", err
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

// Verify enables the second factor that was set up, given a code of it, and returns the recovery
// codes, which are not shown again. The fault is Unauthenticated with the code "bad_totp" for a wrong
// code, Conflict if none is set up or one is enabled, and TooMany after too many failures.
func (s *Service) Verify(ctx context.Context, by Caller, code string) (recovery []string, err error) {
	codes, hashes := auth.NewRecoveryCodes()
	err = s.withCode(ctx, by, func(ctx context.Context, tx *db.Tx, a account, f secondFactor) error {
		if f.Enabled {
			return errEnabled
		}
		step, err := s.totp(a, f, code)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, "UPDATE second_factors SET enabled = TRUE, last_step = ?, recovery = ? WHERE account_id = ?",
			step, db.JSON[[]string]{V: hashes}, a.ID); err != nil {
			return err
		}
		return s.recordFactor(ctx, tx, by, "auth.2fa_verify", "second factor enabled")
	})
	if err != nil {
		return nil, err
	}
	return codes, nil
}

// Disable removes the second factor, given one of its codes or a recovery code. The faults are those
// of Verify.
func (s *Service) Disable(ctx context.Context, by Caller, code string) error {
	return s.withCode(ctx, by, func(ctx context.Context, tx *db.Tx, a account, f secondFactor) error {
		if !f.Enabled {
			return errNotSetUp
		}
		if err := s.use(ctx, tx, a, f, code); err != nil {
			return err
		}
		if err := removeFactor(ctx, tx, a.ID); err != nil {
			return err
		}
		return s.recordFactor(ctx, tx, by, "auth.2fa_disable", "second factor disabled")
	})
}

// withCode runs f with the caller's second factor, as an attempt that counts if the code is wrong.
// Success does not clear the user's failures: whoever has taken a token could otherwise clear those
// of guessing the password, again and again.
func (s *Service) withCode(
	ctx context.Context, by Caller, f func(context.Context, *db.Tx, account, secondFactor) error,
) error {
	try, leave, err := s.begin(ctx, by.Username)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTime)
	defer cancel()
	var refused error
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		refused = nil
		a, err := own(ctx, tx, by)
		if err != nil {
			return err
		}
		factor, found, err := findFactor(ctx, tx, a.ID)
		if err == nil && !found {
			err = errNotSetUp
		}
		if err == nil {
			err = f(ctx, tx, a, factor)
		}
		if errors.Is(err, errBadCode) {
			refused = err
			return try.failed(ctx, tx, s.now())
		}
		return errors.Join(err, try.released(ctx, tx))
	})
	if err != nil {
		s.settle(ctx, try, false)
		return err
	}
	if refused != nil {
		return errors.Join(refused, s.cfg.Deny(ctx, Event{
			By: by, Action: "auth.2fa", Target: by.Username, Tenant: by.Tenant, Message: "wrong two-factor code",
		}))
	}
	return nil
}

// checkCode checks the code of a login, and uses it up.
func (s *Service) checkCode(ctx context.Context, tx *db.Tx, a account, code string) error {
	f, found, err := findFactor(ctx, tx, a.ID)
	switch {
	case err != nil || !found || !f.Enabled:
		return err
	case code == "":
		return errCodeRequired
	}
	return s.use(ctx, tx, a, f, code)
}

// use checks a code or a recovery code, and uses it up.
func (s *Service) use(ctx context.Context, tx *db.Tx, a account, f secondFactor, code string) error {
	step, err := s.totp(a, f, code)
	if err == nil {
		n, err := tx.Exec(ctx, "UPDATE second_factors SET last_step = ? WHERE account_id = ? AND last_step < ?", step, a.ID, step)
		if err == nil && n == 0 {
			return errBadCode
		}
		return err
	}
	left, bad := auth.UseRecoveryCode(f.Recovery.V, code)
	if bad != nil || !errors.Is(err, errBadCode) {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE second_factors SET recovery = ? WHERE account_id = ?", db.JSON[[]string]{V: left}, a.ID)
	return err
}

// totp returns the step of a code, or errBadCode.
func (s *Service) totp(a account, f secondFactor, code string) (step int64, err error) {
	secret, err := s.cfg.Sealer.Open(f.Secret, a.ID)
	if err != nil {
		return 0, fault.Wrap(fault.Internal, err, "the second factor cannot be read; have an admin disable it")
	}
	step, err = auth.CheckTOTP(string(secret), code, s.now(), f.LastStep)
	if fault.Is(err, fault.Unauthenticated) {
		err = errBadCode
	}
	return step, err
}

// findFactor returns the second factor of an account whose row the transaction has locked, so that
// nobody else uses a code meanwhile.
func findFactor(ctx context.Context, tx *db.Tx, accountID string) (f secondFactor, found bool, err error) {
	err = tx.Get(ctx, &f,
		"SELECT secret, enabled, last_step, recovery FROM second_factors WHERE account_id = ?", accountID)
	if errors.Is(err, db.ErrNoRows) {
		return secondFactor{}, false, nil
	}
	return f, err == nil, err
}

func removeFactor(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.Exec(ctx, "DELETE FROM second_factors WHERE account_id = ?", accountID)
	return err
}

// own returns the caller's account, locked until the transaction ends.
func own(ctx context.Context, tx *db.Tx, by Caller) (account, error) {
	a, found, err := find(ctx, tx, by.Username, tx.ForUpdate())
	if err == nil && (!found || a.ID != by.UserID) {
		return account{}, errNoToken
	}
	return a, err
}

func (s *Service) recordFactor(ctx context.Context, tx *db.Tx, by Caller, action, message string) error {
	return s.cfg.Record(ctx, tx, Event{By: by, Action: action, Target: by.Username, Tenant: by.Tenant, Message: message})
}
