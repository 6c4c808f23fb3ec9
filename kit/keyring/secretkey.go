package keyring

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// minSecretKey is the minimum length of a configured secret key, in bytes.
	minSecretKey = 32
	secretKey    = "secret-key" // the name of its fingerprint and of its setting
	acceptedKey  = "accepted-secret-key"

	currentFile  = "secret.key"
	previousFile = "secret.key.previous"
	newFile      = "secret.key.new"
)

// Config defines the sources of a service's secret keys.
type Config struct {
	Configured string // the setting secret-key; empty: the file secret.key in Data
	Accepted   string // the setting accepted-secret-key; empty: none
	Data       string // the service's data directory
	Log        *slog.Logger
	// Replace accepts another key than the one that the database knows. The old one is lost, and
	// with it everything that was sealed with it.
	Replace bool
	// Fits is called if the database knows no key, because it is new or was created by a version
	// without fingerprints. It reports whether anything in the database was made with a key, and
	// whether that key may be this one. key is nil if there is no key.
	Fits func(ctx context.Context, key []byte) (used, fits bool, err error)
}

// Keys are the secret keys of a service.
type Keys struct {
	Current  []byte   // the service derives from it what it seals and signs with
	Accepted [][]byte // what they sealed and signed still counts
	Replaced bool     // Current replaces a lost key

	cfg     Config
	known   string // the fingerprint in the database
	rotates bool   // Current is to replace the accepted key that has this fingerprint
	made    bool   // Current is the key of secret.key.new, and secret.key may be missing
}

// secret is a key and where it comes from.
type secret struct {
	key         []byte
	fingerprint string
	from        string // a path, or empty for a setting
}

// SecretKeys returns the secret keys. The current one is the configured one, or one that is
// generated once, for an empty database, and stored as secret.key in the data directory, readable
// only by its owner. A current key that does not match the database, or is missing, is a fault that
// says how to continue, unless an accepted key matches. Faults name the settings "secret-key",
// "accepted-secret-key" and "data".
//
// The service must call Settle when it can open and seal with the keys.
func SecretKeys(ctx context.Context, d *db.DB, cfg Config) (*Keys, error) {
	known, err := Known(ctx, d, secretKey)
	if err != nil {
		return nil, err
	}
	if err := durable.CleanUp(filepath.Join(cfg.Data, currentFile)); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot clean up %s", cfg.Data)
	}
	current, accepted, err := readKeys(cfg, known)
	if err != nil {
		return nil, err
	}
	k := &Keys{cfg: cfg, known: known}
	if current != nil && current.fingerprint == known {
		return k.with(current, accepted), k.remind(ctx, d, accepted)
	}
	for _, match := range accepted {
		if known != "" && match.fingerprint == known {
			return k.rotate(ctx, d, current, match, accepted)
		}
	}
	if current, err = k.bind(ctx, d, current, accepted); err != nil {
		return nil, err
	}
	return k.with(current, accepted), nil
}

func (k *Keys) with(current *secret, accepted []*secret) *Keys {
	k.Current, k.made = current.key, filepath.Base(current.from) == newFile
	for _, a := range accepted {
		if !bytes.Equal(a.key, current.key) {
			k.Accepted = append(k.Accepted, a.key)
		}
	}
	return k
}

// remind logs that a key is accepted although it was replaced, since whoever stole it can still use
// it.
func (k *Keys) remind(ctx context.Context, d *db.DB, accepted []*secret) error {
	for _, a := range accepted {
		old, err := isRetired(ctx, d, a.fingerprint)
		if err != nil {
			return err
		}
		if old {
			k.cfg.Log.Info("a secret key that was replaced is still accepted",
				"help", "when all replicas have the new key, take the old one out of the settings, or remove "+previousFile)
		}
	}
	return nil
}

