package dr

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// passWithin bounds a pass over a cluster.
const passWithin = 5 * time.Minute

// Pass asks all clusters that have peers for their mirrors, sends changes that are due, and asks whether peers answer.
// A cluster that does not answer does not delay the others.
func (m *Manager) Pass(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	pools, err := m.cfg.Store.MirroredPools(ctx)
	if err != nil {
		return err
	}
	peers, err := m.cfg.Store.Peers(ctx, "", "", 1000)
	if err != nil {
		return err
	}
	of := map[string][]record.Pool{}
	for _, p := range pools {
		of[p.ClusterID] = append(of[p.ClusterID], p)
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	do := func(what string, run func() error) {
		work.Go(func() {
			_ = routine.Run(m.cfg.Log, what, func() { // a panic was logged
				err := run()
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, err)
			})
		})
	}
	for cluster, pools := range of {
		do("mirrors of a cluster", func() error { return m.passOver(ctx, cluster, pools) })
	}
	for _, p := range peers {
		do("a peer", func() error {
			_, err := m.dial(ctx, p)
			return err
		})
	}
	work.Wait()
	return errors.Join(problems...)
}

// passOver takes in the mirrors of a cluster, and sends what is due there.
func (m *Manager) passOver(ctx context.Context, cluster string, pools []record.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, passWithin)
	defer cancel()
	began := m.cfg.Now()
	d, err := m.asked(ctx, cluster)
	if d == nil || fault.Is(err, fault.Unavailable) {
		return nil // the backend says so
	}
	if err != nil {
		return err
	}
	for i := range pools {
		if err := m.passPool(ctx, d, &pools[i]); fault.Is(err, fault.Unavailable) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return errors.Join(m.endUnseen(ctx, cluster, began), m.send(ctx, cluster))
}

// asked returns what reaches a cluster, which may be one that is only read; nil: it has no mirrors.
func (m *Manager) asked(ctx context.Context, id string) (driver.Mirrors, error) {
	c, err := m.cfg.Store.Cluster(ctx, id)
	if err != nil {
		return nil, err
	}
	b, err := m.cfg.Store.Backend(ctx, c.BackendID)
	if err != nil {
		return nil, err
	}
	opened, err := m.cfg.Backends.Driver(ctx, b)
	if err != nil {
		return nil, err
	}
	d, _ := opened.(driver.Mirrors)
	return d, nil
}

func (m *Manager) passPool(ctx context.Context, d driver.Mirrors, pool *record.Pool) error {
	scope, err := d.MirrorScope(ctx, pool.Name)
	if err != nil || scope == driver.MirrorDisabled {
		return err
	}
	return d.EachMirror(ctx, pool.Name, func(seen driver.Mirror) error {
		if !seen.Enabled {
			return nil
		}
		return m.cfg.Store.SeeMirror(ctx, pool, &record.Seen{
			Mirror: seen, Health: Healthy(&seen), SyncedAt: Synced(seen.Sites),
		}, func(name driver.Name) (bool, error) {
			now, err := d.Mirror(ctx, name)
			if fault.Is(err, fault.NotFound) {
				return false, nil
			}
			_, ok := complete(&now)
			return ok || now.Mode == driver.ByJournal, err
		})
	})
}

// endUnseen stores which mirrors of a cluster there are not any more.
func (m *Manager) endUnseen(ctx context.Context, cluster string, began time.Time) error {
	unseen, err := m.cfg.Store.UnseenMirrors(ctx, cluster, began)
	problems := []error{err}
	for i := range unseen {
		s, err := m.reach(ctx, &unseen[i])
		if err != nil {
			continue // its volume has gone, or the cluster does not answer any more
		}
		_, err = s.look(ctx)
		switch {
		case err == nil: // it was begun meanwhile
		case fault.Is(err, fault.NotFound):
			problems = append(problems, m.cfg.Store.EndUnseen(ctx, &unseen[i], m.gone(ctx, &s)))
		}
	}
	return errors.Join(problems...)
}

// gone reports whether the storage system says that it does not have a volume.
func (m *Manager) gone(ctx context.Context, s *site) bool {
	volumes, ok := s.all.(driver.Volumes)
	if !ok {
		return false
	}
	_, err := volumes.Volume(ctx, s.name)
	return fault.Is(err, fault.NotFound)
}

// sendWithin bounds the sending of what is due.
const sendWithin = 2 * time.Minute

// send has copies become what their volumes are now, where that is due.
func (m *Manager) send(ctx context.Context, cluster string) error {
	due, err := m.cfg.Store.DueMirrors(ctx, cluster)
	if err != nil || len(due) == 0 {
		return err
	}
	var d driver.Mirrors
	var names []driver.Name
	for i := range due {
		s, err := m.reach(ctx, &due[i])
		if fault.Is(err, fault.NotFound) {
			continue // its volume has gone
		}
		if err != nil {
			return err
		}
		d, names = s.driver, append(names, s.name)
	}
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sendWithin, errSilent)
	defer cancel()
	return d.SendChanges(ctx, names, func(n driver.Name, err error) {
		if err != nil {
			m.cfg.Log.Warn("changes of a volume were not sent to the other site", "volume", n.Native, "error", err)
		}
	})
}
