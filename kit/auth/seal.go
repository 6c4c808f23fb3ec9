package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	minSecret = 32      // bytes
	maxSealed = 1 << 20 // characters
	// A sealed value is sealedV2, the id of its key, a dot and the ciphertext. Older values have
	// sealedV1 in front of the ciphertext and do not name their key. Only the second format is
	// written, even while there is a single key: an older version refuses the database anyway, since
	// this one has changed its tables.
	sealedV1 = "v1."
	sealedV2 = "v2."
	// keyIDSize is the length of a key's id in bytes. Two keys of a service never share one.
	keyIDSize = 8
)

// Sealer encrypts and authenticates values that must be read back: stored secrets and cookies. It
// uses AES-256-GCM (NIST SP 800-38D) with a random nonce, under a key derived from a secret and a
// purpose by HKDF-SHA256 (RFC 5869). It seals with its current key, and also opens what other
// accepted keys have sealed. One key must not seal more than 2^32 values. It is safe for concurrent
// use.
type Sealer struct{ keys []sealingKey } // the current one first

type sealingKey struct {
	id   string
	aead cipher.AEAD
}

// NewSealer derives the keys for one purpose, for example "webhook secrets". The current key comes
// from secret, and the others that are accepted come from accepted. A value sealed for one purpose
// cannot be opened for another. Secrets must be random and have at least 32 bytes; a shorter one is
// a fault of kind Invalid.
func NewSealer(secret []byte, purpose string, accepted ...[]byte) (*Sealer, error) {
	s := &Sealer{}
	for _, each := range append([][]byte{secret}, accepted...) {
		key, err := newSealingKey(each, purpose)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

func newSealingKey(secret []byte, purpose string) (sealingKey, error) {
	if len(secret) < minSecret {
		return sealingKey{}, fault.New(
			fault.Invalid, "the sealing secret must have at least %d bytes, not %d", minSecret, len(secret),
		)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "mainstay seal: "+purpose, 32)
	if err != nil {
		return sealingKey{}, fmt.Errorf("auth: derive key: %w", err)
	}
	// The id is derived like a key, so it reveals nothing. It is the same for all purposes.
	id, err := hkdf.Key(sha256.New, secret, nil, "mainstay seal key id", keyIDSize)
	if err != nil {
		return sealingKey{}, fmt.Errorf("auth: derive key id: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealingKey{}, fmt.Errorf("auth: seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return sealingKey{}, fmt.Errorf("auth: seal: %w", err)
	}
	return sealingKey{hex.EncodeToString(id), aead}, nil
}

// prefix begins what the current key seals.
func (s *Sealer) prefix() string { return sealedV2 + s.keys[0].id + "." }

// Seal returns plaintext encrypted as ASCII that is safe in a cookie, a URL or a text column. aad
// is not part of the result but must be passed to Open; it binds the value to its place, for
// example to a row's id.
func (s *Sealer) Seal(plaintext []byte, aad string) string {
	return s.prefix() + base64.RawURLEncoding.EncodeToString(s.keys[0].aead.Seal(nil, nil, plaintext, []byte(aad)))
}

// Stale reports whether a value was not sealed with the current key in the current format. To renew
// it, open it and seal it again.
func (s *Sealer) Stale(sealed string) bool { return !strings.HasPrefix(sealed, s.prefix()) }

// Open is the inverse of Seal. A value that is damaged, longer than 1 MiB, or made with a secret
// that is not accepted, or another purpose or aad, is a fault of kind Invalid.
func (s *Sealer) Open(sealed, aad string) ([]byte, error) {
	if len(sealed) > maxSealed || strings.ContainsAny(sealed, "\r\n") {
		return nil, badSeal()
	}
	text, unnamed := strings.CutPrefix(sealed, sealedV1)
	id := ""
	if !unnamed {
		named, ok := strings.CutPrefix(sealed, sealedV2)
		if !ok {
			return nil, badSeal()
		}
		if id, text, ok = strings.Cut(named, "."); !ok {
			return nil, badSeal()
		}
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, badSeal()
	}
	for _, key := range s.keys {
		if !unnamed && key.id != id {
			continue
		}
		if plaintext, err := key.aead.Open(nil, nil, raw, []byte(aad)); err == nil {
			return plaintext, nil
		}
	}
	return nil, badSeal()
}

func badSeal() error {
	return fault.New(fault.Invalid, "the sealed value is damaged or was sealed with another key").WithCode("bad_seal")
}