// bind stores the fingerprint of the current key, which is not the one of the database: the
// database knows no key, or its key is lost. It creates the key if there is none.
func (k *Keys) bind(ctx context.Context, d *db.DB, current *secret, accepted []*secret) (*secret, error) {
	used, fits := k.known != "", true
	var err error
	if !used {
		var key []byte
		if current != nil {
			key = current.key
		}
		if used, fits, err = k.cfg.Fits(ctx, key); err != nil {
			return nil, err
		}
		if used && current != nil && !fits && !k.cfg.Replace {
			return nil, wrongKey(k.cfg)
		}
	}
	if current == nil {
		if used && !k.cfg.Replace {
			if slices.ContainsFunc(accepted, func(a *secret) bool { return filepath.Base(a.from) == previousFile }) {
				return nil, wrongPrevious(k.cfg)
			}
			return nil, missingKey(k.cfg)
		}
		if current, err = makeKey(k.cfg); err != nil {
			return nil, err
		}
	}
	kept, err := Keep(ctx, d, secretKey, current.fingerprint, k.cfg.Replace)
	if err != nil {
		return nil, err
	}
	if kept != current.fingerprint {
		return nil, wrongKey(k.cfg)
	}
	k.Replaced = !fits || k.known != "" && k.known != current.fingerprint
	k.known = current.fingerprint
	return current, nil
}

// rotate chooses the current key if match, an accepted one, is the database's.
func (k *Keys) rotate(ctx context.Context, d *db.DB, current, match *secret, accepted []*secret) (*Keys, error) {
	if current == nil {
		if filepath.Base(match.from) != previousFile {
			return nil, missingKey(k.cfg)
		}
		var err error
		if current, err = nextKey(ctx, d, k.cfg, k.known); err != nil {
			return nil, err
		}
		k.rotates = true
		return k.with(current, accepted), nil
	}
	old, err := isRetired(ctx, d, current.fingerprint)
	if err != nil {
		return nil, err
	}
	if old {
		k.cfg.Log.Warn("the secret key was replaced by a rotation before; the accepted key, which replaced it, is used",
			"help", "make the accepted key the secret key")
		return k.with(match, append(accepted, current)), nil
	}
	if filepath.Base(match.from) == newFile {
		return nil, wrongKey(k.cfg) // nobody has asked for a rotation
	}
	k.rotates = true
	return k.with(current, accepted), nil
}

// Derive returns keys for a purpose, derived by HKDF from the current key and from the accepted
// ones.
func (k *Keys) Derive(purpose string) (current []byte, accepted [][]byte, err error) {
	if current, err = hkdf.Key(sha256.New, k.Current, nil, purpose, 32); err != nil {
		return nil, nil, fmt.Errorf("derive a key for %s: %w", purpose, err)
	}
	for _, key := range k.Accepted {
		derived, err := hkdf.Key(sha256.New, key, nil, purpose, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("derive a key for %s: %w", purpose, err)
		}
		accepted = append(accepted, derived)
	}
	return current, accepted, nil
}

// Renewer seals again what is not sealed with the current key, and returns how many values no key
// opens. rotated reports whether the transaction stores another key's fingerprint.
type Renewer func(tx *db.Tx, rotated bool) (unreadable int, err error)

