package repository

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// LeaseTimes are the times of leases.
type LeaseTimes struct {
	Renew  time.Duration // how often a writer renews its lease; 0: a minute
	Expiry time.Duration // after how long without success a writer gives up; 0: 15 minutes
}

func (t LeaseTimes) orDefaults() LeaseTimes {
	if t.Renew == 0 {
		t.Renew = time.Minute
	}
	if t.Expiry == 0 {
		t.Expiry = 15 * time.Minute
	}
	return t
}

// lease says that a writer is at work. Its name carries a number that grows with each renewal, since
// objects never change: a reader sees that a writer lives without comparing clocks.
type lease struct {
	r      *Repository
	d      *domain
	writer ID

	lock    sync.Mutex
	number  uint32
	renewed time.Time
	stop    context.CancelFunc
	done    <-chan error
}

type leaseContent struct {
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

func leaseName(d *domain, writer ID, number uint32) string {
	return fmt.Sprintf("leases/%s/%s-%08x", d.place, writer, number)
}

// errLeaseLost ends the context of a writer.
var errLeaseLost = fault.New(fault.Conflict, "the repository was out of reach for too long, and the lease on it expired; start again").
	WithCode("backup_lease_lost")

// lease takes a lease. The context that it returns ends when the lease is lost.
func (r *Repository) lease(ctx context.Context, d *domain, writer ID) (*lease, context.Context, error) {
	l := &lease{r: r, d: d, writer: writer}
	if err := l.renew(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.done = routine.Start(r.options.Log, "backup lease", func() error {
		for backoff.Sleep(keeping, r.options.Lease.Renew) {
			if err := l.renew(keeping); err != nil {
				r.options.Log.Warn("a backup's lease was not renewed", "backup", writer, "error", err)
			}
			if l.lost() {
				cancel(errLeaseLost)
				return nil
			}
		}
		cancel(nil)
		return nil
	})
	return l, ctx, nil
}

func (l *lease) renew(ctx context.Context) error {
	l.lock.Lock()
	next := l.number + 1
	l.lock.Unlock()
	now := l.r.now()
	content := leaseContent{l.r.options.Host, now}
	if err := putMeta(ctx, l.r, l.d.sealer, leaseName(l.d, l.writer, next), content); err != nil && !exists(err) {
		return err
	}
	l.lock.Lock()
	l.number, l.renewed = next, now
	l.lock.Unlock()
	if next <= 2 {
		return nil
	}
	// The one before stays: a listing that goes on meanwhile must not miss the lease.
	return l.r.store.Delete(ctx, leaseName(l.d, l.writer, next-2))
}

// lost reports whether the lease may have expired.
func (l *lease) lost() bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.r.now().Sub(l.renewed) >= l.r.options.Lease.Expiry
}

// pause ends renewing. The lease stays.
func (l *lease) pause() {
	l.stop()
	<-l.done //nolint:errcheck // a panic was logged
}

// release removes the lease: the writer has committed, or never will.
func (l *lease) release(ctx context.Context) error {
	l.pause()
	names, err := l.r.leases(ctx, l.d)
	if err != nil {
		return err
	}
	var failed []error
	for _, number := range names[l.writer] {
		failed = append(failed, l.r.store.Delete(ctx, leaseName(l.d, l.writer, number)))
	}
	return errors.Join(failed...)
}

// leases returns the leases of a domain: their writers and numbers.
func (r *Repository) leases(ctx context.Context, d *domain) (map[ID][]uint32, error) {
	names, err := r.names(ctx, "leases/"+d.place+"/")
	if err != nil {
		return nil, err
	}
	all := map[ID][]uint32{}
	for _, name := range names {
		if writer, number, ok := parseNumbered(name); ok {
			all[writer] = append(all[writer], number)
		}
	}
	return all, nil
}
