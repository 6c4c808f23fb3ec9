package edge

import (
	"context"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/shell"
)

// maxUsername is the length of the longest username that a login accepts (LoginRequest), in characters.
const maxUsername = 256

// openSessions prepares the sessions of the console. workspace, if not nil, replaces the document
// in the settings.
func (s *Service) openSessions(sealer *auth.Sealer, workspace session.Workspace) (*session.Manager, error) {
	workspace, err := session.OpenWorkspace(workspace, s.cfg.Workspace)
	if err != nil {
		return nil, err
	}
	cfg := session.Config{
		Service: "edge", Title: "Edge control plane", Sealer: sealer, Ended: session.InDatabase(s.db, s.now), Now: s.now, Log: s.log,
		TokenHint: "An admin or viewer token, global or of an org.",
		Password: func(ctx context.Context, given session.Login) (string, error) {
			if utf8.RuneCountInString(given.Username) > maxUsername {
				return "", fault.InvalidField("username", "must have at most %d characters", maxUsername)
			}
			opened, err := s.Login(ctx, given.Username, given.Password)
			return opened.Token, err
		},
		HasPassword: func() bool { return s.configured.Load().username != "" },
		SignedIn:    s.signedIn, SignedOut: s.signedOut, Workspace: workspace,
	}
	if s.oidc != nil {
		cfg.SingleSignOn = "/api/v1/auth/oidc/login"
	}
	return session.New(cfg), nil
}

// who describes a caller to the console.
func who(c Caller) (session.Who, error) {
	if c.Role != RoleAdmin && c.Role != RoleViewer {
		return session.Who{}, fault.New(fault.Denied,
			"this is the token of a site's agent; the console takes an admin or a viewer token")
	}
	out := session.Who{Name: c.Subject, Note: string(c.Role) + ", sees everything", Role: string(c.Role)}
	if c.OrgID != "" {
		out.Note, out.Role = string(c.Role)+" of an org", ""
	}
	return out, nil
}

// signedIn records that a session of the console was opened. Logins with a password are recorded by
// Login.
func (s *Service) signedIn(ctx context.Context, how string) error {
	if how == "password" {
		return nil
	}
	c := callerFrom(ctx)
	return s.recordAlone(ctx, entry{
		Action: "auth.login", Target: c.Subject, Message: "console session with " + how,
		Detail: map[string]any{"address": shell.PeerOf(ctx).IP},
	})
}

// signedOut ends the login that a session of the console stands for.
func (s *Service) signedOut(ctx context.Context) error {
	c := callerFrom(ctx)
	if c.Kind == KindSession {
		return s.Logout(ctx)
	}
	return s.recordAlone(ctx, entry{Action: "auth.logout", Target: c.Subject, Message: "console session ended"})
}