// Settle completes a rotation if there is one, and calls renew in the same transaction. renew is
// called at every start: a replica may have used the old key until it stopped. What cannot be opened
// then is logged.
func (k *Keys) Settle(ctx context.Context, d *db.DB, renew Renewer) error {
	fingerprint, err := keyFingerprint(k.Current)
	if err != nil {
		return err
	}
	unreadable := 0
	err = d.Update(ctx, func(tx *db.Tx) error {
		known, err := lockKnown(ctx, tx)
		if err != nil {
			return err
		}
		switch {
		case known == fingerprint:
			unreadable, err = renew(tx, false)
			return err
		case !k.rotates:
			return nil // another replica has rotated; its key is the one to seal with
		case known != k.known:
			return wrongKey(k.cfg) // another replica has rotated to a third key
		}
		if _, err := tx.Exec(
			ctx, "UPDATE keyring SET fingerprint = ? WHERE name = ?", fingerprint, secretKey,
		); err != nil {
			return fmt.Errorf("store the fingerprint of the secret key: %w", err)
		}
		if _, err := tx.Exec(
			ctx, "INSERT INTO keyring_retired (name, fingerprint) VALUES (?, ?) ON CONFLICT DO NOTHING", secretKey, known,
		); err != nil {
			return fmt.Errorf("retire the secret key: %w", err)
		}
		tx.OnCommit(func() {
			k.cfg.Log.Info("the secret key was rotated; the previous one is needed only for older backups",
				"help", "take it out of the settings, or remove secret.key.previous")
		})
		unreadable, err = renew(tx, true)
		return err
	})
	if err != nil {
		return err
	}
	if unreadable > 0 {
		k.cfg.Log.Warn("some secrets in the database cannot be opened with the configured keys", "secrets", unreadable,
			"help", "if the secret key was replaced, start once more with the old one as accepted-secret-key; "+
				"if that key is lost, set these secrets anew")
	}
	if !k.made {
		return nil
	}
	return createFile(filepath.Join(k.cfg.Data, currentFile), k.Current) // unless it exists
}

// Renew calls renew if other keys are accepted and the current key is the database's. A service calls
// it from time to time: until every replica has the current key, some may still seal with an older
// one, and those values would be lost when that key is no longer accepted.
func (k *Keys) Renew(ctx context.Context, d *db.DB, renew Renewer) error {
	if len(k.Accepted) == 0 {
		return nil
	}
	fingerprint, err := keyFingerprint(k.Current)
	if err != nil {
		return err
	}
	return d.Update(ctx, func(tx *db.Tx) error {
		known, err := lockKnown(ctx, tx)
		if err != nil || known != fingerprint {
			return err
		}
		_, err = renew(tx, false)
		return err
	})
}

// lockKnown returns the fingerprint of the database's key, which stays until the transaction ends.
func lockKnown(ctx context.Context, tx *db.Tx) (known string, err error) {
	if err := tx.Get(
		ctx, &known, "SELECT fingerprint FROM keyring WHERE name = ?"+tx.ForUpdate(), secretKey,
	); err != nil {
		return "", fmt.Errorf("read the fingerprint of the secret key: %w", err)
	}
	return known, nil
}

func isRetired(ctx context.Context, q db.Querier, fingerprint string) (bool, error) {
	var n int
	err := q.Get(
		ctx, &n, "SELECT count(*) FROM keyring_retired WHERE name = ? AND fingerprint = ?", secretKey, fingerprint,
	)
	return n > 0, err
}

const keyIsLost = "If it is lost, start once with --replace-lost-keys: what was sealed with it is lost, too, and has to be set anew"

func wrongKey(cfg Config) error {
	from := "the setting"
	if cfg.Configured == "" {
		from = filepath.Join(cfg.Data, currentFile)
	}
	f := fault.New(
		fault.Conflict,
		"secret-key: the key from %s is not the one that this database was made with. Use that key. "+
			"To rotate to another key, give that one as accepted-secret-key or in the file %s, too. %s", from,
		filepath.Join(cfg.Data, previousFile), keyIsLost,
	).WithCode("wrong_secret_key")
	f.Field = secretKey
	return f
}

func missingKey(cfg Config) error {
	f := fault.New(
		fault.Conflict,
		"secret-key: %s is missing, and this database was made with a key. Restore it from a backup, "+
			"or rename it to %s to rotate to a new key. %s",
		filepath.Join(cfg.Data, currentFile), previousFile, keyIsLost,
	).WithCode("secret_key_missing")
	f.Field = secretKey
	return f
}

