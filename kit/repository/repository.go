package repository

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
)

// Bounds of the size of blocks, in bytes.
const (
	MinBlockSize     = 64 << 10
	MaxBlockSize     = 1 << 20
	DefaultBlockSize = 256 << 10
)

// formatVersion is the version of what doc.go describes.
const formatVersion = 1

// configName is the object that says what the repository is. It is written last, so that what a
// killed Create leaves is no repository.
const configName = "config"

const maxConfig = 4 << 10

// config is the object of that name: JSON, a line feed, and the keyed hash of the JSON.
type config struct {
	Format    int    `json:"format"`
	ID        string `json:"id"`
	BlockSize int    `json:"block_size"` // in bytes
	Cipher    string `json:"cipher"`
	Created   int64  `json:"created"` // in Unix seconds
}

// Options are what a repository needs of its surroundings.
type Options struct {
	// Cache is a folder for copies of index objects. They are authenticated whenever they are read,
	// and may be removed at any time. Empty means no copies.
	Cache string
	// Scratch is a folder for temporary files, of about 48 bytes for each block of a tenant. Empty
	// means that of the system.
	Scratch string
	Log     *slog.Logger     // nil: slog.Default
	Now     func() time.Time // nil: time.Now
	// Host says in leases who writes.
	Host string
	// Lease are the times of leases. The zero value means the defaults.
	Lease LeaseTimes
}

// Repository is an open repository. It is safe for concurrent use.
type Repository struct {
	store    store.Store
	config   config
	master   []byte
	placeKey []byte
	own      *sealer // seals what belongs to no tenant
	options  Options
}

// CreateOptions define a new repository.
type CreateOptions struct {
	BlockSize int    // a power of two from MinBlockSize to MaxBlockSize; 0: DefaultBlockSize
	Cipher    string // XChaCha20Poly1305 or Plain; empty: the former
	// Locks wrap the master key. None means that the caller keeps Repository.MasterKey.
	Locks []Lock
}

// Create makes a repository in an empty store. If there is one already, that is a fault of kind
// Conflict.
func Create(ctx context.Context, s store.Store, c CreateOptions, o Options) (*Repository, error) {
	if c.BlockSize == 0 {
		c.BlockSize = DefaultBlockSize
	}
	if c.Cipher == "" {
		c.Cipher = XChaCha20Poly1305
	}
	cfg := config{formatVersion, rand.Text(), c.BlockSize, c.Cipher, now(o).Unix()}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	exists := fault.New(fault.Conflict, "there is a repository already").WithCode("repository_exists")
	if _, err := s.Stat(ctx, configName); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = exists
		}
		return nil, err
	}
	if err := beheaded(ctx, s); err != nil {
		return nil, err
	}
	if err := store.Probe(ctx, s, "probe/"+newID().String()); err != nil {
		return nil, err
	}
	master := make([]byte, masterSize)
	rand.Read(master)
	r := newRepository(s, cfg, master, o)
	for _, lock := range c.Locks {
		if _, err := r.AddKey(ctx, lock); err != nil {
			return nil, err
		}
	}
	err := r.putConfig(ctx)
	if errors.Is(err, fs.ErrExist) {
		return nil, exists
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Repository) putConfig(ctx context.Context) error {
	text, err := json.Marshal(r.config)
	if err != nil {
		return err
	}
	return r.store.Put(ctx, configName, append(append(text, '\n'), r.configMAC(text)...))
}

// beheaded returns a fault with the code backup_damaged if a store without a config has backups all the same. A
// repository that was made beside them would make them unreadable.
func beheaded(ctx context.Context, s store.Store) error {
	for _, prefix := range []string{"backups/", "packs/"} {
		for _, err := range s.List(ctx, prefix) {
			if err == nil {
				err = damaged("there are backups, but the object config that tells how to read them is missing; put it back")
			}
			return err
		}
	}
	return nil
}

// Open opens a repository. A wrong key is a fault of kind Denied, and a store without a repository one of kind NotFound
// with the code repository_not_found, unless it has lost the config of one.
func Open(ctx context.Context, s store.Store, key Key, o Options) (*Repository, error) {
	content, err := s.Get(ctx, configName, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		if err := beheaded(ctx, s); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.NotFound, "there is no repository; create it first").WithCode("repository_not_found")
	}
	if err != nil {
		return nil, err
	}
	cfg, text, mac, err := parseConfig(content)
	if err != nil {
		return nil, err
	}
	var opened *Repository
	// An attempt to create the repository that was broken off may have left a key of its own.
	tried, fitting := 0, 0
	for master, err := range unlock(ctx, s, key) {
		if err != nil {
			return nil, err
		}
		if tried++; master == nil {
			continue
		}
		fitting++
		if r := newRepository(s, cfg, master, o); hmac.Equal(mac, r.configMAC(text)) {
			opened = r
			break
		}
	}
	switch {
	case opened != nil:
		return opened, nil
	case fitting > 0:
		return nil, fault.New(fault.Denied, "the key does not fit the repository, or its object config was changed").
			WithCode("repository_key")
	}
	return nil, fault.New(fault.Denied, "none of the repository's %d keys opens with what was given", tried).
		WithCode("repository_key")
}

