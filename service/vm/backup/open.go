package backup

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/kit/repository/store/dir"
	"github.com/mainstay-infra/mainstay/kit/repository/store/s3"
)

// Location says where the repository is, and how it is opened.
type Location struct {
	// URL is a folder, or s3+https://HOST/BUCKET/PREFIX.
	URL string
	// AccessKey, SecretKey, Region and CAFile are for S3.
	AccessKey, SecretKey, Region, CAFile string
	// KeyFile holds the age identity that opens the repository. It is made with the repository.
	KeyFile string
	// Passphrase opens the repository, too, if it is not empty.
	Passphrase string
	// Data is a folder for copies of indexes and for temporary files.
	Data string
}

const s3Scheme = "s3+"

func (l *Location) check() error {
	if !strings.Contains(l.URL, "://") {
		return nil
	}
	_, err := l.bucket()
	return err
}

// bucket parses the URL of a bucket.
func (l *Location) bucket() (s3.Config, error) {
	rest, ok := strings.CutPrefix(l.URL, s3Scheme)
	u, err := url.Parse(rest)
	if !ok || err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" {
		return s3.Config{}, fault.InvalidField("backup-repository",
			"must be a folder, or a bucket such as s3+https://s3.example.com/bucket/prefix")
	}
	bucket, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if bucket == "" {
		return s3.Config{}, fault.InvalidField("backup-repository", "names no bucket")
	}
	if prefix != "" {
		prefix += "/"
	}
	return s3.Config{
		Endpoint: u.Scheme + "://" + u.Host, Region: l.Region, Bucket: bucket, Prefix: prefix,
		AccessKey: l.AccessKey, SecretKey: l.SecretKey, CAFile: l.CAFile, PathStyle: true,
	}, nil
}

func (l *Location) store(ctx context.Context, now time.Time) (store.Store, error) {
	if strings.Contains(l.URL, "://") {
		c, err := l.bucket()
		if err != nil {
			return nil, err
		}
		return s3.Open(ctx, c)
	}
	if err := os.MkdirAll(l.URL, 0o700); err != nil {
		return nil, err
	}
	return dir.Open(l.URL, now)
}

// errNone means that nobody has made a backup yet.
var errNone = fault.New(fault.NotFound, "there is no backup repository yet; the first backup makes it")

// open opens the repository once. With create, it makes a missing one.
func (m *Manager) open(ctx context.Context, create bool) (*repository.Repository, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.repo != nil {
		return m.repo, nil
	}
	if !create && !strings.Contains(m.where.URL, "://") {
		if _, err := os.Stat(m.where.URL); errors.Is(err, fs.ErrNotExist) {
			return nil, errNone
		}
	}
	s, err := m.where.store(ctx, m.now())
	if err != nil {
		return nil, unavailable(err)
	}
	options := repository.Options{Cache: filepath.Join(m.where.Data, "backup-cache"), Log: m.log, Now: m.now}
	if err := os.MkdirAll(options.Cache, 0o700); err != nil {
		return nil, err
	}
	repo, err := m.openExisting(ctx, s, options)
	if codeOf(err) == "repository_not_found" {
		if !create {
			return nil, errNone
		}
		if repo, err = m.create(ctx, s, options); codeOf(err) == "repository_exists" {
			repo, err = m.openExisting(ctx, s, options) // another replica was faster
		}
	}
	if err != nil {
		return nil, unavailable(err)
	}
	m.repo = repo
	return repo, nil
}

// codeOf returns the code of a fault, or "" if err is nil.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.From(err).PublicCode()
}

// unavailable returns the fault for a repository that cannot be opened. Why is for admins.
func unavailable(err error) error {
	if fault.Is(err, fault.StorageFailed) {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the backup repository cannot be opened: %s", fault.From(err).Message)
}

// openExisting opens the repository with the key file, else with the passphrase.
func (m *Manager) openExisting(
	ctx context.Context, s store.Store, o repository.Options,
) (repo *repository.Repository, err error) {
	identity, fileErr := os.ReadFile(m.where.KeyFile)
	if fileErr == nil {
		repo, err = repository.Open(ctx, s, repository.Key{Identity: strings.TrimSpace(string(identity))}, o)
		if m.where.Passphrase == "" || !fault.Is(err, fault.Denied) {
			return repo, err
		}
	}
	if m.where.Passphrase != "" {
		return repository.Open(ctx, s, repository.Key{Passphrase: m.where.Passphrase}, o)
	}
	if !errors.Is(fileErr, fs.ErrNotExist) {
		return nil, fileErr
	}
	// Without a key nothing can be opened, but whether there is something can be seen.
	_, err = repository.Open(ctx, s, repository.Key{Master: make([]byte, 32)}, o)
	if fault.Is(err, fault.Denied) {
		err = fault.Wrap(fault.Denied, err, "there is a repository, and the file with its key is missing: "+
			"put it to %s, or set backup-passphrase", m.where.KeyFile)
	}
	return nil, err
}

// create makes the repository. Its key is on disk before anything is encrypted with it.
func (m *Manager) create(ctx context.Context, s store.Store, o repository.Options) (*repository.Repository, error) {
	text, err := os.ReadFile(m.where.KeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		fresh, err := age.GenerateX25519Identity()
		if err != nil {
			return nil, err
		}
		if err := durable.Create(m.where.KeyFile, []byte(fresh.String()+"\n"), 0o600); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		text, err = os.ReadFile(m.where.KeyFile)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	identity, err := age.ParseX25519Identity(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fault.InvalidField("backup-key-file", "%s does not hold an age identity (AGE-SECRET-KEY-1...)",
			m.where.KeyFile)
	}
	locks := []repository.Lock{{Recipient: identity.Recipient().String()}}
	if m.where.Passphrase != "" {
		locks = append(locks, repository.Lock{Passphrase: m.where.Passphrase})
	}
	return repository.Create(ctx, s, repository.CreateOptions{Locks: locks}, o)
}
