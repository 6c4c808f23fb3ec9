package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// Config configures a Runner. DB, Worker, Log, Now and Rand are required.
type Config struct {
	DB *db.DB // with Migrations applied
	// Queues is the number of workers per queue: how many of its jobs this process runs at once.
	// With 0 it only enqueues.
	Queues map[string]int
	// PerGroup shares the workers of a queue fairly among groups (Options.Group). At most this many
	// jobs of one group run at once in all replicas, and the next job is taken from the group with
	// the fewest running jobs. Jobs without a group form one group. A queue that is not named, or
	// has 0, runs its jobs in order.
	PerGroup map[string]int
	// Lease is how long a job stays with a worker that has stopped renewing it, and so how soon the
	// jobs of a dead process run elsewhere. 0 means 30s.
	Lease time.Duration
	// Poll limits the delay until jobs are found that no local signal reports: those of other
	// replicas and those that become due. 0 means 1s.
	Poll time.Duration
	// Worker is this process's name. It must be unique among live processes.
	Worker string
	Log    *slog.Logger
	// Registry receives the metrics. At most one Runner may use it. Nil means none.
	Registry prometheus.Registerer
	Now      func() time.Time
	Rand     func() float64 // in [0, 1); safe for concurrent use
	// LeaseClock returns the time used for leases. All replicas must agree on it. Nil means the
	// database's own clock.
	LeaseClock func(ctx context.Context, tx *db.Tx) (time.Time, error)
}

// Runner enqueues, claims and runs jobs. It is safe for concurrent use, but all kinds must be
// registered before any other call.
type Runner struct {
	cfg     Config
	kinds   map[string]kind
	metrics metrics
	claims  *telemetry.Trouble
	leases  *telemetry.Trouble
	wake    chan struct{} // capacity 1: claims may be possible
	jobs    sync.WaitGroup

	mu      sync.Mutex
	running map[string]*Job
	busy    map[string]int // running jobs by queue
	waiting map[string][]chan struct{}
}

type kind struct {
	queue string
	run   func(ctx context.Context, job *Job, args string) error
}

// New returns a Runner that does nothing until Run. It panics if a required field of cfg is
// missing.
func New(cfg Config) *Runner {
	if cfg.DB == nil || cfg.Worker == "" || cfg.Log == nil || cfg.Now == nil || cfg.Rand == nil {
		panic("jobs: Config needs DB, Worker, Log, Now and Rand")
	}
	if cfg.Lease <= 0 {
		cfg.Lease = 30 * time.Second
	}
	if cfg.Poll <= 0 {
		cfg.Poll = time.Second
	}
	if cfg.LeaseClock == nil {
		cfg.LeaseClock = func(ctx context.Context, tx *db.Tx) (time.Time, error) { return tx.Now(ctx) }
	}
	return &Runner{
		cfg:     cfg,
		kinds:   map[string]kind{},
		metrics: newMetrics(cfg.Registry),
		claims:  telemetry.NewTrouble(cfg.Log, "jobs: cannot claim"),
		leases:  telemetry.NewTrouble(cfg.Log, "jobs: cannot renew leases"),
		wake:    make(chan struct{}, 1),
		running: map[string]*Job{},
		busy:    map[string]int{},
		waiting: map[string][]chan struct{}{},
	}
}

// Register sets the function and queue for jobs of a kind. Args that cannot be decoded as T fail
// the job permanently. Register panics if the kind is registered twice or the queue is not in
// Config.Queues.
func Register[T any](r *Runner, queue, name string, run func(ctx context.Context, job *Job, args T) error) {
	if _, ok := r.cfg.Queues[queue]; !ok {
		panic(fmt.Sprintf("jobs: kind %s: no queue %s", name, queue))
	}
	if _, ok := r.kinds[name]; ok {
		panic(fmt.Sprintf("jobs: kind %s is registered twice", name))
	}
	r.kinds[name] = kind{queue, func(ctx context.Context, job *Job, raw string) error {
		var args T
		if err := json.Unmarshal([]byte(raw), &args); err != nil {
			return Permanent(fmt.Errorf("decode args: %w", err))
		}
		return run(ctx, job, args)
	}}
}

// Run runs jobs until ctx ends. Then it cancels the running jobs, waits for them to return, hands
// back those that did not finish, and returns nil. It must be called at most once.
func (r *Runner) Run(ctx context.Context) error {
	detached := context.WithoutCancel(ctx)
	keep, stop := context.WithCancel(detached)
	var keeper sync.WaitGroup
	defer keeper.Wait()
	defer stop()
	keeper.Go(func() { routine.Keep(keep, r.cfg.Log, "job leases", r.keepLeases) })

	poll := time.NewTicker(r.cfg.Poll)
	defer poll.Stop()
	for ctx.Err() == nil {
		// Detached: a claim that is cut off during its commit would leave jobs in state running
		// that nobody runs until their lease expires.
		_ = routine.Run(r.cfg.Log, "job claims", func() { r.claims.Report(r.claim(detached)) }) // logged
		select {
		case <-ctx.Done():
		case <-poll.C:
		case <-r.wake:
		}
	}
	for _, job := range r.held() {
		job.stop(ErrStopping)
	}
	r.jobs.Wait()
	return nil
}

func (r *Runner) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// held returns the jobs that run in this process.
func (r *Runner) held() []*Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := make([]*Job, 0, len(r.running))
	for _, job := range r.running {
		jobs = append(jobs, job)
	}
	return jobs
}

// free returns the queues with idle workers and their number, and the kinds that this process runs,
// both in a fixed order.
func (r *Runner) free() (queues []string, workers map[string]int, kinds []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	workers = map[string]int{}
	for queue, n := range r.cfg.Queues {
		if n -= r.busy[queue]; n > 0 {
			queues, workers[queue] = append(queues, queue), n
		}
	}
	slices.Sort(queues)
	return queues, workers, slices.Sorted(maps.Keys(r.kinds))
}

// run executes a claimed job in this process.
func (r *Runner) run(ctx context.Context, job *Job, args string) {
	r.mu.Lock()
	r.running[job.key()] = job
	r.busy[job.Queue]++
	r.mu.Unlock()
	r.metrics.running.WithLabelValues(job.Queue).Inc()
	r.jobs.Go(func() {
		defer r.ended(job)
		// A job whose end could not be stored runs again after its lease expires.
		_ = routine.Run(r.cfg.Log, "job", func() {
			started := r.cfg.Now()
			err := r.call(job, args)
			r.metrics.seconds.WithLabelValues(job.Kind).Observe(r.cfg.Now().Sub(started).Seconds())
			r.finish(ctx, job, err)
		})
	})
}

// ended removes a job that no longer runs in this process.
func (r *Runner) ended(job *Job) {
	r.mu.Lock()
	delete(r.running, job.key())
	r.busy[job.Queue]--
	r.mu.Unlock()
	r.metrics.running.WithLabelValues(job.Queue).Dec()
	job.stop(context.Canceled) // releases the context
	r.wakeUp()
}