// Check reads from the store what a key opens the repository with, as Open does: what this process knows may be missing
// there by now.
func (r *Repository) Check(ctx context.Context, key Key) error {
	found, err := Open(ctx, r.store, key, r.options)
	switch {
	case err == nil && hmac.Equal(found.master, r.master):
		return nil
	case err == nil:
		return damaged("another repository is in its place")
	case fault.From(err).PublicCode() == "repository_not_found":
		return damaged("the repository is not there any more")
	}
	return err
}

// Mend writes again what Check misses, and reports whether it had to. It does not replace another repository.
func (r *Repository) Mend(ctx context.Context, key Key, lock Lock) (mended bool, err error) {
	problem := r.Check(ctx, key)
	if problem == nil {
		return false, nil
	}
	if err := r.mendConfig(ctx, problem); err != nil {
		return false, err
	}
	if r.Check(ctx, key) == nil {
		return true, nil
	}
	if _, err := r.AddKey(ctx, lock); err != nil {
		return false, err
	}
	return true, r.Check(ctx, key)
}

// mendConfig writes a config again that is missing or damaged. That of another repository is the problem that it
// returns.
func (r *Repository) mendConfig(ctx context.Context, problem error) error {
	content, err := r.store.Get(ctx, configName, maxConfig)
	if err == nil {
		cfg, text, mac, unread := parseConfig(content)
		switch {
		case unread == nil && cfg.ID != r.config.ID:
			return problem
		case unread == nil && hmac.Equal(mac, r.configMAC(text)):
			return nil
		}
	}
	if err != nil && !isDamaged(err) && !notExist(err) {
		return err
	}
	if !notExist(err) {
		if err := r.store.Delete(ctx, configName); err != nil {
			return err
		}
	}
	if err = r.putConfig(ctx); exists(err) { // another process has done so
		err = nil
	}
	return err
}

func newRepository(s store.Store, cfg config, master []byte, o Options) *Repository {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	o.Lease = o.Lease.orDefaults()
	return &Repository{
		store: s, config: cfg, master: master, options: o,
		placeKey: derive(master, "places of tenants"),
		own:      newSealer(cfg.Cipher, derive(master, "seal")),
	}
}

func parseConfig(content []byte) (cfg config, text, mac []byte, err error) {
	text, mac, found := bytes.Cut(content, []byte("\n"))
	if !found || json.Unmarshal(text, &cfg) != nil {
		return cfg, nil, nil, damaged("the object config of the repository is damaged")
	}
	if _, err = hex.AppendDecode(nil, mac); err != nil {
		return cfg, nil, nil, damaged("the object config of the repository is damaged")
	}
	return cfg, text, mac, cfg.check()
}

func (c *config) check() error {
	switch {
	case c.Format != formatVersion:
		return fault.New(fault.Invalid, "the repository has format %d, and this program knows only %d", c.Format, formatVersion)
	case c.BlockSize < MinBlockSize || c.BlockSize > MaxBlockSize || c.BlockSize&(c.BlockSize-1) != 0:
		return fault.InvalidField("block_size", "must be a power of two from %d to %d", MinBlockSize, MaxBlockSize)
	case c.Cipher != XChaCha20Poly1305 && c.Cipher != Plain:
		return fault.InvalidField("cipher", "must be %s or %s", XChaCha20Poly1305, Plain)
	}
	return nil
}

// configMAC returns the keyed hash of the config, in hex.
func (r *Repository) configMAC(text []byte) []byte {
	h := hmac.New(sha256.New, derive(r.master, "config"))
	h.Write(text)
	return hex.AppendEncode(nil, h.Sum(nil))
}

// MasterKey returns the key that opens the repository, for a key file. Who has it can read and forge
// everything.
func (r *Repository) MasterKey() []byte { return bytes.Clone(r.master) }

// Place returns under which name a tenant's objects are in the repository, as in PruneReport.Needs.
func (r *Repository) Place(tenant string) string { return r.place(tenant) }

// ID returns the repository's id.
func (r *Repository) ID() string { return r.config.ID }

// BlockSize returns the size of blocks, in bytes.
func (r *Repository) BlockSize() int { return r.config.BlockSize }

func now(o Options) time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

func (r *Repository) now() time.Time { return now(r.options) }
