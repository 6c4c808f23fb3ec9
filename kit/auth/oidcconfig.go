package auth

import (
	"net/url"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// OIDCConfig describes this service as a client of an OpenID provider. The names
// in the yaml tags are those that faults from Validate carry.
type OIDCConfig struct {
	// Issuer is the provider's issuer identifier, exactly as it names itself.
	Issuer string `yaml:"issuer"`
	// ClientID and ClientSecret are those of the registration at the provider. A
	// public client has no secret.
	ClientID     string `yaml:"client-id"`
	ClientSecret string `yaml:"client-secret"`
	// RedirectURL is this service's callback, as registered at the provider. Its
	// scheme decides whether cookies are Secure: it is what the browser sees,
	// whatever a proxy in between speaks.
	RedirectURL string `yaml:"redirect-url"`
	// Scopes are asked for; "openid" is added if missing. Empty means openid,
	// profile and email.
	Scopes []string `yaml:"scopes"`
	// GroupsClaim is the claim that holds the user's groups; empty means "groups".
	GroupsClaim string `yaml:"groups-claim"`
	// AdminGroups and ViewerGroups give their members the role. A member of both is
	// an admin, a member of neither is refused.
	AdminGroups  []string `yaml:"admin-groups"`
	ViewerGroups []string `yaml:"viewer-groups"`
	// ConsoleURL is where the service sends the browser after a login; it may be
	// empty or a path.
	ConsoleURL string `yaml:"console-url"`
}

// Validate reports the first wrong value as a fault of kind Invalid whose Field is
// the value's key. It does not contact the provider.
func (c OIDCConfig) Validate() error {
	if u, err := url.Parse(c.Issuer); err != nil || !absoluteHTTP(u) || u.RawQuery != "" || u.Fragment != "" {
		return fault.InvalidField("issuer", "must be an http or https URL without query and fragment")
	}
	if c.ClientID == "" {
		return fault.InvalidField("client-id", "must be set")
	}
	if u, err := url.Parse(c.RedirectURL); err != nil || !absoluteHTTP(u) || u.Fragment != "" {
		return fault.InvalidField("redirect-url", "must be an http or https URL without fragment")
	}
	if len(c.AdminGroups) == 0 && len(c.ViewerGroups) == 0 {
		return fault.InvalidField("admin-groups", "without admin-groups and viewer-groups nobody could log in")
	}
	for _, g := range []struct {
		key    string
		groups []string
	}{{"admin-groups", c.AdminGroups}, {"viewer-groups", c.ViewerGroups}} {
		if slices.Contains(g.groups, "") {
			return fault.InvalidField(g.key, "must not contain an empty name")
		}
	}
	if c.ConsoleURL != "" {
		u, err := url.Parse(c.ConsoleURL)
		if err != nil || !absoluteHTTP(u) && (u.Scheme != "" || u.Host != "" || u.Path == "" || u.Path[0] != '/') {
			return fault.InvalidField("console-url", "must be an http or https URL or an absolute path")
		}
	}
	return nil
}

func absoluteHTTP(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}

// withDefaults fills what may be left empty.
func (c OIDCConfig) withDefaults() OIDCConfig {
	if len(c.Scopes) == 0 {
		c.Scopes = []string{"openid", "profile", "email"}
	} else if !slices.Contains(c.Scopes, "openid") {
		c.Scopes = append([]string{"openid"}, c.Scopes...)
	}
	if c.GroupsClaim == "" {
		c.GroupsClaim = "groups"
	}
	return c
}

// RoleOf maps a user's groups to Admin, Viewer or None. Names are compared
// exactly.
func (c OIDCConfig) RoleOf(groups []string) Role {
	role := None
	for _, g := range groups {
		if slices.Contains(c.AdminGroups, g) {
			return Admin
		}
		if slices.Contains(c.ViewerGroups, g) {
			role = Viewer
		}
	}
	return role
}
