package edge

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/auth"
)

// configured holds the credentials of the configuration as far as they are kept, which is as
// hashes. Unset ones are empty.
type configured struct {
	username, passwordHash              string
	adminToken, viewerToken, enrollment string // SHA-256
}

// configure replaces the credentials with those of cfg.
func (s *Service) configure(ctx context.Context, cfg Config) error {
	hashed := func(token string) string {
		if token == "" {
			return ""
		}
		return auth.HashToken(token)
	}
	c := &configured{
		username:    cfg.AdminUsername,
		adminToken:  hashed(cfg.AdminToken),
		viewerToken: hashed(cfg.ViewerToken),
		enrollment:  hashed(cfg.EnrollmentToken),
	}
	if cfg.AdminPassword != "" {
		var err error
		if c.passwordHash, err = s.hasher.HashPassword(ctx, cfg.AdminPassword); err != nil {
			return err
		}
	}
	s.configured.Store(c)
	warnings, err := cfg.checkTokens()
	for _, w := range warnings {
		s.log.Warn(w)
	}
	return err
}

// Reload applies the credentials of a changed configuration. Credentials that it no longer contains
// end at once, together with the streams opened with them. Sessions and stored tokens stay valid.
// All other settings require a restart.
func (s *Service) Reload(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := s.configure(ctx, cfg); err != nil {
		return err
	}
	s.activityBell.Ring()
	return nil
}
