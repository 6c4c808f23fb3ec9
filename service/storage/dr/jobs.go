package dr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

const (
	// arriveWithin is how long a demotion or a snapshot may take to arrive at the other site.
	arriveWithin = 10 * time.Minute
	// forcedWithin is how long a failover by force waits for that before it does without.
	forcedWithin = 30 * time.Second
	// settleWithin is how long the daemon that copies may still have a volume that was promoted.
	settleWithin = time.Minute
	// demoteWithin is how long the gateway's own processes may have a volume open that is demoted. Of other clients, the
	// request was told.
	demoteWithin = 15 * time.Second
	// askAgain is how often a site is asked whether something has arrived.
	askAgain = time.Second
)

// work is what a job does at the site of its mirror.
type work func(ctx context.Context, s *site, a record.MirrorArgs, progress func(float64)) error

func (m *Manager) register() {
	for kind, run := range map[string]work{
		record.JobEnableMirror:  m.enable,
		record.JobDisableMirror: m.disable,
		record.JobPromote:       m.promote,
		record.JobDemote:        m.demote,
		record.JobResync:        m.resync,
		record.JobFailover:      m.failover,
		record.JobRehearse:      m.rehearse,
	} {
		job.Register(m.cfg.Jobs, kind, job.Kind[record.MirrorArgs]{
			Run: func(ctx context.Context, a record.MirrorArgs, progress func(float64)) error {
				return m.run(ctx, kind, a, progress, run)
			},
			Cancelled: m.cancelled,
		})
	}
}

// run does the work of a job, and stores how the mirror is then. A job that is repeated after its mirror has gone has
// nothing left to do.
func (m *Manager) run(
	ctx context.Context, kind string, a record.MirrorArgs, progress func(float64), do work,
) error {
	mirror, err := m.cfg.Store.Mirror(ctx, a.ID)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := m.reach(ctx, &mirror)
	if err == nil {
		err = do(ctx, &s, a, progress)
	}
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	if err != nil && ctx.Err() != nil {
		err = fault.New(fault.Conflict, "the job was cancelled: %s", fault.From(err).Message)
	}
	if kind == record.JobDisableMirror && err == nil {
		return m.cfg.Store.DropMirror(ctx, a.ID)
	}
	return errors.Join(err, m.end(ctx, a.ID, err))
}

