package auth

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// minSecretKey is the shortest secret key that may be configured.
const minSecretKey = 32

// SecretKey is the key from which a service derives the others: the configured one, or
// one that is made once and kept as secret.key in the service's folder of data, readable
// by its owner only. Faults name the settings "secret-key" and "data".
func SecretKey(configured, data string) ([]byte, error) {
	if configured != "" {
		if len(configured) < minSecretKey {
			return nil, fault.InvalidField("secret-key", "must have at least %d characters", minSecretKey)
		}
		return []byte(configured), nil
	}
	fresh := make([]byte, 32)
	if _, err := rand.Read(fresh); err != nil {
		return nil, fmt.Errorf("make secret key: %w", err)
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", data)
	}
	path := filepath.Join(data, "secret.key")
	if err := durable.Create(path, []byte(hex.EncodeToString(fresh)+"\n"), 0o600); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot write %s", path)
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator's folder
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot read %s", path)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != len(fresh) {
		return nil, fault.New(fault.Invalid, "data: %s does not hold 32 bytes in hex; restore it from a backup", path)
	}
	return key, nil
}
