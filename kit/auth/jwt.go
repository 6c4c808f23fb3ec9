package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Claims are the contents of a session token. Only the holder of the key can have issued them.
type Claims struct {
	Subject string `json:"sub"`
	Role    string `json:"role,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	ID      string `json:"jti"` // identifies the token for revocation
	// Epoch is a mark that the service stores with the subject and changes in order to end all its
	// tokens, for example when the password changes. The service compares it; Check does not.
	Epoch   string    `json:"epoch,omitempty"`
	Issued  time.Time `json:"-"` // the claim iat; set by Issue
	Expires time.Time `json:"-"` // the claim exp; set by Issue
}

// Sessions issues and checks JSON Web Tokens (RFC 7519) signed with HS256 and a secret of the
// server. The algorithm is pinned: a token's header cannot change it, for example to "none". A
// header or claim that appears twice, or in another case, is refused, since other readers of the
// token could take it for something else. It is safe for concurrent use.
//
// Opaque tokens (NewToken) are simpler, and services use them among themselves. Sessions are for
// contracts that promise a JSON Web Token.
type Sessions struct {
	now     func() time.Time
	signer  jose.Signer
	keys    map[string][]byte // by key id
	revoked func(ctx context.Context, id string) (bool, error)
}

// NewSessions returns Sessions that sign with the first of the secrets and accept all of them, so
// that a secret can be replaced while tokens of the previous one are still in use. Each secret has
// at least 32 bytes (RFC 7518 section 3.2); a shorter one is a fault of kind Invalid. revoked
// reports whether the token with an id was revoked; it is called for every token that is otherwise
// valid.
func NewSessions(
	now func() time.Time, revoked func(ctx context.Context, id string) (bool, error), secrets ...[]byte,
) (*Sessions, error) {
	s := &Sessions{now: now, keys: map[string][]byte{}, revoked: revoked}
	for i, secret := range secrets {
		if len(secret) < minSecret {
			return nil, fault.New(
				fault.Invalid, "the secret of sessions must have at least %d bytes, not %d", minSecret, len(secret),
			)
		}
		id := keyID(secret)
		s.keys[id] = secret
		if i > 0 {
			continue
		}
		var err error
		s.signer, err = jose.NewSigner(
			jose.SigningKey{
				Algorithm: jose.HS256,
				Key:       secret,
			},
			(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", id),
		)
		if err != nil {
			return nil, fmt.Errorf("auth: sign sessions: %w", err)
		}
	}
	if s.signer == nil {
		return nil, fault.New(fault.Invalid, "sessions need a secret")
	}
	return s, nil
}

// keyID returns an id for a key that reveals nothing about it.
func keyID(secret []byte) string {
	sum := sha256.Sum256(append([]byte("mainstay key id: "), secret...))
	return hex.EncodeToString(sum[:8])
}

type wireClaims struct {
	Claims
	Issued  jwt.NumericDate `json:"iat,omitempty"`
	Expires jwt.NumericDate `json:"exp"`
}

// Issue returns a token for the claims that expires after life. It sets the token's ID
// and times.
func (s *Sessions) Issue(c Claims, life time.Duration) (token string, issued Claims, err error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: it crashes the program instead
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	c.ID = fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]) // UUIDv4, RFC 9562
	now := s.now()
	c.Issued, c.Expires = now.UTC().Truncate(time.Second), now.Add(life).UTC().Truncate(time.Second)
	wire := wireClaims{Claims: c, Issued: *jwt.NewNumericDate(c.Issued), Expires: *jwt.NewNumericDate(c.Expires)}
	token, err = jwt.Signed(s.signer).Claims(wire).Serialize()
	return token, c, err
}

var errBadSession = fault.New(fault.Unauthenticated, "the token is not valid")

// Check returns the claims of a token. A token that is damaged, expired, revoked or signed with
// another key is a fault of kind Unauthenticated.
func (s *Sessions) Check(ctx context.Context, token string) (Claims, error) {
	if !Sendable(token) { // base64 would skip line breaks
		return Claims{}, errBadSession
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.HS256})
	if err != nil || len(parsed.Headers) != 1 {
		return Claims{}, errBadSession
	}
	key, known := s.keys[parsed.Headers[0].KeyID]
	if !known || parsed.Headers[0].ExtraHeaders[jose.HeaderType] != "JWT" {
		return Claims{}, errBadSession
	}
	var c wireClaims
	if err := parsed.Claims(key, &c); err != nil {
		return Claims{}, errBadSession
	}
	c.Claims.Issued, c.Claims.Expires = c.Issued.Time().UTC(), c.Expires.Time().UTC()
	const lastYear = 9999 // that can be written as text
	if c.Subject == "" || c.ID == "" || !s.now().Before(c.Claims.Expires) || c.Claims.Expires.Year() > lastYear {
		return Claims{}, errBadSession
	}
	revoked, err := s.revoked(ctx, c.ID)
	switch {
	case err != nil:
		return Claims{}, err
	case revoked:
		return Claims{}, errBadSession
	}
	return c.Claims, nil
}
