package backend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// batch is how many volumes are taken in at once.
const batch = 500

// passWithin bounds a pass over a storage system.
const passWithin = time.Hour

// Summary is what a pass has found.
type Summary struct {
	BackendID string
	ClusterID string
	Pools     int
	OSDs      int
	Volumes   int64
	New       int64 // of Volumes: those that were not known
	Missing   int64
	Running   bool // it goes on
}

// pass is a pass that is under way.
type pass struct {
	volumes atomic.Int64
	fresh   atomic.Int64
	cluster atomic.Pointer[record.Cluster]
	done    chan struct{} // closed at its end
	summary Summary       // after done
	err     error         // after done
}

// Discover takes in what a backend has, and returns what it has found as soon as it is done, or what it has found so
// far when ctx ends. The pass goes on then. If one is under way already, Discover follows that.
func (s *Set) Discover(ctx context.Context, id string) (Summary, error) {
	b, err := s.cfg.Store.Backend(ctx, id)
	if err != nil {
		return Summary{}, err
	}
	p := s.begin(b)
	select {
	case <-p.done:
		return p.summary, p.err
	case <-ctx.Done():
	case <-s.cfg.Ending.Done():
	}
	soFar := Summary{BackendID: id, Volumes: p.volumes.Load(), New: p.fresh.Load(), Running: true}
	if c := p.cluster.Load(); c != nil {
		soFar.ClusterID = c.ID
	}
	return soFar, nil
}

// begin returns the pass over a backend that is under way, or begins one.
func (s *Set) begin(b record.Backend) *pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.passes[b.ID]; p != nil {
		return p
	}
	p := &pass{done: make(chan struct{})}
	s.passes[b.ID] = p
	ctx, cancel := context.WithTimeoutCause(caller.ByItself(s.cfg.Ending), passWithin, errSilent)
	go func() {
		defer func() {
			s.mu.Lock()
			delete(s.passes, b.ID)
			s.mu.Unlock()
			close(p.done)
		}()
		defer cancel()
		p.err = routine.Call(s.cfg.Log, "pass over a backend", func() (err error) {
			p.summary, err = s.pass(ctx, b, p)
			return err
		})
	}()
	return p
}

func (s *Set) pass(ctx context.Context, b record.Backend, p *pass) (Summary, error) {
	out := Summary{BackendID: b.ID}
	d, err := s.Driver(ctx, b)
	if err != nil {
		return out, err
	}
	begun := db.At(s.cfg.Now())
	var cluster record.Cluster
	asking, cancel := context.WithTimeoutCause(ctx, answerWithin, errSilent)
	err = s.inspect(asking, b, d, &cluster)
	cancel()
	if err != nil {
		s.drop(b.ID, d, err)
		return out, err
	}
	p.cluster.Store(&cluster)
	out.ClusterID = cluster.ID
	if err := s.takeIn(ctx, b, d, cluster.ID, p); err != nil {
		return out, err
	}
	out.Volumes, out.New = p.volumes.Load(), p.fresh.Load()
	if out.Missing, err = s.cfg.Store.EndPass(ctx, b.ID, cluster.ID, begun); err != nil {
		return out, err
	}
	out.Pools, out.OSDs, err = s.cfg.Store.Counts(ctx, cluster.ID)
	return out, err
}

// takeIn stores all volumes of a storage system, in batches.
func (s *Set) takeIn(ctx context.Context, b record.Backend, d driver.Driver, cluster string, p *pass) error {
	some := make([]driver.Volume, 0, batch)
	store := func() error {
		fresh, err := s.cfg.Store.SeeVolumes(ctx, cluster, some)
		if err != nil {
			return err
		}
		p.fresh.Add(fresh)
		p.volumes.Add(int64(len(some)))
		some = some[:0]
		return nil
	}
	var storing error
	err := d.EachVolume(ctx, func(v driver.Volume) error {
		if some = append(some, v); len(some) < batch {
			return nil
		}
		storing = store()
		return storing
	})
	switch {
	case storing != nil:
		return storing
	case err != nil:
		return s.unreached(ctx, &b, err)
	}
	return store()
}
