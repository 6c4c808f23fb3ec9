package auth

import (
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Verifier checks JSON Web Tokens that others issue with a shared secret: signed with HS256, which is pinned, with the
// claims sub and exp. Tokens that this service issues itself are those of Sessions. It is safe for concurrent use.
type Verifier struct {
	now  func() time.Time
	keys [][]byte
}

// NewVerifier returns a Verifier that accepts tokens of all of the secrets. Each has at least 32 bytes (RFC 7518
// section 3.2); a shorter one is a fault of kind Invalid.
func NewVerifier(now func() time.Time, secrets ...[]byte) (*Verifier, error) {
	for _, secret := range secrets {
		if len(secret) < minSecret {
			return nil, fault.New(fault.Invalid, "the secret of tokens must have at least %d bytes, not %d", minSecret, len(secret))
		}
	}
	if len(secrets) == 0 {
		return nil, fault.New(fault.Invalid, "tokens need a secret")
	}
	return &Verifier{now: now, keys: secrets}, nil
}

// misspelt reports whether claims have one of ours in another case. Without its tenant, a token would be one of all
// tenants.
func misspelt(all map[string]any) bool {
	for name := range all {
		for _, ours := range []string{"sub", "role", "tenant", "exp", "nbf"} {
			if name != ours && strings.EqualFold(name, ours) {
				return true
			}
		}
	}
	return false
}

// Check returns the claims of a token. A token that is damaged, expired, not valid yet or signed with another secret is
// a fault of kind Unauthenticated.
func (v *Verifier) Check(token string) (Claims, error) {
	if !Sendable(token) { // base64 would skip line breaks
		return Claims{}, errBadSession
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.HS256})
	if err != nil || len(parsed.Headers) != 1 {
		return Claims{}, errBadSession
	}
	for _, key := range v.keys {
		var c struct {
			wireClaims
			NotBefore jwt.NumericDate `json:"nbf,omitempty"`
		}
		var all map[string]any
		if parsed.Claims(key, &c, &all) != nil {
			continue
		}
		if misspelt(all) {
			break
		}
		c.Claims.Issued, c.Claims.Expires = c.Issued.Time().UTC(), c.Expires.Time().UTC()
		const lastYear = 9999 // that can be written as text
		if c.Subject == "" || !v.now().Before(c.Claims.Expires) || c.Claims.Expires.Year() > lastYear ||
			c.NotBefore != 0 && v.now().Before(c.NotBefore.Time()) {
			break
		}
		return c.Claims, nil
	}
	return Claims{}, errBadSession
}
