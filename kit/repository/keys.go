package repository

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"iter"

	"filippo.io/age"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
)

const (
	keysPrefix = "keys/"
	maxKey     = 8 << 10
	maxKeys    = 64
	// maxWork bounds the work of scrypt (2 to its power) that a stored key can ask for.
	maxWork = 20
)

// Lock is what the master key is wrapped with: a passphrase or an age recipient ("age1...").
type Lock struct {
	Passphrase string
	Recipient  string
	// WorkFactor is the work of scrypt for a passphrase, as a power of two. 0 means that of age.
	WorkFactor int
}

// Key opens a repository: a passphrase, an age identity ("AGE-SECRET-KEY-1..."), or the master key
// itself.
type Key struct {
	Passphrase string
	Identity   string
	Master     []byte
}

func (l Lock) recipient() (age.Recipient, error) {
	switch {
	case l.Passphrase != "" && l.Recipient == "":
		r, err := age.NewScryptRecipient(l.Passphrase)
		if err != nil {
			return nil, fault.InvalidField("passphrase", "is not valid")
		}
		if l.WorkFactor > maxWork {
			return nil, fault.InvalidField("work_factor", "must be at most %d", maxWork)
		}
		if l.WorkFactor > 0 {
			r.SetWorkFactor(l.WorkFactor)
		}
		return r, nil
	case l.Recipient != "" && l.Passphrase == "":
		r, err := age.ParseX25519Recipient(l.Recipient)
		if err != nil {
			return nil, fault.InvalidField("recipient", "is not a valid recipient of age, such as age1...")
		}
		return r, nil
	}
	return nil, fault.InvalidField("lock", "must have either a passphrase or a recipient")
}

// AddKey wraps the master key with one more lock, and returns the id of the new key.
func (r *Repository) AddKey(ctx context.Context, lock Lock) (id string, err error) {
	recipient, err := lock.recipient()
	if err != nil {
		return "", err
	}
	var wrapped bytes.Buffer
	w, err := age.Encrypt(&wrapped, recipient)
	if err == nil {
		_, err = w.Write(r.master)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", err
	}
	id = newID().String()
	mac := keyMAC(r.master, keysPrefix+id, wrapped.Bytes())
	return id, r.store.Put(ctx, keysPrefix+id, append(wrapped.Bytes(), mac...))
}

// keyMAC authenticates a wrapped key by the master key that it holds, so that Verify finds a damaged
// one without its passphrase.
func keyMAC(master []byte, name string, wrapped []byte) []byte {
	h := hmac.New(sha256.New, derive(master, "wrapped key "+name))
	h.Write(wrapped)
	return h.Sum(nil)
}

// Keys returns the ids of the wrapped keys.
func (r *Repository) Keys(ctx context.Context) (ids []string, err error) {
	for info, err := range r.store.List(ctx, keysPrefix) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, info.Name[len(keysPrefix):])
	}
	return ids, nil
}

// RemoveKey removes a wrapped key. Who has a copy of it and its passphrase can still open the
// repository, since the master key stays.
func (r *Repository) RemoveKey(ctx context.Context, id string) error {
	if err := store.CheckName(keysPrefix + id); err != nil {
		return err
	}
	return r.store.Delete(ctx, keysPrefix+id)
}

// unlock yields the master keys that wrapped ones hold, and nil for each that does not fit.
func unlock(ctx context.Context, s store.Store, key Key) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		identity, err := key.identity()
		if err != nil {
			yield(nil, err)
			return
		}
		if identity == nil {
			yield(bytes.Clone(key.Master), nil)
			return
		}
		tried := 0
		for info, err := range s.List(ctx, keysPrefix) {
			if err != nil {
				yield(nil, err)
				return
			}
			if tried++; tried > maxKeys {
				return
			}
			content, err := s.Get(ctx, info.Name, maxKey)
			if errors.Is(err, fs.ErrNotExist) || fault.Is(err, fault.TooLarge) {
				content, err = nil, nil
			}
			if !yield(unwrap(info.Name, content, identity), err) || err != nil {
				return
			}
		}
	}
}

// identity returns what opens wrapped keys; nil: the key is the master key itself.
func (key Key) identity() (age.Identity, error) {
	switch {
	case key.Master != nil:
		if len(key.Master) != masterSize {
			return nil, fault.InvalidField("key", "must have %d bytes", masterSize)
		}
		return nil, nil
	case key.Passphrase != "":
		i, err := age.NewScryptIdentity(key.Passphrase)
		if err != nil {
			return nil, fault.InvalidField("passphrase", "is not valid")
		}
		i.SetMaxWorkFactor(maxWork)
		return i, nil
	case key.Identity != "":
		i, err := age.ParseX25519Identity(key.Identity)
		if err != nil {
			return nil, fault.InvalidField("identity", "is not a valid identity of age, such as AGE-SECRET-KEY-1...")
		}
		return i, nil
	}
	return nil, fault.InvalidField("key", "must have a passphrase, an identity or a master key")
}

// unwrap returns the master key in an object of keys/, or nil.
func unwrap(name string, content []byte, identity age.Identity) []byte {
	if len(content) < sha256.Size {
		return nil
	}
	wrapped, mac := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	plain, err := age.Decrypt(bytes.NewReader(wrapped), identity)
	if err != nil {
		return nil
	}
	master, err := io.ReadAll(io.LimitReader(plain, masterSize+1))
	if err != nil || len(master) != masterSize || !hmac.Equal(mac, keyMAC(master, name, wrapped)) {
		return nil
	}
	return master
}
