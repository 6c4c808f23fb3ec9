package repository

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// masterSize is the length of a repository's master key, in bytes.
const masterSize = 32

// Ciphers of a repository.
const (
	XChaCha20Poly1305 = "xchacha20-poly1305"
	// Plain repositories are readable by everybody who can read the store. What is read is still
	// authenticated, by HMAC-SHA256.
	Plain = "plain"
)

// sealer seals what is stored, and opens it again: encrypted and authenticated, or only
// authenticated in a plain repository. What is sealed is bound to additional data that says what it
// is, so that nothing can stand in for another thing.
type sealer struct {
	aead cipher.AEAD // nil: plain
	key  []byte      // of the HMAC in a plain repository
}

// derive returns a key for a purpose.
func derive(master []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, master, nil, "mainstay backup repository 1: "+purpose, masterSize)
	if err != nil {
		panic(err) // the length is a constant that fits
	}
	return key
}

func newSealer(cipherName string, key []byte) *sealer {
	if cipherName == Plain {
		return &sealer{key: key}
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		panic(err) // the length is a constant that fits
	}
	return &sealer{aead: aead}
}

// overhead returns by how much sealing lengthens, in bytes.
func (s *sealer) overhead() int {
	if s.aead == nil {
		return sha256.Size
	}
	return chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead
}

// seal appends the sealed plain text to dst.
func (s *sealer) seal(dst, plain, aad []byte) []byte {
	if s.aead == nil {
		dst = append(dst, plain...)
		return s.mac(dst, plain, aad)
	}
	var nonce [chacha20poly1305.NonceSizeX]byte
	rand.Read(nonce[:])
	dst = append(dst, nonce[:]...)
	return s.aead.Seal(dst, nonce[:], plain, aad)
}

func (s *sealer) mac(dst, plain, aad []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	var length [8]byte
	putUint64(length[:], uint64(len(aad)))
	h.Write(length[:])
	h.Write(aad)
	h.Write(plain)
	return h.Sum(dst)
}

// open returns the plain text, appended to dst.
func (s *sealer) open(dst, sealed, aad []byte) ([]byte, error) {
	if len(sealed) < s.overhead() {
		return nil, damaged("it is too short")
	}
	if s.aead == nil {
		plain, tag := sealed[:len(sealed)-sha256.Size], sealed[len(sealed)-sha256.Size:]
		if !hmac.Equal(s.mac(nil, plain, aad), tag) {
			return nil, damaged("its keyed hash is wrong")
		}
		return append(dst, plain...), nil
	}
	nonce, text := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	plain, err := s.aead.Open(dst, nonce, text, aad)
	if err != nil {
		return nil, damaged("it was changed, or made with another key")
	}
	return plain, nil
}

// damaged returns the fault for content that fails a check.
func damaged(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, format, args...).WithCode("backup_damaged")
}

// domain is what belongs to one tenant: its place in the store and its keys. Blocks deduplicate only
// within a domain.
type domain struct {
	place string // opaque; begins the names of its objects after their kind
	*sealer
	ids []byte // the key of the ids of its blobs
}

// place returns where a tenant's objects are. It does not tell the tenant's name.
func (r *Repository) place(tenant string) string {
	h := hmac.New(sha256.New, r.placeKey)
	h.Write([]byte(tenant))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// domainAt returns the domain at a place. Its keys follow from the place, so that a new installation
// can read the manifests before it knows the tenants.
func (r *Repository) domainAt(place string) *domain {
	key := derive(r.master, "domain "+place)
	return &domain{
		place:  place,
		sealer: newSealer(r.config.Cipher, derive(key, "seal")),
		ids:    derive(key, "blob ids"),
	}
}
