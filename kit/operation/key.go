package operation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Key tells a request that is repeated, because its answer was lost, from another one. The zero Key
// is that of a request that is not to be recognized.
type Key struct{ hash, request string }

// NewKey makes the Key of a word that a caller chose, as in the header Idempotency-Key. Words of
// other callers are other keys. request is what is asked for, as JSON stores it: a repetition asks
// for the same.
func NewKey(caller, word string, request any) (Key, error) {
	if word == "" {
		return Key{}, nil
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return Key{}, err
	}
	return Key{hash: hashOf([]byte(caller + "\x00" + word)), request: hashOf(raw)}, nil
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

type keyKey struct{}

// WithKey is a context in which Begin stores the key with the operation.
func WithKey(ctx context.Context, k Key) context.Context { return context.WithValue(ctx, keyKey{}, k) }

// errTwice is for two requests with one key at the same time.
var errTwice = fault.New(
	fault.Conflict, "a request with the same Idempotency-Key is being served; repeat this when it was answered",
).WithCode("idempotency_key_in_use")

// Claim keeps other requests with the same key out of this process until release is called. It fails
// with a Conflict fault while another has it. Services claim a key before they ask whether a request
// is repeated: what the first of two requests prepares, such as a name that it takes, would otherwise
// refuse the second for another reason. Of two processes, Begin lets one through.
func (r *Runner) Claim(k Key) (release func(), err error) {
	if k.hash == "" {
		return func() {}, nil
	}
	if _, taken := r.claimed.LoadOrStore(k.hash, nil); taken {
		return nil, errTwice
	}
	return func() { r.claimed.Delete(k.hash) }, nil
}

// Repeated is the id of the operation that was begun with a key, empty if there is none. Services ask
// for it before they prepare anything. If something else was asked for with the key, it fails with a
// Conflict fault.
func (r *Runner) Repeated(ctx context.Context, k Key) (id string, err error) {
	if k.hash == "" {
		return "", nil
	}
	var found Operation
	err = r.db.Get(ctx, &found, "SELECT id, request_sha256 FROM operations WHERE idempotency_key = ?", k.hash)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case found.RequestHash != k.request:
		return "", fault.New(
			fault.Conflict, "something else was asked for with the same Idempotency-Key; use another for this",
		).WithCode("idempotency_key_reused")
	}
	return found.ID, nil
}
