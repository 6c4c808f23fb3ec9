package auth

import (
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Lengths of tokens that people choose, in characters.
const (
	MinToken       = 16 // shorter ones can be guessed
	AdvisedToken   = 32 // the output of `openssl rand -hex 16`
	generateAdvice = "make one with: openssl rand -hex 32"
)

// CheckToken validates a configured token: it must have at least MinToken characters and fit into
// an Authorization header. A non-empty warning, for the log, means that the token is accepted but
// shorter than AdvisedToken. Neither the warning nor the error repeats the token.
func CheckToken(field, token string) (warning string, err error) {
	switch {
	case !Sendable(token):
		return "", fault.InvalidField(
			field, "must be at most %d printable ASCII characters without spaces; %s", maxToken, generateAdvice,
		)
	case len(token) < MinToken:
		return "", fault.InvalidField(
			field, "must have at least %d characters, since shorter tokens can be guessed; %s", MinToken,
			generateAdvice,
		)
	case len(token) < AdvisedToken:
		return fmt.Sprintf("%s: the token has fewer than %d characters; %s", field, AdvisedToken, generateAdvice), nil
	}
	return "", nil
}

// Sendable reports whether Bearer can read the token from a header.
func Sendable(token string) bool {
	return token != "" && len(token) <= maxToken &&
		!strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}