// wrongPrevious returns the fault for a folder without secret.key whose secret.key.previous does not
// match the database.
func wrongPrevious(cfg Config) error {
	f := fault.New(
		fault.Conflict,
		"secret-key: the key in %s is not the one that this database was made with, and there is no %s. "+
			"Put the database's key into one of them. %s", filepath.Join(cfg.Data, previousFile), currentFile, keyIsLost,
	).WithCode("wrong_secret_key")
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

func newSecret(key []byte, from string) (*secret, error) {
	fingerprint, err := keyFingerprint(key)
	return &secret{key, fingerprint, from}, err
}

// readKeys returns the current key, or nil if there is none yet, and the accepted ones.
func readKeys(cfg Config, known string) (current *secret, accepted []*secret, err error) {
	for _, s := range []struct{ field, value string }{{secretKey, cfg.Configured}, {acceptedKey, cfg.Accepted}} {
		if s.value != "" && len(s.value) < minSecretKey {
			return nil, nil, fault.InvalidField(s.field, "must have at least %d characters", minSecretKey)
		}
	}
	previous, err := readFile(cfg, previousFile)
	if err != nil {
		return nil, nil, err
	}
	if previous != nil {
		accepted = append(accepted, previous)
	}
	if cfg.Accepted != "" {
		a, err := newSecret([]byte(cfg.Accepted), "")
		if err != nil {
			return nil, nil, err
		}
		accepted = append(accepted, a)
	}
	if cfg.Configured != "" {
		current, err = newSecret([]byte(cfg.Configured), "")
		return current, accepted, err
	}
	if current, err = readFile(cfg, currentFile); err != nil {
		return nil, nil, err
	}
	made, err := readFile(cfg, newFile)
	if err != nil || made == nil {
		return current, accepted, err
	}
	if current == nil && made.fingerprint == known && (previous == nil || previous.fingerprint != known) {
		return made, accepted, nil // a rotation was interrupted after its commit
	}
	return current, append(accepted, made), nil
}

// maxFile is more than a file with a key has, in bytes.
const maxFile = 4096

// readFile reads a key from a file in the data directory. It returns nil if the file does not exist.
func readFile(cfg Config, name string) (*secret, error) {
	path := filepath.Join(cfg.Data, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var text []byte
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // reading from a pipe may take for ever
		err = errors.New("not a file")
	case info.Size() > maxFile:
		err = fmt.Errorf("larger than %d bytes", maxFile)
	default:
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot read %s", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		cfg.Log.Warn("other users may read or write the secret key", "file", path, "help", "chmod 600 "+path)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fault.New(fault.Invalid, "data: %s does not hold 32 bytes in hex; restore it from a backup", path)
	}
	return newSecret(key, path)
}

// makeKey creates secret.key, unless another process has done so first.
func makeKey(cfg Config) (*secret, error) {
	fresh, err := randomKey()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", cfg.Data)
	}
	if err := createFile(filepath.Join(cfg.Data, currentFile), fresh); err != nil {
		return nil, err
	}
	return readFile(cfg, currentFile)
}

// nextKey returns the key of secret.key.new, for a rotation from the database's key. It creates the
// file, or replaces a copy of the database's key or of one that is retired. Another key in it is
// taken as it is: it is from a rotation that did not get as far as its commit.
func nextKey(ctx context.Context, q db.Querier, cfg Config, known string) (*secret, error) {
	made, err := readFile(cfg, newFile)
	if err != nil {
		return nil, err
	}
	if made != nil && made.fingerprint != known {
		old, err := isRetired(ctx, q, made.fingerprint)
		if err != nil {
			return nil, err
		}
		if !old {
			return made, nil
		}
	}
	fresh, err := randomKey()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.Data, newFile)
	if err := durable.Replace(path, keyText(fresh), 0o600); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot write %s", path)
	}
	return newSecret(fresh, path)
}

func randomKey() ([]byte, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make secret key: %w", err)
	}
	return key, nil
}

func keyText(key []byte) []byte { return []byte(hex.EncodeToString(key) + "\n") }

// createFile writes a key, unless the file exists.
func createFile(path string, key []byte) error {
	if err := durable.Create(path, keyText(key), 0o600); err != nil {
		return fault.Wrap(fault.Invalid, err, "data: cannot write %s", path)
	}
	return nil
}
