package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Names of the Standard Webhooks headers, in the lower case of the specification.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp" // whole seconds since 1970-01-01 UTC
	HeaderSignature = "webhook-signature" // space-separated "v1,<base64>" entries
)

// DefaultTolerance is how far a message's timestamp may differ from the receiver's clock, in either
// direction, as in the Standard Webhooks libraries.
const DefaultTolerance = 5 * time.Minute

const (
	secretPrefix   = "whsec_"
	newSecretBytes = 32
	minSecretBytes = 24 // bounds of the Standard Webhooks specification
	maxSecretBytes = 64
	schemePrefix   = "v1,"
	maxIDBytes     = 256
)

// Secret is a symmetric signing key. The zero Secret holds no key: nothing verifies against it.
// Printing or logging a Secret never shows the key.
type Secret struct{ key []byte }

// NewSecret returns a fresh secret of 32 random bytes in the text form that
// ParseSecret reads: "whsec_" and standard base64.
func NewSecret() string {
	key := make([]byte, newSecretBytes)
	// crypto/rand.Read never returns an error; it crashes the program instead.
	_, _ = rand.Read(key)
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseSecret reads the text form of a secret, with or without the "whsec_"
// prefix. The key must be 24 to 64 bytes of padded standard base64. The fault is
// of kind Invalid, names the field "secret" and does not repeat the text.
func ParseSecret(text string) (Secret, error) {
	enc := strings.TrimPrefix(text, secretPrefix)
	// The decoder skips line breaks; a secret with one was pasted incorrectly.
	if strings.ContainsAny(enc, "\r\n") {
		return Secret{}, fault.InvalidField("secret", "must not contain line breaks")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(enc)
	if err != nil {
		return Secret{}, fault.InvalidField("secret", `must be "whsec_" and padded standard base64`)
	}
	if len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return Secret{}, fault.InvalidField("secret", "must decode to between %d and %d bytes, not %d",
			minSecretBytes, maxSecretBytes, len(key))
	}
	return Secret{key: key}, nil
}

// IsZero reports whether s holds no key.
func (s Secret) IsZero() bool { return len(s.key) == 0 }

// String keeps the key out of formatted text.
func (s Secret) String() string { return "[redacted]" }

// GoString keeps the key out of %#v.
func (s Secret) GoString() string { return "webhook.Secret{[redacted]}" }

// LogValue keeps the key out of structured logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// Sign returns one entry of the webhook-signature header, "v1,<base64>", for the message id sent at
// ts, in whole seconds. An id must not contain a full stop (see CheckID). Sign panics for the zero
// Secret, since the result would look like a signature that anyone can make.
func (s Secret) Sign(id string, ts time.Time, body []byte) string {
	return schemePrefix + base64.StdEncoding.EncodeToString(s.mac(id, strconv.FormatInt(ts.Unix(), 10), body))
}

func (s Secret) mac(id, ts string, body []byte) []byte {
	if s.IsZero() {
		panic("webhook: signing with the zero Secret")
	}
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(id + "." + ts + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Verify checks a received message as a receiver does: all three headers are present, the timestamp
// is within tolerance of now (usually DefaultTolerance), and at least one of the v1 signatures is
// ours. Entries of other schemes are ignored, so that senders can add schemes. The comparison takes
// constant time. Failures are faults of kind Unauthenticated.
func (s Secret) Verify(h http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	if s.IsZero() {
		return fault.New(fault.Unauthenticated, "webhook: no secret to verify with")
	}
	id, stamp, sigs := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	if id == "" || stamp == "" || sigs == "" {
		return fault.New(fault.Unauthenticated, "webhook: the headers %s, %s and %s are required",
			HeaderID, HeaderTimestamp, HeaderSignature)
	}
	if err := CheckID(id); err != nil {
		return fault.Wrap(fault.Unauthenticated, err, "webhook: %s is malformed", HeaderID)
	}
	secs, err := strconv.ParseInt(stamp, 10, 64)
	// An honest sender signs only the canonical spelling.
	if err != nil || strconv.FormatInt(secs, 10) != stamp {
		return fault.New(fault.Unauthenticated, "webhook: %s must be whole seconds since 1970", HeaderTimestamp)
	}
	if age := now.Sub(time.Unix(secs, 0)); age > tolerance || age < -tolerance {
		return fault.New(
			fault.Unauthenticated, "webhook: %s is more than %s from the present", HeaderTimestamp, tolerance,
		)
	}
	want := s.mac(id, stamp, body)
	for sig := range strings.FieldsSeq(sigs) {
		enc, ok := strings.CutPrefix(sig, schemePrefix)
		if !ok {
			continue
		}
		got, err := base64.StdEncoding.DecodeString(enc)
		if err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return fault.New(fault.Unauthenticated, "webhook: no signature matches")
}

// CheckID refuses a message id that cannot be signed safely: it must be 1 to 256
// visible ASCII characters without a full stop, which is the delimiter of the
// signed text. The fault is of kind Invalid and names the field "id".
func CheckID(id string) error {
	if id == "" || len(id) > maxIDBytes {
		return fault.InvalidField("id", "must be 1 to %d bytes, not %d", maxIDBytes, len(id))
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '.' {
			return fault.InvalidField("id", "must be visible ASCII without a full stop")
		}
	}
	return nil
}
