package auth

import (
	"crypto/rand"
	"encoding/base32"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Parameters of one-time passwords (RFC 6238). Every authenticator app supports them: SHA-1, six
// digits, 30 seconds.
const (
	totpPeriod = 30 * time.Second
	totpSecret = 20 // bytes, as RFC 4226 section 4 recommends
	// totpSkew is how many steps a phone's clock may be off, in both directions (RFC 6238 section
	// 5.2).
	totpSkew = 1
)

var base32Plain = base32.StdEncoding.WithPadding(base32.NoPadding)

// NewTOTP returns the secret of a second factor, which the caller stores sealed, and the URI that
// an authenticator app reads from a QR code.
func NewTOTP(issuer, account string) (secret, uri string) {
	raw := make([]byte, totpSecret)
	_, _ = rand.Read(raw) // never fails: it crashes the program instead
	secret = base32Plain.EncodeToString(raw)
	query := url.Values{"secret": {secret}, "issuer": {issuer}}
	return secret, "otpauth://totp/" + url.PathEscape(issuer+":"+account) + "?" + strings.ReplaceAll(
		query.Encode(), "+", "%20",
	)
}

var errBadCode = fault.New(
	fault.Unauthenticated,
	"the code is not valid; the clock of the device that shows it may be wrong",
).WithCode("bad_totp")

// CheckTOTP checks a code from an authenticator app. last is the step of the last accepted code, 0
// at first: each code is valid once (RFC 6238 section 5.2). The caller stores step in place of
// last, in the transaction of the login.
func CheckTOTP(secret, code string, now time.Time, last int64) (step int64, err error) {
	if len(code) > 16 { // six digits, plus spaces that people type
		return 0, errBadCode
	}
	code = strings.ReplaceAll(code, " ", "")
	current := now.Unix() / int64(totpPeriod/time.Second)
	for at := current - totpSkew; at <= current+totpSkew; at++ {
		if at <= last || at < 0 {
			continue
		}
		want, err := hotp.GenerateCodeCustom(
			secret, uint64(at), hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1},
		)
		if err != nil {
			return 0, fault.Wrap(fault.Internal, err, "the stored secret of the second factor cannot be read")
		}
		if equalSecrets(want, code) {
			return at, nil
		}
	}
	return 0, errBadCode
}

// Recovery codes are for users who have lost their device.
const (
	recoveryCodes = 10
	recoveryBytes = 10 // 80 bits per code, so a fast hash is enough (HashToken)
)

// NewRecoveryCodes returns ten codes, such as ABCD-EFGH-IJKL-MNOP, each valid for one login, and
// the hashes to store.
func NewRecoveryCodes() (codes, hashes []string) {
	for range recoveryCodes {
		raw := make([]byte, recoveryBytes)
		_, _ = rand.Read(raw) // never fails: it crashes the program instead
		code := base32Plain.EncodeToString(raw)
		codes = append(codes, code[:4]+"-"+code[4:8]+"-"+code[8:12]+"-"+code[12:])
		hashes = append(hashes, HashToken(code))
	}
	return codes, hashes
}

// UseRecoveryCode looks for a code among the stored hashes and returns the remaining ones, to be
// stored in the transaction of the login. Case, spaces and dashes do not matter.
func UseRecoveryCode(hashes []string, code string) (left []string, err error) {
	if len(code) > 64 {
		return nil, errBadCode
	}
	hash := HashToken(strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(code)))
	found := -1
	for i, stored := range hashes { // always all of them, for constant time
		if EqualHash(stored, hash) {
			found = i
		}
	}
	if found < 0 {
		return nil, errBadCode
	}
	return slices.Delete(slices.Clone(hashes), found, found+1), nil
}
