package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	minSecret = 32      // bytes
	maxSealed = 1 << 20 // characters
	// sealedV1 identifies the format, so that another can follow it.
	sealedV1 = "v1."
)

// Sealer encrypts and authenticates values that must be read back: stored secrets and cookies. It
// uses AES-256-GCM (NIST SP 800-38D) with a random nonce, under a key derived from a secret and a
// purpose by HKDF-SHA256 (RFC 5869). One key must not seal more than 2^32 values. It is safe for
// concurrent use.
type Sealer struct{ aead cipher.AEAD }

// NewSealer derives the key for one purpose, for example "webhook secrets". A value sealed for one
// purpose cannot be opened for another. The secret must be random and have at least 32 bytes; a
// shorter one is a fault of kind Invalid.
func NewSealer(secret []byte, purpose string) (*Sealer, error) {
	if len(secret) < minSecret {
		return nil, fault.New(
			fault.Invalid, "the sealing secret must have at least %d bytes, not %d", minSecret, len(secret),
		)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "mainstay seal: "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("auth: derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("auth: seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("auth: seal: %w", err)
	}
	return &Sealer{aead}, nil
}

// Seal returns plaintext encrypted as ASCII that is safe in a cookie, a URL or a text column. aad
// is not part of the result but must be passed to Open; it binds the value to its place, for
// example to a row's id.
func (s *Sealer) Seal(plaintext []byte, aad string) string {
	return sealedV1 + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plaintext, []byte(aad)))
}

// Open is the inverse of Seal. A value that is damaged, longer than 1 MiB, or made
// with another secret, purpose or aad is a fault of kind Invalid.
func (s *Sealer) Open(sealed, aad string) ([]byte, error) {
	text, ok := strings.CutPrefix(sealed, sealedV1)
	if !ok || len(sealed) > maxSealed || strings.ContainsAny(text, "\r\n") {
		return nil, badSeal()
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, badSeal()
	}
	plaintext, err := s.aead.Open(nil, nil, raw, []byte(aad))
	if err != nil {
		return nil, badSeal()
	}
	return plaintext, nil
}

func badSeal() error {
	return fault.New(fault.Invalid, "the sealed value is damaged or was sealed with another key").WithCode("bad_seal")
}
