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

// Key identifies a request, so that a retry after a lost response is recognized. The zero Key means
// that the request is not identified.
type Key struct{ hash, request string }

// NewKey returns the Key for a word that a caller chose, as in the header Idempotency-Key. The same
// word from different callers gives different keys. request is the content of the request, hashed
// as JSON: a retry must have the same content.
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

// WithKey returns a context in which Begin stores the key with the operation.
func WithKey(ctx context.Context, k Key) context.Context { return context.WithValue(ctx, keyKey{}, k) }

// errTwice is returned for two concurrent requests with the same key.
var errTwice = fault.New(
	fault.Conflict, "a request with the same Idempotency-Key is being served; repeat this when it was answered",
).WithCode("idempotency_key_in_use")

// Claim locks the key in this process until release is called. It fails with a Conflict fault while
// another request holds it. Services claim a key before they call Repeated: otherwise, something
// that the first of two requests prepares, such as a name that it takes, would make the second fail
// for another reason. Between two processes, Begin lets only one request through.
func (r *Runner) Claim(k Key) (release func(), err error) {
	if k.hash == "" {
		return func() {}, nil
	}
	if _, taken := r.claimed.LoadOrStore(k.hash, nil); taken {
		return nil, errTwice
	}
	return func() { r.claimed.Delete(k.hash) }, nil
}

// Once returns what begin starts, or what the caller (who) started earlier with the same request and the same word,
// which get reads by its id. With an empty word, it starts something each time.
func Once[T any](
	ctx context.Context, r *Runner, who, word string, request any, get func(ctx context.Context, id string) (T, error),
	begin func(ctx context.Context) (T, error),
) (none T, err error) {
	key, err := NewKey(who, word, request)
	if err != nil {
		return none, err
	}
	release, err := r.Claim(key)
	if err != nil {
		return none, err
	}
	defer release()
	id, err := r.Repeated(ctx, key)
	switch {
	case err != nil:
		return none, err
	case id != "":
		return get(ctx, id)
	}
	started, err := begin(WithKey(ctx, key))
	if err == nil {
		return started, nil
	}
	// Another process may have started it at this moment: then what begin asked for is taken.
	if id, again := r.Repeated(ctx, key); again == nil && id != "" {
		return get(ctx, id)
	}
	return none, err
}

// Repeated returns the id of the operation that was started with the key, or "" if there is none.
// Services call it before they prepare anything. If the key was used for a request with other
// content, it fails with a Conflict fault.
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
