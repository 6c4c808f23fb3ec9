package auth

import (
	"net/url"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// OIDCConfig describes this service as a client of an OpenID provider. Faults from Validate use the
// names in the yaml tags.
type OIDCConfig struct {
	// Issuer is the provider's issuer identifier, exactly as the provider states it.
	Issuer string `yaml:"issuer"`
	// ClientID and ClientSecret are those of the registration at the provider. A public client has
	// no secret.
	ClientID     string `yaml:"client-id"`
	ClientSecret string `yaml:"client-secret"`
	// RedirectURL is this service's callback, as registered at the provider. Its scheme decides
	// whether cookies are Secure, because it is the scheme that the browser sees even if a proxy in
	// between uses another.
	RedirectURL string `yaml:"redirect-url"`
	// Scopes are the scopes to request; "openid" is added if missing. Empty means openid, profile
	// and email.
	Scopes []string `yaml:"scopes"`
	// GroupsClaim is the claim that holds the user's groups; empty means "groups".
	GroupsClaim string `yaml:"groups-claim"`
	// Roles maps groups to roles, the highest role first. A member of several groups gets the first
	// matching role; a member of none is refused.
	Roles []GroupRole `yaml:"-"`
	// Person returns a user's role and tenant, from the claims of the verified ID token, in place of
	// Roles. An empty role refuses the user.
	Person func(claims map[string]any) (role, tenant string) `yaml:"-"`
	// ConsoleURL is where the service redirects the browser after a login. It may be empty or a
	// path.
	ConsoleURL string `yaml:"console-url"`
}

// GroupRole is a role and the groups whose members get it.
type GroupRole struct {
	Role   string   // defined by the service
	Groups []string // as named by the provider
}

// Validate returns the first wrong value as a fault of kind Invalid whose Field is the value's key;
// for a role's groups it is ROLE-groups. It does not contact the provider.
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
	if c.Person == nil {
		if err := c.validateRoles(); err != nil {
			return err
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

func (c OIDCConfig) validateRoles() error {
	var keys []string
	groups := 0
	for _, r := range c.Roles {
		key := r.Role + "-groups"
		if slices.Contains(r.Groups, "") {
			return fault.InvalidField(key, "must not contain an empty name")
		}
		keys, groups = append(keys, key), groups+len(r.Groups)
	}
	if groups == 0 {
		return fault.InvalidField(strings.Join(keys[:min(1, len(keys))], ""),
			"without %s nobody could log in", strings.Join(keys, " and "))
	}
	return nil
}

func absoluteHTTP(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}

// withDefaults returns c with defaults for empty fields.
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

// RoleOf returns the highest role of a member of groups, or "" if there is none. Names are compared
// exactly.
func (c OIDCConfig) RoleOf(groups []string) string {
	for _, r := range c.Roles {
		if slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(r.Groups, g) }) {
			return r.Role
		}
	}
	return ""
}
