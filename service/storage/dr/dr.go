// Package dr mirrors volumes to a cluster at another site, and moves their work there.
//
//	dr.go         Manager: requests and their guards
//	jobs.go       jobs of mirrors
//	pass.go       what clusters tell about their mirrors, and changes that are sent
//	judge.go      what follows from what both sites tell, as plain functions
//	preflight.go  whether a failover would work, and the steps for the case at hand
//
// A mirror is one volume at one site. If the gateway knows both sites, there are two of them, the twins.
//
// # Invariants
//
//   - Without force, a volume is promoted only if its peer was demoted and this site has that.
//   - Nothing is copied again unless somebody asks for it: that throws away what this site has.
//   - A failover that is interrupted goes on from what the sites are then. If it fails after the demotion, the site
//     that was primary is promoted again.
//   - The head of a copy is never read: it may be in the middle of a change. What is read is a snapshot.
//   - The content of tokens stays in this package and the driver.
//
// It imports backend, caller, driver, job and record.
package dr

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// lookWithin bounds a question to one site, endWithin what is stored after a job.
const (
	lookWithin = 15 * time.Second
	endWithin  = time.Minute
)

// Token lets clusters copy volumes of another one.
type Token struct {
	FSID string // of the other cluster
	Text string
	// Dial connects to the other cluster, to see whether it answers.
	Dial func(ctx context.Context) error
}

// Config holds the dependencies of a Manager.
type Config struct {
	Store    *record.Store
	Jobs     *job.Runner
	Backends *backend.Set
	Tokens   map[string]Token // by the names of their entries in the settings
	Log      *slog.Logger
	Now      func() time.Time
}

// Manager mirrors volumes.
type Manager struct{ cfg Config }

// New returns a Manager and registers its jobs.
func New(c Config) *Manager {
	m := &Manager{cfg: c}
	m.register()
	return m
}

// AddPeer registers the cluster that the token of p.SecretRef is of. If the caller has named that cluster, p.RemoteID
// is its id. p.ClusterID may be empty if there is only one Ceph cluster.
func (m *Manager) AddPeer(ctx context.Context, p record.Peer) (record.Peer, error) {
	t, ok := m.cfg.Tokens[p.SecretRef]
	if !ok {
		return p, fault.InvalidField("secret_ref", "the setting mirror-peers has no entry %s", p.SecretRef)
	}
	site, b, err := m.cfg.Store.SiteOf(ctx, p.ClusterID)
	if err != nil {
		return p, err
	}
	if site.NativeID == t.FSID {
		return p, fault.InvalidField("secret_ref", "the token is of the cluster itself, not of another one")
	}
	if b.Mode == record.ReadOnly {
		return p, b.Writable()
	}
	p.ClusterID, p.FSID = site.ID, t.FSID
	if p, err = m.cfg.Store.CreatePeer(ctx, p); err != nil {
		return p, err
	}
	return m.dial(ctx, p)
}

// dial stores whether a peer answers, and returns it.
func (m *Manager) dial(ctx context.Context, p record.Peer) (record.Peer, error) {
	var failed error
	if t, ok := m.cfg.Tokens[p.SecretRef]; !ok {
		failed = fault.New(fault.Unavailable, "the setting mirror-peers has no entry %s any more", p.SecretRef)
	} else {
		bounded, cancel := context.WithTimeout(ctx, lookWithin)
		failed = t.Dial(bounded)
		cancel()
	}
	if ctx.Err() != nil {
		return p, context.Cause(ctx)
	}
	if err := m.cfg.Store.SeePeer(ctx, p.ID, failed); err != nil {
		return p, err
	}
	return m.cfg.Store.Peer(ctx, p.ID)
}

// Enable begins to mirror a volume to a peer.
func (m *Manager) Enable(
	ctx context.Context, volume, peer string, mode driver.MirrorMode,
) (record.Mirror, record.Job, error) {
	return m.cfg.Store.EnableMirror(ctx, volume, peer, mode, m.cfg.Jobs.Begin)
}

