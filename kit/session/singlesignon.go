package session

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// SingleSignOn holds the settings of a service whose people sign in at an OpenID provider, under the
// prefix "oidc" (package config). It is enabled if Issuer is set.
type SingleSignOn struct {
	Issuer       string   `key:"issuer" help:"URL of the OpenID Connect provider; turns single sign-on on."`
	ClientID     string   `key:"client-id" help:"Client id at the provider."`
	ClientSecret string   `key:"client-secret" secret:"true" help:"Client secret at the provider."`
	RedirectURL  string   `key:"redirect-url" help:"This service's callback as the browser sees it."`
	GroupsClaim  string   `key:"groups-claim" default:"groups" help:"Claim that lists the user's groups."`
	AdminGroups  []string `key:"admin-groups" help:"Groups whose members are admins."`
	ViewerGroups []string `key:"viewer-groups" help:"Groups whose members are viewers."`
	ConsoleURL   string   `key:"console-url" default:"/" help:"Where the browser goes after a login."`
}

// Open returns the login at the provider, or nil if single sign-on is not enabled. callback is the
// path at which the service serves it, viewer the service's name for the role of those who may only
// read. Wrong settings are faults that name them. The provider is not contacted.
func (c SingleSignOn) Open(callback, viewer string, sealer *auth.Sealer, now func() time.Time) (*auth.OIDC, error) {
	if c.Issuer == "" {
		return nil, nil
	}
	return OpenOIDC(auth.OIDCConfig{
		Issuer:       c.Issuer,
		ClientID:     c.ClientID,
		ClientSecret: c.ClientSecret,
		RedirectURL:  c.RedirectURL,
		GroupsClaim:  c.GroupsClaim,
		Roles: []auth.GroupRole{
			{Role: RoleAdmin, Groups: c.AdminGroups},
			{Role: viewer, Groups: c.ViewerGroups},
		},
		ConsoleURL: c.ConsoleURL,
	}, callback, sealer, now)
}

// OpenOIDC is like SingleSignOn.Open for services with a configuration of their own.
func OpenOIDC(
	c auth.OIDCConfig, callback string, sealer *auth.Sealer, now func() time.Time,
) (*auth.OIDC, error) {
	err := c.Validate()
	if err == nil {
		// A callback elsewhere would fail after the login, with an error that does not say why.
		if u, parseErr := url.Parse(c.RedirectURL); parseErr != nil || !strings.HasSuffix(u.Path, callback) {
			err = fault.InvalidField("redirect-url", "must end in %s", callback)
		}
	}
	if err != nil {
		f := fault.From(err)
		return nil, fault.InvalidField("oidc-"+f.Field, "%s", strings.TrimPrefix(f.Message, f.Field+": "))
	}
	return auth.NewOIDC(c, &http.Client{Timeout: 10 * time.Second}, sealer, now), nil
}
