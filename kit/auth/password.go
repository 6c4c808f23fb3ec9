package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits on passwords and on the parameters of stored strings. The latter keep a string that an
// attacker planted in a table from exhausting memory or time; they allow the second recommended
// option of RFC 9106 section 4 (64 MiB, 3 passes, 4 lanes).
const (
	maxPassword = 1024 // bytes

	maxMemory   = 64 << 10 // KiB
	maxPasses   = 10
	maxLanes    = 16
	minSalt     = 8
	maxSalt     = 64
	minKey      = 16
	maxKey      = 64
	maxEncoded  = 512 // bytes of the whole string
	newSaltSize = 16
	newKeySize  = 32
)

// PasswordParams is the cost of an argon2id hash.
type PasswordParams struct {
	Memory uint32 // KiB
	Passes uint32
	Lanes  uint8
}

// DefaultPasswordParams returns 19 MiB, 2 passes, 1 lane: the second of the equivalent choices in
// OWASP's Password Storage Cheat Sheet (argon2id, 2024). It was preferred over 46 MiB with one pass
// because services run in small containers.
func DefaultPasswordParams() PasswordParams {
	return PasswordParams{Memory: 19 << 10, Passes: 2, Lanes: 1}
}

// Hasher hashes and verifies passwords, a limited number at a time, so that a flood of logins
// cannot exhaust memory. It is safe for concurrent use.
type Hasher struct {
	params PasswordParams
	slots  chan struct{}
}

// NewHasher returns a Hasher that creates new hashes with params and computes at most concurrent
// (at least 1) hashes at once. It uses at most concurrent times 64 MiB, the limit for stored
// strings, and usually concurrent times params.Memory. Params outside the limits for stored strings
// are a fault of kind Invalid.
func NewHasher(params PasswordParams, concurrent int) (*Hasher, error) {
	if concurrent < 1 {
		return nil, fault.New(
			fault.Invalid, "the number of concurrent password hashes must be at least 1, not %d", concurrent,
		)
	}
	if err := params.check(); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "argon2id parameters are out of range")
	}
	return &Hasher{params: params, slots: make(chan struct{}, concurrent)}, nil
}

// HashPassword returns the PHC string of password with a fresh salt, for example
// "$argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>". A password that is empty or
// longer than 1024 bytes is a fault of kind Invalid with the field "password";
// services may add further rules. If ctx ends while waiting for a turn, the
// fault is Unavailable.
func (h *Hasher) HashPassword(ctx context.Context, password string) (string, error) {
	if password == "" || len(password) > maxPassword {
		return "", fault.InvalidField("password", "must have 1 to %d bytes", maxPassword)
	}
	p := phc{PasswordParams: h.params, salt: make([]byte, newSaltSize), key: make([]byte, newKeySize)}
	_, _ = rand.Read(p.salt)
	key, err := h.derive(ctx, p, password)
	if err != nil {
		return "", err
	}
	p.key = key
	return p.String(), nil
}

// VerifyPassword reports whether encoded is a hash of password. The error is Internal if encoded is
// not an argon2id string within the limits, since the service itself stored it, and Unavailable if
// ctx ends while waiting.
func (h *Hasher) VerifyPassword(ctx context.Context, encoded, password string) (bool, error) {
	p, err := parsePHC(encoded)
	if err != nil {
		return false, fault.Wrap(fault.Internal, err, "the stored password hash cannot be used; set a new password")
	}
	if len(password) > maxPassword {
		return false, nil
	}
	key, err := h.derive(ctx, p, password)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(key, p.key) == 1, nil
}

// VerifyUnknown does the work of VerifyPassword for a user who does not exist, and reports false.
// Without it, the duration of a failed login would reveal which usernames exist.
func (h *Hasher) VerifyUnknown(ctx context.Context, password string) (bool, error) {
	if len(password) > maxPassword {
		return false, nil
	}
	p := phc{PasswordParams: h.params, salt: make([]byte, newSaltSize), key: make([]byte, newKeySize)}
	_, err := h.derive(ctx, p, password)
	return false, err
}

// NeedsRehash reports whether encoded was made with other parameters than this
// Hasher's, so that a login can replace it while the password is at hand.
func (h *Hasher) NeedsRehash(encoded string) bool {
	p, err := parsePHC(encoded)
	return err != nil || p.PasswordParams != h.params
}

func (h *Hasher) derive(ctx context.Context, p phc, password string) ([]byte, error) {
	busy := func() error {
		return fault.Wrap(fault.Unavailable, ctx.Err(), "too many logins at once; try again").WithRetryAfter(
			time.Second,
		)
	}
	if ctx.Err() != nil { // select would choose at random
		return nil, busy()
	}
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, busy()
	}
	defer func() { <-h.slots }()
	return argon2.IDKey([]byte(password), p.salt, p.Passes, p.Memory, p.Lanes, uint32(len(p.key))), nil
}

// phc is a parsed hash in the PHC string format
// (github.com/P-H-C/phc-string-format).
type phc struct {
	PasswordParams
	salt, key []byte
}

func (p phc) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.Memory, p.Passes, p.Lanes,
		base64.RawStdEncoding.EncodeToString(p.salt), base64.RawStdEncoding.EncodeToString(p.key))
}

func (p PasswordParams) check() error {
	switch {
	// RFC 9106 section 3.1 requires 8 KiB for each lane.
	case p.Memory < 8*uint32(p.Lanes) || p.Memory > maxMemory:
		return fmt.Errorf("m=%d is not between 8*p and %d KiB", p.Memory, maxMemory)
	case p.Passes < 1 || p.Passes > maxPasses:
		return fmt.Errorf("t=%d is not between 1 and %d", p.Passes, maxPasses)
	case p.Lanes < 1 || p.Lanes > maxLanes:
		return fmt.Errorf("p=%d is not between 1 and %d", p.Lanes, maxLanes)
	}
	return nil
}

var errPHC = errors.New("not an argon2id PHC string")

// parsePHC accepts exactly what phc.String writes.
func parsePHC(s string) (phc, error) {
	if len(s) > maxEncoded {
		return phc{}, errPHC
	}
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return phc{}, errPHC
	}
	costs := strings.Split(parts[3], ",")
	if len(costs) != 3 {
		return phc{}, errPHC
	}
	var n [3]uint64
	for i, name := range []string{"m=", "t=", "p="} {
		digits, ok := strings.CutPrefix(costs[i], name)
		if !ok {
			return phc{}, errPHC
		}
		var err error
		if n[i], err = strconv.ParseUint(digits, 10, 32); err != nil {
			return phc{}, errPHC
		}
	}
	if n[2] > maxLanes {
		return phc{}, fmt.Errorf("p=%d is more than %d", n[2], maxLanes)
	}
	p := phc{PasswordParams: PasswordParams{Memory: uint32(n[0]), Passes: uint32(n[1]), Lanes: uint8(n[2])}}
	if err := p.check(); err != nil {
		return phc{}, err
	}
	var errSalt, errKey error
	p.salt, errSalt = base64.RawStdEncoding.DecodeString(parts[4])
	p.key, errKey = base64.RawStdEncoding.DecodeString(parts[5])
	if errSalt != nil || errKey != nil || len(p.salt) < minSalt || len(p.salt) > maxSalt || len(p.key) < minKey ||
		len(p.key) > maxKey {
		return phc{}, errPHC
	}
	// Each value has exactly one spelling: no leading zeros, no non-canonical base64.
	if p.String() != s {
		return phc{}, errPHC
	}
	return p, nil
}