// Disable begins to end the mirroring of a volume. Its copy goes.
func (m *Manager) Disable(ctx context.Context, volume string) (record.Mirror, record.Job, error) {
	mirror, err := m.cfg.Store.MirrorOf(ctx, volume)
	if err != nil {
		return mirror, record.Job{}, err
	}
	return m.guarded(ctx, record.JobDisableMirror, record.MirrorArgs{ID: mirror.ID}, DisableBlocker)
}

// guarded begins a job unless something stands in its way, which both sites are asked for before.
func (m *Manager) guarded(
	ctx context.Context, kind string, a record.MirrorArgs, blocker func(*View) string,
) (record.Mirror, record.Job, error) {
	mirror, err := m.cfg.Store.Mirror(ctx, a.ID)
	if err != nil {
		return mirror, record.Job{}, err
	}
	v, err := m.Look(ctx, &mirror)
	if err != nil {
		return mirror, record.Job{}, err
	}
	if why := blocker(v); why != "" {
		return mirror, record.Job{}, fault.New(fault.Conflict, "%s", why)
	}
	return m.cfg.Store.ChangeMirror(ctx, kind, a, m.cfg.Jobs.Begin)
}

// Promote begins to make a volume the one that is written to.
func (m *Manager) Promote(ctx context.Context, a record.MirrorArgs) (record.Mirror, record.Job, error) {
	return m.guarded(ctx, record.JobPromote, a, func(v *View) string { return PromoteBlocker(v, a.Force, a.Replayed) })
}

// Demote begins to make a volume a copy.
func (m *Manager) Demote(ctx context.Context, id string) (record.Mirror, record.Job, error) {
	return m.guarded(ctx, record.JobDemote, record.MirrorArgs{ID: id}, DemoteBlocker)
}

// Resync begins to copy a volume again from its peer.
func (m *Manager) Resync(ctx context.Context, id string) (record.Mirror, record.Job, error) {
	return m.guarded(ctx, record.JobResync, record.MirrorArgs{ID: id}, ResyncBlocker)
}

// FailOver begins to demote a volume where it is primary, and to promote it at the site of the mirror.
func (m *Manager) FailOver(ctx context.Context, a record.MirrorArgs) (record.Mirror, record.Job, error) {
	return m.guarded(ctx, record.JobFailover, a, func(v *View) string { return FailoverBlocker(v, a.Force, a.Replayed) })
}

// Rehearse begins to read the copy of a volume.
func (m *Manager) Rehearse(ctx context.Context, id string) (record.Mirror, record.Job, error) {
	mirror, err := m.cfg.Store.Mirror(ctx, id)
	if err != nil {
		return mirror, record.Job{}, err
	}
	if mirror.Role == record.Primary {
		twin, err := m.cfg.Store.Twin(ctx, &mirror)
		if err != nil {
			return mirror, record.Job{}, err
		}
		if twin.ID == "" {
			return mirror, record.Job{}, errNoTwin
		}
	}
	return m.cfg.Store.ChangeMirror(ctx, record.JobRehearse, record.MirrorArgs{ID: id}, m.cfg.Jobs.Begin)
}

var errNoTwin = fault.New(fault.Conflict, "the gateway does not know the copy: its cluster is not a backend, or has not "+
	"told of it yet")

// site is a mirror with the part of the driver that reaches it.
type site struct {
	mirror record.Mirror
	driver driver.Mirrors
	all    driver.Driver
	name   driver.Name
}

// reach returns what reaches a mirror.
func (m *Manager) reach(ctx context.Context, mirror *record.Mirror) (s site, err error) {
	ctx = caller.ByItself(ctx)
	v, err := m.cfg.Store.Volume(ctx, mirror.VolumeID)
	if err != nil {
		return s, err
	}
	place, err := m.cfg.Store.PlaceOf(ctx, &v)
	if err != nil {
		return s, err
	}
	opened, err := m.cfg.Backends.Driver(ctx, place.Backend)
	if err != nil {
		return s, err
	}
	d, ok := opened.(driver.Mirrors)
	if !ok {
		return s, unsupported(&place.Backend)
	}
	return site{*mirror, d, opened, v.In(place.Pool.Name)}, nil
}

