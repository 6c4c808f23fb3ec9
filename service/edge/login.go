package edge

import (
	"context"
	"crypto/subtle"
	"net/url"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// Session is a login as global admin or viewer. It expires after twelve hours.
type Session struct {
	Token     string
	Role      Role
	ExpiresAt time.Time
}

var errBadLogin = fault.New(fault.Unauthenticated, "unknown username or wrong password")

// Login exchanges the operator's username and password for a session. Attempts are throttled by
// network, and by username and network.
func (s *Service) Login(ctx context.Context, username, password string) (Session, error) {
	peer := shell.PeerOf(ctx)
	address, from := peer.IP, peer.Network
	done, err := s.throttle.Begin("login "+strings.ToLower(username)+" "+from, "login "+from)
	if err != nil {
		return Session{}, err
	}
	ok, err := s.verifyPassword(ctx, username, password)
	done(ok)
	if err != nil {
		return Session{}, err
	}
	if !ok {
		e := entry{
			Action:  "auth.login",
			Target:  username,
			Message: "login failed",
			Detail:  map[string]any{"address": address},
		}
		if err := s.deny(ctx, address, e); err != nil {
			return Session{}, err
		}
		return Session{}, errBadLogin
	}
	return s.openSession(ctx, username, RoleAdmin, "password")
}

func (s *Service) verifyPassword(ctx context.Context, username, password string) (bool, error) {
	known := s.configured.Load()
	if known.username == "" || subtle.ConstantTimeCompare([]byte(username), []byte(known.username)) != 1 {
		// Takes as long as for a known name, so that timing does not reveal which names exist.
		return s.hasher.VerifyUnknown(ctx, password)
	}
	return s.hasher.VerifyPassword(ctx, known.passwordHash, password)
}

func (s *Service) openSession(ctx context.Context, subject string, role Role, method string) (Session, error) {
	session := Session{Role: role, ExpiresAt: s.now().Add(sessionLifetime).UTC().Truncate(time.Second)}
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		session.Token, err = s.issue(
			ctx, tx, prefixSession,
			tokenRow{Kind: KindSession, Role: role, Subject: subject, ExpiresAt: db.At(session.ExpiresAt)},
		)
		if err != nil {
			return err
		}
		ctx := shell.As(ctx, Caller{Subject: subject, Kind: KindSession, Role: role})
		return s.record(ctx, tx, entry{
			Action:  "auth.login",
			Target:  subject,
			Message: "login with " + method,
			Detail:  map[string]any{"address": shell.PeerOf(ctx).IP},
		})
	})
	return session, err
}

// Logout ends the calling session. It fails with Conflict if the caller's token is not a session.
func (s *Service) Logout(ctx context.Context) error {
	caller := callerFrom(ctx)
	if caller.Kind != KindSession {
		return fault.New(fault.Conflict, "this token is not a session's; there is nothing to log out of").WithCode(
			"no_session",
		)
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM tokens WHERE hash = ?", caller.tokenHash); err != nil {
			return err
		}
		s.tokensChanged(tx)
		return s.record(ctx, tx, entry{Action: "auth.logout", Target: caller.Subject, Message: "logout"})
	})
}

var errNoOIDC = fault.New(
	fault.Unavailable,
	"single sign-on is not configured; set --oidc-issuer, --oidc-client-id and --oidc-redirect-url",
).WithCode("oidc_not_configured")

// SignOn opens a session for a user whom the identity provider has authenticated. It returns the
// URL to which the browser goes next: the console, with the session's token in the fragment, which
// is never sent to a server or written to its logs. refusal is the reason why the user may not log
// in, or nil.
func (s *Service) SignOn(ctx context.Context, id auth.Identity, refusal error) (location string, err error) {
	if refusal != nil {
		if fault.Is(refusal, fault.Denied) {
			address := shell.PeerOf(ctx).IP
			e := entry{
				Action:  "auth.login",
				Target:  subjectOf(id),
				Message: fault.From(refusal).Message,
				Detail:  map[string]any{"address": address},
			}
			if err := s.deny(ctx, address, e); err != nil {
				return "", err
			}
		}
		return "", refusal
	}
	session, err := s.openSession(ctx, subjectOf(id), Role(id.Role), "single sign-on")
	if err != nil {
		return "", err
	}
	return s.cfg.OIDC.ConsoleURL + "#oidc_token=" + url.QueryEscape(session.Token), nil
}

// subjectOf returns the name of a single sign-on user: the email address if there is one, else the
// provider's subject.
func subjectOf(id auth.Identity) string {
	if id.Email != "" {
		return id.Email
	}
	return id.Subject
}
