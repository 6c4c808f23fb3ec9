package backup

import (
	"os"
	"strings"

	"filippo.io/age"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
)

// plainPassphrase opens repositories that are not encrypted. It is not a secret, and protects nothing.
const plainPassphrase = "mainstay: this repository is not encrypted"

// plainWork is the work that this passphrase takes, as a power of two: next to none.
const plainWork = 10

// Key is what the data of backups is encrypted with: an identity of age. It has no String, so that it is not logged.
type Key struct{ identity *age.X25519Identity }

// maxKeyFile is the most bytes of a file with a key.
const maxKeyFile = 64 << 10

// ReadKey reads a key from a file, as age-keygen writes it.
func ReadKey(path string) (Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return Key{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return Key{}, fault.New(fault.Invalid, "%s is not a file with a key", path)
	}
	all, err := age.ParseIdentities(f)
	if err != nil || len(all) != 1 {
		return Key{}, fault.New(fault.Invalid, "%s does not hold one key of age (AGE-SECRET-KEY-1...)", path)
	}
	identity, ok := all[0].(*age.X25519Identity)
	if !ok {
		return Key{}, fault.New(fault.Invalid, "%s does not hold a key of age (AGE-SECRET-KEY-1...)", path)
	}
	return Key{identity}, nil
}

// folder returns the folder of the repository that is encrypted with the key, or of the one that is not encrypted.
func (k Key) folder() string {
	if k.identity == nil {
		return "plain/"
	}
	return strings.ToLower(k.identity.Recipient().String()) + "/"
}

// opens returns the key for repositories.
func (k Key) opens() repository.Key {
	if k.identity == nil {
		return repository.Key{Passphrase: plainPassphrase}
	}
	return repository.Key{Identity: k.identity.String()}
}

// makes returns how a repository is made that the key opens.
func (k Key) makes() repository.CreateOptions {
	if k.identity == nil {
		return repository.CreateOptions{
			Cipher: repository.Plain, Locks: []repository.Lock{{Passphrase: plainPassphrase, WorkFactor: plainWork}},
		}
	}
	return repository.CreateOptions{Locks: []repository.Lock{{Recipient: k.identity.Recipient().String()}}}
}
