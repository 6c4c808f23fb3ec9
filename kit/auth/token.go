package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
)

const (
	tokenBytes = 32
	// maxToken bounds what Bearer accepts, in bytes. A JSON Web Token fits too.
	maxToken = 4 << 10
)

// NewToken returns prefix followed by 256 random bits in base64url without
// padding (43 characters). The prefix, for example "mst_", lets people and secret
// scanners recognise what leaked.
func NewToken(prefix string) string {
	raw := make([]byte, tokenBytes)
	_, _ = rand.Read(raw) // never fails: it ends the program instead
	return prefix + base64.RawURLEncoding.EncodeToString(raw)
}

// HashToken is the form in which a token is stored and looked up: SHA-256 in
// lower-case hex.
//
// A fast hash without salt is right here, unlike for passwords. Slowness and salt
// make guessing expensive where the secret comes from a small set; nobody guesses
// 256 random bits at any speed. In return the hash can be an index in a table and
// be computed for every request.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// EqualHash compares two results of HashToken in constant time.
func EqualHash(a, b string) bool { return equalSecrets(a, b) }

// equalSecrets does not tell by its duration where two strings of one length
// differ.
func equalSecrets(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Bearer is the token of an "Authorization: Bearer" header (RFC 6750 section
// 2.1); the scheme's case does not matter (RFC 9110 section 11.1). The form and
// query parameters of RFC 6750 are deliberately not read: they end up in logs.
// It reports false for any other scheme, for several Authorization headers, and
// for a token that is empty, longer than 4 KiB or not of printable ASCII without
// spaces.
func Bearer(r *http.Request) (string, bool) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || !Sendable(token) {
		return "", false
	}
	return token, true
}