func unsupported(b *record.Backend) error {
	return fault.New(fault.Invalid, "the backend %s does not mirror volumes", b.Name).WithCode("unsupported")
}

// look asks the site of a mirror.
func (s *site) look(ctx context.Context) (driver.Mirror, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookWithin, errSilent)
	defer cancel()
	return s.driver.Mirror(ctx, s.name)
}

var errSilent = fault.New(fault.Unavailable, "the cluster has not answered within %s", lookWithin)

// Look asks both sites of a mirror. The other one may not answer, or not be known.
func (m *Manager) Look(ctx context.Context, mirror *record.Mirror) (*View, error) {
	twin, err := m.cfg.Store.Twin(caller.ByItself(ctx), mirror)
	if err != nil {
		return nil, err
	}
	v := &View{Known: twin.ID != "", Now: m.cfg.Now(), RPO: time.Duration(mirror.RPO) * time.Second}
	var asking sync.WaitGroup
	if v.Known {
		asking.Go(func() {
			_ = routine.Run(m.cfg.Log, "question to the other site", func() { v.There = m.ask(ctx, &twin) })
		})
	}
	s, err := m.reach(ctx, mirror)
	if err == nil {
		v.Here, err = s.look(ctx)
	}
	asking.Wait()
	if fault.Is(err, fault.NotFound) {
		v.Missing, err = true, nil
	}
	return v, err
}

// ask returns what a site tells about its mirror; nil: it does not answer.
func (m *Manager) ask(ctx context.Context, mirror *record.Mirror) *driver.Mirror {
	s, err := m.reach(ctx, mirror)
	if err != nil {
		return nil
	}
	seen, err := s.look(ctx)
	if err != nil {
		return nil
	}
	return &seen
}

// PoolScope returns what of a pool is mirrored, after a change unless scope is empty.
func (m *Manager) PoolScope(
	ctx context.Context, at *record.Place, scope driver.MirrorScope,
) (driver.MirrorScope, error) {
	if scope != "" && at.Backend.Mode == record.ReadOnly {
		return "", at.Backend.Writable()
	}
	d, err := m.asked(caller.ByItself(ctx), at.Cluster.ID)
	if err != nil {
		return "", err
	}
	if d == nil {
		return "", unsupported(&at.Backend)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookWithin, errSilent)
	defer cancel()
	if scope == "" {
		return d.MirrorScope(ctx, at.Pool.Name)
	}
	if scope == driver.MirrorDisabled {
		n, err := m.cfg.Store.MirrorsIn(ctx, at.Pool.ID)
		if err != nil {
			return "", err
		}
		if n > 0 {
			return "", fault.New(fault.Conflict, "the pool has %d volumes that are mirrored; disable those first", n)
		}
	}
	if err := d.SetMirrorScope(ctx, at.Pool.Name, scope); err != nil {
		return "", err
	}
	if err := m.cfg.Store.NotePoolScope(ctx, at, scope); err != nil {
		return "", err
	}
	return d.MirrorScope(ctx, at.Pool.Name)
}

// cancelled stores that a job was cancelled before it began.
func (m *Manager) cancelled(ctx context.Context, a record.MirrorArgs) error {
	return m.end(ctx, a.ID, fault.New(fault.Conflict, "the job was cancelled before it began"))
}

// end stores how a job ended.
func (m *Manager) end(ctx context.Context, id string, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	mirror, err := m.cfg.Store.Mirror(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil // its mirroring has ended
	}
	if err != nil {
		return err
	}
	var seen *driver.Mirror
	if s, err := m.reach(ctx, &mirror); err == nil {
		if now, err := s.look(ctx); err == nil {
			seen = &now
		}
	}
	return m.cfg.Store.EndMirror(ctx, id, seen, failed)
}

// Sweep ends what lost jobs have left.
func (m *Manager) Sweep(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	all, err := m.cfg.Store.LostMirrors(ctx)
	problems := []error{err}
	for i := range all {
		problems = append(problems, m.end(ctx, all[i].ID, fault.New(fault.Unavailable, "its job was interrupted too often")))
	}
	return errors.Join(problems...)
}
