package browse

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/nbd"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const (
	// helperMemory is the memory of a helper VM, in MiB.
	helperMemory = 256
	// bootLimit is how long a helper VM may take until its agent answers.
	bootLimit = 2 * time.Minute
	// removeLimit bounds the removal of a helper VM.
	removeLimit = 20 * time.Second
	// journal is how many bytes of what a helper VM writes are kept. A journal is replayed to places
	// that are not larger than itself, and those of common file systems have 64 MiB and less.
	journal = 96 << 20
)

var (
	errClosed = fault.New(fault.Conflict, "the backup was closed; open it again")
	errFull   = fault.New(fault.TooMany, "too many backups are open; close one, or try again in some minutes").
			WithRetryAfter(time.Minute)
)

// session is a backup that is open: a helper VM that reads it.
type session struct {
	backup string
	tenant string
	begun  time.Time
	end    context.CancelCauseFunc
	over   <-chan struct{} // closed when end was called, or the service ends

	ready chan struct{} // closed when it is open, or failed
	gone  chan struct{} // closed when nothing is left of it

	// These are set before ready is closed.
	failed  error
	driver  *driver.Driver
	at      driver.Place
	disk    *backup.Disk
	volumes []Volume

	// The Manager's lock guards these.
	users int
	used  time.Time
}

// use returns the session of a backup that the caller sees, and a function that ends its use.
func (m *Manager) use(ctx context.Context, id string, again bool) (*session, func(), error) {
	b, err := m.cfg.Store.Backup(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if !b.Restorable() {
		return nil, nil, fault.New(fault.Conflict, "the backup is %s; only one that is completed can be opened", b.Status)
	}
	s, err := m.session(ctx, &b)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		m.leave(s)
		return nil, nil, context.Cause(ctx)
	}
	if s.failed == nil {
		return s, func() { m.leave(s) }, nil
	}
	m.leave(s)
	if again && errors.Is(s.failed, errClosed) {
		<-s.gone // it was closed at the same moment
		return m.use(ctx, id, false)
	}
	return nil, nil, s.failed
}

func (m *Manager) leave(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.users--
	s.used = m.cfg.Now()
}

// session returns the session of a backup, counted as used. It opens one if there is none.
func (m *Manager) session(ctx context.Context, b *record.Backup) (*session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	s := m.sessions[b.ID]
	if s == nil || s.closed() { // a closed one may still be removing its VM
		if m.cfg.Ending.Err() != nil {
			return nil, fault.New(fault.Unavailable, "the service is ending")
		}
		if err := m.makeRoom(b.Tenant); err != nil {
			return nil, err
		}
		// The session outlives the request, and is closed with the service.
		background, end := context.WithCancelCause(caller.Acting(m.cfg.Ending, caller.From(ctx).Person()))
		s = &session{
			backup: b.ID, tenant: b.Tenant, begun: now, end: end, over: background.Done(), driver: m.cfg.Driver,
			ready: make(chan struct{}), gone: make(chan struct{}),
		}
		m.sessions[b.ID] = s
		routine.Go(m.cfg.Log, "backup session", func() { m.run(background, s, *b) })
	}
	s.users++
	s.used = now
	return s, nil
}

// makeRoom returns an error unless another session may be opened. It ends the one that was used least
// recently if that is enough. The lock must be held.
func (m *Manager) makeRoom(tenant string) error {
	var all, own int
	var oldest, oldestOwn *session
	for _, s := range m.sessions {
		if s.closed() {
			continue
		}
		all++
		idle := s.users == 0
		if idle && (oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
		if s.tenant != tenant {
			continue
		}
		own++
		if idle && (oldestOwn == nil || s.used.Before(oldestOwn.used)) {
			oldestOwn = s
		}
	}
	spare := oldest
	switch {
	case own >= maxOfTenant:
		spare = oldestOwn
	case all < maxSessions:
		return nil
	}
	if spare == nil {
		return errFull
	}
	delete(m.sessions, spare.backup) // its end is not waited for
	spare.end(errClosed)
	return nil
}

// run opens a session, and keeps it until ctx ends or its VM does.
func (m *Manager) run(ctx context.Context, s *session, b record.Backup) {
	defer close(s.gone)
	defer s.end(errClosed)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.sessions[s.backup] == s {
			delete(m.sessions, s.backup)
		}
	}()
	opened := false
	defer func() {
		if !opened { // also if it panics
			if s.failed == nil {
				s.failed = fault.New(fault.Internal, "the backup could not be opened")
			}
			close(s.ready)
		}
	}()
	if s.failed = m.cfg.Store.NoteBackup(ctx, "backup.browse", &b, ""); s.failed != nil {
		return
	}
	disk, err := m.cfg.Backups.OpenDisk(ctx, &b)
	if err != nil {
		s.failed = err
		return
	}
	defer func() { _ = disk.Close() }() // it was only read
	ended, err := m.launch(ctx, s, disk)
	if s.at.ID != "" {
		defer m.remove(ctx, s)
	}
	if err != nil {
		if s.failed = err; ctx.Err() != nil {
			s.failed = errClosed
		}
		return
	}
	opened = true
	close(s.ready)
	select {
	case <-ctx.Done():
	case err := <-ended:
		m.cfg.Log.Warn("a VM that reads a backup has ended", "backup", s.backup, "error", err)
	}
}

// launch starts the helper VM of a session, and asks it for the volumes. ended is closed when it does
// not read the disk any more.
func (m *Manager) launch(ctx context.Context, s *session, disk *backup.Disk) (ended <-chan error, err error) {
	s.at, err = m.cfg.Driver.MakeReader(ctx, driver.Reader{
		Tenant: s.tenant, For: s.backup, Kernel: m.cfg.Image, CPUs: 1, Memory: helperMemory, Life: vmLife,
	})
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			err = fault.Wrap(fault.Unavailable, err, "%s; add it with: mainstay image build-demo", fault.From(err).Message)
		}
		return nil, err
	}
	conn, err := m.cfg.Driver.ServeDisk(ctx, s.at)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // which ends Serve
	ended = routine.Start(m.cfg.Log, "backup disk", func() error {
		defer func() { _ = conn.Close() }() // the guest's reads fail from now on
		return nbd.Serve(ctx, conn, nbd.NewOverlay(disk, journal))
	})
	if _, err := m.cfg.Driver.Start(ctx, s.at, driver.StartOptions{}); err != nil {
		return ended, err
	}
	if err := m.cfg.Driver.AwaitAgent(ctx, s.at, bootLimit); err != nil {
		return ended, err
	}
	s.disk = disk
	s.volumes, err = s.find(ctx)
	return ended, err
}

// remove removes the helper VM of a session.
func (m *Manager) remove(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	if err := m.cfg.Driver.RemoveReader(ctx, s.at); err != nil {
		m.cfg.Log.Warn("a VM that read a backup was not removed; that is tried again", "vm", s.at.ID, "node", s.at.Node,
			"error", err)
	}
}
