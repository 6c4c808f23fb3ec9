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
	// maxToken limits what Bearer accepts, in bytes. It leaves room for a JSON Web Token.
	maxToken = 4 << 10
)

// NewToken returns prefix followed by 256 random bits in base64url without padding (43 characters).
// The prefix, for example "mst_", lets people and secret scanners recognise a leaked token.
func NewToken(prefix string) string {
	raw := make([]byte, tokenBytes)
	_, _ = rand.Read(raw) // never fails: it crashes the program instead
	return prefix + base64.RawURLEncoding.EncodeToString(raw)
}

// HashToken returns the form in which a token is stored and looked up: SHA-256 in lower-case hex.
//
// A fast hash without salt is right here, unlike for passwords. Slow hashes and salt make guessing
// expensive if the secret comes from a small set, but 256 random bits cannot be guessed at any
// speed. In return, the hash can be a table's index and is cheap to compute for every request.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// EqualHash compares two results of HashToken in constant time.
func EqualHash(a, b string) bool { return equalSecrets(a, b) }

// equalSecrets compares two strings. For strings of equal length, its duration does not reveal
// where they differ.
func equalSecrets(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// Bearer returns the token of an "Authorization: Bearer" header (RFC 6750 section 2.1); the
// scheme's case does not matter (RFC 9110 section 11.1). The form and query parameters of RFC 6750
// are deliberately not read, since they end up in logs. It reports false for any other scheme, for
// several Authorization headers, and for a token that is empty, longer than 4 KiB or not printable
// ASCII without spaces.
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
