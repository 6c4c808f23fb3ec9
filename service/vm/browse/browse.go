// Package browse shows the files in backups, and takes single files out of them, without restoring
// anything.
//
// A helper VM reads the file systems, never this service or a host: its kernel is the only one that
// sees what a guest has written. It runs an image of the hypervisor daemon's catalog (the setting
// helper-image), with no network and nothing of value, under the tenant whose backup it is. Its second
// disk is the backup, which this service serves block by block (package nbd), over a socket of the
// daemon. What the VM writes to it, to replay the journals of file systems, stays in memory.
//
//	browse.go     a Manager; volumes, folders and files of a backup
//	session.go    the helper VM for one backup
//	guest.go      what the program in the helper VM is asked, and what it answers
//
// # States of a session
//
//	opening ──► open ──► closed: by its caller, after five minutes without use, after half an hour,
//	   │                 when its VM ends, or when another one needs the place
//	   └──────► closed: it failed
//
// # Invariants
//
//   - A caller sees the backups of its tenant only, at each request, not just at the first.
//   - Helper VMs end by themselves (their time to live at the daemon) if this service does not end
//     them.
//   - There are at most four sessions, and two of a tenant. Each replica has its own.
//   - What the helper VM answers is not trusted: the file systems may have taken it over. Its answers
//     are bounded and checked, and paths in them are only sent back to it.
//
// It imports backup, driver, nbd and record.
package browse

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store   *record.Store
	Driver  *driver.Driver
	Backups *backup.Manager
	Image   string          // of helper VMs, in the daemon's catalog
	Ending  context.Context // done when the service ends
	Log     *slog.Logger
	Now     func() time.Time
}

// Limits of sessions.
const (
	maxSessions  = 4
	maxOfTenant  = 2
	idleLimit    = 5 * time.Minute
	sessionLimit = 30 * time.Minute
	// vmLife is when the daemon removes a helper VM that this service has not removed.
	vmLife = sessionLimit + 5*time.Minute
	// maxPath is the longest path that is asked for, in bytes.
	maxPath = 4096
)

// Manager has the sessions of this replica.
type Manager struct {
	cfg Config

	mu       sync.Mutex
	sessions map[string]*session // by the backup's id
}

// New returns a Manager.
func New(c Config) *Manager { return &Manager{cfg: c, sessions: map[string]*session{}} }

// Volumes opens a backup, which takes some seconds the first time, and returns its volumes.
func (m *Manager) Volumes(ctx context.Context, id string) ([]Volume, error) {
	s, done, err := m.use(ctx, id, true)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.volumes, nil
}

// Files returns the entries of a folder in a backup whose names come after a name, in order. It opens
// the backup if it is not open.
func (m *Manager) Files(ctx context.Context, id, volume, path, after string) (Page, error) {
	if err := checkPath("path", path); err != nil {
		return Page{}, err
	}
	if err := checkPath("after", after); err != nil {
		return Page{}, err
	}
	s, done, err := m.use(ctx, id, true)
	if err != nil {
		return Page{}, err
	}
	defer done()
	if err := s.has(volume); err != nil {
		return Page{}, err
	}
	return s.files(ctx, volume, path, after)
}

// File is a file in a backup. It must be closed.
type File struct {
	io.ReadCloser
	Size int64
}

// Open opens a file in a backup. It opens the backup if it is not open. The audit log names the file.
func (m *Manager) Open(ctx context.Context, id, volume, path string) (*File, error) {
	if err := checkPath("path", path); err != nil {
		return nil, err
	}
	b, err := m.cfg.Store.Backup(ctx, id)
	if err != nil {
		return nil, err
	}
	s, done, err := m.use(ctx, id, true)
	if err != nil {
		return nil, err
	}
	f, err := m.open(ctx, s, &b, volume, path)
	if err != nil {
		done()
		return nil, err
	}
	f.ReadCloser = closing{f.ReadCloser, done}
	return f, nil
}

func (m *Manager) open(ctx context.Context, s *session, b *record.Backup, volume, path string) (*File, error) {
	if err := s.has(volume); err != nil {
		return nil, err
	}
	at, err := s.resolve(ctx, volume, path)
	if err != nil {
		return nil, err
	}
	detail, err := json.Marshal(map[string]string{"volume": volume, "path": path})
	if err != nil {
		return nil, err
	}
	if err := m.cfg.Store.NoteBackup(ctx, "backup.get_file", b, string(detail)); err != nil {
		return nil, err
	}
	content, err := m.cfg.Driver.ReadFile(ctx, s.at, at.Path)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		s.end(errClosed)
		return nil, errBroken(err)
	}
	return &File{content, at.Size}, nil
}

// closing is a reader that also ends the use of a session.
type closing struct {
	io.ReadCloser
	done func()
}

func (c closing) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}

// Close closes a backup that was opened, if it is open.
func (m *Manager) Close(ctx context.Context, id string) error {
	if _, err := m.cfg.Store.Backup(ctx, id); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.sessions[id]
	m.mu.Unlock()
	if s != nil {
		s.end(errClosed)
		<-s.gone
	}
	return nil
}

// Drop closes a backup that was deleted, if it is open in this replica. It does not wait for that.
func (m *Manager) Drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[id]; s != nil {
		s.end(errClosed)
	}
}

func checkPath(field, path string) error {
	switch {
	case len(path) > maxPath:
		return fault.InvalidField(field, "must have at most %d bytes", maxPath)
	case !utf8.ValidString(path), strings.ContainsRune(path, 0):
		return fault.InvalidField(field, "must be UTF-8 without NUL")
	}
	return nil
}

// Tidy closes sessions that nobody uses, or that are too old.
func (m *Manager) Tidy(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	for _, s := range m.sessions {
		if s.users == 0 && now.Sub(s.used) > idleLimit || now.Sub(s.begun) > sessionLimit {
			s.end(errClosed)
		}
	}
	return nil
}

// Shut closes all sessions, and waits until their VMs are removed.
func (m *Manager) Shut() {
	m.mu.Lock()
	all := make([]*session, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	m.mu.Unlock()
	for _, s := range all {
		s.end(errClosed)
		<-s.gone
	}
}