// until tries something again while it is a conflict, which passes once daemons have done their work.
func until(ctx context.Context, within time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := try()
		if err == nil || !fault.Is(err, fault.Conflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

// enable makes both clusters mirror the pool, if they do not, and the volume.
func (m *Manager) enable(ctx context.Context, s *site, _ record.MirrorArgs, progress func(float64)) error {
	p, err := m.cfg.Store.Peer(ctx, s.mirror.PeerID)
	if err != nil {
		return err
	}
	t, ok := m.cfg.Tokens[p.SecretRef]
	if !ok {
		return fault.New(fault.Unavailable, "the setting mirror-peers has no entry %s any more", p.SecretRef)
	}
	local, remote := s.driver, driver.Mirrors(nil)
	if other := p.RemoteID; other != "" {
		if other == s.mirror.ClusterID { // the volume is at the other end of the peer
			other = p.ClusterID
		}
		if remote, err = m.cluster(ctx, other); err != nil {
			return err
		}
		if err := mirrorPool(ctx, remote, s.name.Pool); err != nil {
			return fault.Wrap(fault.From(err).Kind, err, "at the other site: %s", fault.From(err).Message)
		}
	}
	if err := mirrorPool(ctx, local, s.name.Pool); err != nil {
		return err
	}
	// The token is of the remote cluster: the other one takes it.
	taker := local
	if p.RemoteID == s.mirror.ClusterID {
		taker = remote
	}
	if err := taker.AddMirrorPeer(ctx, s.name.Pool, t.Text, p.OneWay); err != nil {
		return err
	}
	if err := s.driver.EnableMirror(ctx, s.name, s.mirror.Mode); err != nil {
		return err
	}
	progress(record.Verifying)
	_, err = s.look(ctx)
	return err
}

// mirrorPool has images of a pool mirrored, if none are yet.
func mirrorPool(ctx context.Context, d driver.Mirrors, pool string) error {
	scope, err := d.MirrorScope(ctx, pool)
	if err != nil || scope != driver.MirrorDisabled {
		return err
	}
	return d.SetMirrorScope(ctx, pool, driver.MirrorImages)
}

// cluster returns what reaches a cluster.
func (m *Manager) cluster(ctx context.Context, id string) (driver.Mirrors, error) {
	c, err := m.cfg.Store.Cluster(ctx, id)
	if err != nil {
		return nil, err
	}
	b, err := m.cfg.Store.Backend(caller.ByItself(ctx), c.BackendID)
	if err != nil {
		return nil, err
	}
	if b.Mode == record.ReadOnly {
		return nil, b.Writable()
	}
	opened, err := m.cfg.Backends.Driver(ctx, b)
	if err != nil {
		return nil, err
	}
	d, ok := opened.(driver.Mirrors)
	if !ok {
		return nil, unsupported(&b)
	}
	return d, nil
}

func (m *Manager) disable(ctx context.Context, s *site, _ record.MirrorArgs, progress func(float64)) error {
	err := s.driver.DisableMirror(ctx, s.name)
	if fault.Is(err, fault.NotFound) { // the volume has gone, and its copy with it
		return nil
	}
	if err != nil {
		return err
	}
	progress(record.Verifying)
	switch _, err := s.look(ctx); {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil:
		return err
	}
	return fault.New(fault.Unavailable, "the storage still mirrors the volume")
}

func (m *Manager) promote(ctx context.Context, s *site, a record.MirrorArgs, progress func(float64)) error {
	if err := until(ctx, settleWithin, func() error { return s.driver.Promote(ctx, s.name, a.Force) }); err != nil {
		return err
	}
	progress(record.Verifying)
	return s.verify(ctx, true)
}

// verify asks whether the volume is primary at a site, or is not.
func (s *site) verify(ctx context.Context, primary bool) error {
	now, err := s.look(ctx)
	if err == nil && now.Primary != primary {
		err = fault.New(fault.Unavailable, "the storage has not changed which site is primary")
	}
	return err
}

func (m *Manager) demote(ctx context.Context, s *site, _ record.MirrorArgs, progress func(float64)) error {
	if err := s.demote(ctx); err != nil {
		return err
	}
	progress(record.Verifying)
	return s.verify(ctx, false)
}

// demote demotes the volume at a site.
func (s *site) demote(ctx context.Context) error {
	return until(ctx, demoteWithin, func() error { return s.driver.Demote(ctx, s.name, false) })
}

// resync asks for the copy. The daemon at this site makes it.
func (m *Manager) resync(ctx context.Context, s *site, _ record.MirrorArgs, progress func(float64)) error {
	v, err := m.Look(ctx, &s.mirror)
	if err != nil {
		return err
	}
	if v.There != nil && v.There.Primary && arrivedAgain(v) {
		return nil // an earlier attempt
	}
	if why := ResyncBlocker(v); why != "" {
		return fault.New(fault.Conflict, "%s", why)
	}
	if err := s.driver.Resync(ctx, s.name); err != nil {
		return err
	}
	return m.cfg.Store.ForgetSnapshots(ctx, s.mirror.VolumeID)
}

// arrivedAgain reports whether this site has the newest of the other one.
func arrivedAgain(v *View) bool {
	mine, ok := complete(&v.Here)
	theirs, there := newest(v.There)
	return ok && there && v.Here.Mode == driver.BySnapshots && mine.Of == theirs.ID && !SplitBrain(v.Here.Sites)
}

// failover demotes the volume at the other site, waits until that has arrived, and promotes it at this one.
func (m *Manager) failover(ctx context.Context, s *site, a record.MirrorArgs, progress func(float64)) error {
	v, err := m.Look(ctx, &s.mirror)
	if err != nil {
		return err
	}
	if v.Here.Primary {
		return nil // an earlier attempt
	}
	// Once an earlier attempt has demoted the other site, what is left to do is to wait for that.
	if why := FailoverBlocker(v, a.Force, a.Replayed); why != "" && (v.There == nil || v.There.Primary) {
		return fault.New(fault.Conflict, "%s", why)
	}
	other, err := m.twinSite(ctx, s)
	if err != nil && !a.Force {
		return err
	}
	demoted := false
	if other != nil {
		err = other.demote(ctx)
		if demoted = err == nil; err != nil && !a.Force {
			f := fault.From(err)
			return m.takeBack(ctx, s, other, fault.Wrap(f.Kind, err, "the demotion of the other site has failed: %s", f.Message))
		}
	}
	progress(record.Verifying / 3)
	if demoted {
		err = m.takeOver(ctx, s, a)
	} else {
		err = s.driver.Promote(ctx, s.name, a.Force)
	}
	if err != nil && demoted {
		return m.takeBack(ctx, s, other, err)
	}
	if err != nil {
		return err
	}
	progress(record.Verifying)
	err = s.verify(ctx, true)
	if other != nil {
		err = errors.Join(err, m.end(ctx, other.mirror.ID, nil))
	}
	return err
}

// twinSite returns the other site of a mirror; nil: the gateway does not know it.
func (m *Manager) twinSite(ctx context.Context, s *site) (*site, error) {
	twin, err := m.cfg.Store.Twin(ctx, &s.mirror)
	if err != nil || twin.ID == "" {
		return nil, err
	}
	other, err := m.reach(ctx, &twin)
	if err != nil {
		return nil, err
	}
	return &other, nil
}

// takeOver promotes the volume at a site once that has all of the other one, which was demoted. Ceph itself would only
// look at this site. By force, it is promoted with less if the rest does not come soon: the sites may not reach each
// other.
func (m *Manager) takeOver(ctx context.Context, s *site, a record.MirrorArgs) error {
	within := arriveWithin
	if a.Force {
		within = forcedWithin
	}
	err := until(ctx, within, func() error {
		v, err := m.Look(ctx, &s.mirror)
		if err != nil {
			return err
		}
		if why := PromoteBlocker(v, false, a.Replayed); why != "" {
			return fault.New(fault.Conflict, "%s", why)
		}
		return s.driver.Promote(ctx, s.name, false)
	})
	if err != nil && a.Force && ctx.Err() == nil {
		return s.driver.Promote(ctx, s.name, true)
	}
	return err
}

// takeBack promotes the site again that was primary, if a failover to s that has failed has demoted it.
func (m *Manager) takeBack(ctx context.Context, s, other *site, cause error) error {
	if job.BrokenOff(ctx) {
		return cause // the next attempt goes on
	}
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*settleWithin)
	defer cancel()
	f := fault.From(cause)
	now, err := other.look(again)
	if err == nil && now.Primary {
		return cause
	}
	if err == nil {
		err = until(again, settleWithin, func() error { return other.driver.Promote(again, other.name, false) })
	}
	// What it held when it was demoted is the newest that there is, as long as the site that should take over has not.
	if err != nil {
		if mine, unseen := s.look(again); unseen == nil && !mine.Primary {
			err = other.driver.Promote(again, other.name, true)
		}
		if now, unseen := other.look(again); unseen == nil && now.Primary {
			err = nil // Ceph may promote an image and fail all the same
		}
	}
	if err != nil {
		return fault.Wrap(f.Kind, cause, "%s; and the site that was primary was not promoted again: %s", f.Message,
			fault.From(err).Message)
	}
	return errors.Join(fault.Wrap(f.Kind, cause, "%s; the site that was primary is so again", f.Message),
		m.end(again, other.mirror.ID, nil))
}

// rehearse reads the copy, and stores how that ended.
func (m *Manager) rehearse(ctx context.Context, s *site, a record.MirrorArgs, progress func(float64)) error {
	began := m.cfg.Now()
	detail, err := m.readCopy(ctx, s, progress)
	if err != nil && job.BrokenOff(ctx) {
		return err
	}
	current, lookErr := m.cfg.Store.NewestJob(ctx, record.JobRehearse, s.mirror.ID)
	if lookErr != nil {
		return errors.Join(err, lookErr)
	}
	r := record.Rehearsal{OK: err == nil, Detail: detail, At: m.cfg.Now(), JobID: current.ID}
	if err != nil {
		r.Detail = fault.From(err).Message
	} else {
		r.Detail += fmt.Sprintf(", in %s", m.cfg.Now().Sub(began).Round(time.Second))
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	return errors.Join(err, m.cfg.Store.EndRehearsal(after, &s.mirror, r))
}

// readCopy reads the copy of a volume: a snapshot of it that was taken for that, through a clone, and compares it with
// the original. If the primary site does not answer, it reads the newest complete copy.
func (m *Manager) readCopy(ctx context.Context, s *site, progress func(float64)) (string, error) {
	other, err := m.twinSite(ctx, s)
	if s.mirror.Role == record.Primary {
		if other == nil && err == nil {
			err = errNoTwin
		}
		if err != nil {
			return "", err
		}
		return m.compare(ctx, s, other, progress)
	}
	if other != nil {
		if now, err := other.look(ctx); err == nil && now.Primary {
			return m.compare(ctx, other, s, progress)
		}
	}
	got, err := s.driver.ReadMirror(ctx, s.name, "", "", func(done float64) { progress(done * record.Verifying) })
	return fmt.Sprintf("%d bytes of the newest complete copy were read; the primary site was not asked, so they were not "+
		"compared", got.Read), err
}

// compare takes a snapshot at the primary site, waits until the other one has it, and reads both.
func (m *Manager) compare(ctx context.Context, primary, secondary *site, progress func(float64)) (_ string, err error) {
	snapshots, ok := primary.all.(driver.Snapshots)
	if !ok {
		return "", fault.New(fault.Invalid, "the storage has no snapshots").WithCode("unsupported")
	}
	// What would never arrive is not waited for.
	if v, err := m.Look(ctx, &secondary.mirror); err == nil {
		if v.Here.Primary {
			return "", fault.New(fault.Conflict, "the volume is primary at both sites; demote one, and copy it again with resync")
		}
		if why := FailoverBlocker(v, false, false); why == notACopy {
			return "", fault.New(fault.Conflict, "%s", why)
		}
	}
	id := primary.mirror.ID // one job about a mirror runs at a time
	sn := driver.Name{Pool: primary.name.Pool, Native: driver.SnapshotName(id)}
	if err := snapshots.DeleteSnapshot(ctx, sn); err != nil { // what an attempt has left
		return "", err
	}
	if _, err := snapshots.CreateSnapshot(ctx, primary.name, sn, func(float64) {}); err != nil {
		return "", err
	}
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		err = errors.Join(err, snapshots.DeleteSnapshot(after, sn))
	}()
	var failed error
	if err := primary.driver.SendChanges(ctx, []driver.Name{primary.name}, func(_ driver.Name, err error) {
		failed = err
	}); err != nil || failed != nil {
		return "", errors.Join(err, failed)
	}
	original, err := primary.driver.ReadMirror(ctx, primary.name, sn.Native, "", func(done float64) {
		progress(done * record.Verifying / 2)
	})
	if err != nil {
		return "", err
	}
	var copied driver.Digest
	deadline := m.cfg.Now().Add(arriveWithin)
	for {
		copied, err = secondary.driver.ReadMirror(ctx, secondary.name, sn.Native, driver.VolumeName(id), func(done float64) {
			progress((1 + done) * record.Verifying / 2)
		})
		if !fault.Is(err, fault.NotFound) || m.cfg.Now().After(deadline) {
			break
		}
		select { // the snapshot has not arrived yet
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(askAgain):
		}
	}
	switch {
	case fault.Is(err, fault.NotFound):
		return "", fault.New(fault.Unavailable, "the snapshot has not arrived at the other site within %s", arriveWithin)
	case err != nil:
		return "", err
	case copied.Sum != original.Sum:
		return "", fault.New(fault.StorageFailed, "the copy differs from the original")
	}
	return fmt.Sprintf("%d bytes of the copy were read, and are those of the original", copied.Read), nil
}
