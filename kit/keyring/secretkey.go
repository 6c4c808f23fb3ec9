package keyring

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// minSecretKey is the minimum length of a configured secret key, in bytes.
	minSecretKey = 32
	secretKey    = "secret-key" // the name of its fingerprint and of its setting
)

// Config defines the source of a service's secret key.
type Config struct {
	Configured string // the setting secret-key; empty: the file secret.key in Data
	Data       string // the service's data directory
	// Replace accepts another key than the one that the database knows. The old one is lost, and
	// with it everything that was sealed with it.
	Replace bool
	// Fits is called if the database knows no key, because it is new or was created by a version
	// without fingerprints. It reports whether anything in the database was made with a key, and
	// whether that key may be this one. key is nil if there is no key.
	Fits func(ctx context.Context, key []byte) (used, fits bool, err error)
}

// SecretKey returns the key from which a service derives all others: the configured one, or one
// that is generated once, for an empty database, and stored as secret.key in the data directory,
// readable only by its owner. replaced reports whether it replaced a lost key. A key that does not
// match the database, or is missing, is a fault that says how to continue. Faults name the settings
// "secret-key" and "data".
func SecretKey(ctx context.Context, d *db.DB, cfg Config) (key []byte, replaced bool, err error) {
	known, err := Known(ctx, d, secretKey)
	if err != nil {
		return nil, false, err
	}
	if key, err = readKey(cfg); err != nil {
		return nil, false, err
	}
	used, fits := known != "", true
	if !used {
		if used, fits, err = cfg.Fits(ctx, key); err != nil {
			return nil, false, err
		}
		if used && key != nil && !fits && !cfg.Replace {
			return nil, false, wrongKey(cfg)
		}
	}
	if key == nil {
		if used && !cfg.Replace {
			return nil, false, missingKey(cfg)
		}
		if key, err = makeKey(cfg.Data); err != nil {
			return nil, false, err
		}
	}
	fingerprint, err := keyFingerprint(key)
	if err != nil {
		return nil, false, err
	}
	kept, err := Keep(ctx, d, secretKey, fingerprint, cfg.Replace)
	if err != nil {
		return nil, false, err
	}
	if kept != fingerprint {
		return nil, false, wrongKey(cfg)
	}
	return key, !fits || known != "" && known != fingerprint, nil
}

const keyIsLost = "If it is lost, start once with --replace-lost-keys: what was sealed with it is lost, too, and has to be set anew"

func wrongKey(cfg Config) error {
	from := "the setting"
	if cfg.Configured == "" {
		from = filepath.Join(cfg.Data, "secret.key")
	}
	f := fault.New(
		fault.Conflict,
		"secret-key: the key from %s is not the one that this database was made with. Use that key. %s", from,
		keyIsLost,
	).WithCode("wrong_secret_key")
	f.Field = secretKey
	return f
}

func missingKey(cfg Config) error {
	f := fault.New(
		fault.Conflict,
		"secret-key: %s is missing, and this database was made with a key. Restore it from a backup. %s",
		filepath.Join(cfg.Data, "secret.key"), keyIsLost,
	).WithCode("secret_key_missing")
	f.Field = secretKey
	return f
}

// keyFingerprint reveals nothing about the key: it is derived like the other keys.
func keyFingerprint(key []byte) (string, error) {
	derived, err := hkdf.Key(sha256.New, key, nil, "mainstay keyring fingerprint", 32)
	if err != nil {
		return "", fmt.Errorf("fingerprint of the secret key: %w", err)
	}
	return Fingerprint(derived), nil
}

// readKey returns nil if there is no key yet.
func readKey(cfg Config) ([]byte, error) {
	if cfg.Configured != "" {
		if len(cfg.Configured) < minSecretKey {
			return nil, fault.InvalidField(secretKey, "must have at least %d characters", minSecretKey)
		}
		return []byte(cfg.Configured), nil
	}
	path := filepath.Join(cfg.Data, "secret.key")
	text, err := os.ReadFile(path) //nolint:gosec // the operator's folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot read %s", path)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fault.New(fault.Invalid, "data: %s does not hold 32 bytes in hex; restore it from a backup", path)
	}
	return key, nil
}

// makeKey creates the file, unless another process has done so first.
func makeKey(data string) ([]byte, error) {
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
	return readKey(Config{Data: data})
}
