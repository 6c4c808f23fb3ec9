package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
)

var tables = dbtest.Migrations{"jobs": jobs.Migrations()}

const lease = 30 * time.Second

// clock is set manually.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// lease makes leases use the clock, too.
func (c *clock) lease(context.Context, *db.Tx) (time.Time, error) { return c.now(), nil }

func newRunner(d *db.DB, c *clock, worker string, workers int) *jobs.Runner {
	return jobs.New(jobs.Config{
		DB: d, Queues: map[string]int{"q": workers}, Lease: lease, Poll: 2 * time.Millisecond, Worker: worker,
		Log: slog.New(slog.DiscardHandler), Now: c.now, LeaseClock: c.lease, Rand: func() float64 { return 0.5 },
	})
}

// run runs r until the returned function is called, or the test ends.
func run(t *testing.T, r *jobs.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func update(t *testing.T, d *db.DB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := d.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, d *db.DB, r *jobs.Runner, kind string, args any, o jobs.Options) (id string) {
	t.Helper()
	update(t, d, func(tx *db.Tx) error {
		var err error
		id, err = r.Enqueue(t.Context(), tx, kind, args, o)
		return err
	})
	return id
}

func get(t *testing.T, d *db.DB, id string) jobs.Record {
	t.Helper()
	record, err := jobs.Get(t.Context(), d, id)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func finished(t *testing.T, r *jobs.Runner, id string) jobs.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	record, err := r.Wait(ctx, id)
	if err != nil {
		t.Fatalf("%v; the job is %+v", err, record)
	}
	return record
}

// until reads the job repeatedly until wanted returns true.
func until(t *testing.T, d *db.DB, id string, wanted func(jobs.Record) bool) jobs.Record {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	deadline := time.After(time.Minute)
	for {
		record := get(t, d, id)
		if wanted(record) {
			return record
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the job stays %+v", record)
		}
	}
}

func state(s jobs.State) func(jobs.Record) bool {
	return func(r jobs.Record) bool { return r.State == s }
}

func TestAJobRunsWithItsArgsAndIsCounted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c, registry := newClock(), prometheus.NewRegistry()
		r := jobs.New(jobs.Config{
			DB: d, Queues: map[string]int{"q": 1}, Worker: "w", Log: slog.New(slog.DiscardHandler),
			Now: c.now, LeaseClock: c.lease, Rand: func() float64 { return 0 }, Registry: registry,
		})
		type args struct{ N int }
		var got args
		jobs.Register(r, "q", "add", func(_ context.Context, _ *jobs.Job, a args) error { got = a; return nil })
		run(t, r)
		id := enqueue(t, d, r, "add", args{7}, jobs.Options{})
		record := finished(t, r, id)
		if record.State != jobs.Succeeded || record.Attempt != 1 || record.Error != "" || record.FinishedAt.IsZero() ||
			got.N != 7 {
			t.Errorf("%+v, args %+v", record, got)
		}
		const want = `
# HELP jobs_finished_total Jobs that reached a final state, by this process.
# TYPE jobs_finished_total counter
jobs_finished_total{kind="add",queue="q",state="succeeded"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "jobs_finished_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestAJobIsNotKeptWhenItsTransactionIsNot(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	r := newRunner(d, newClock(), "w", 1)
	jobs.Register(r, "q", "k", func(context.Context, *jobs.Job, any) error { return nil })
	_ = d.Update(t.Context(), func(tx *db.Tx) error {
		if _, err := r.Enqueue(t.Context(), tx, "k", nil, jobs.Options{}); err != nil {
			t.Error(err)
		}
		return context.Canceled
	})
	if list, err := jobs.List(t.Context(), d, jobs.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestAFailedJobIsRetriedAfterABackoffUntilItsAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := newRunner(d, c, "w", 1)
		jobs.Register(r, "q", "k", func(_ context.Context, job *jobs.Job, _ any) error {
			if job.Attempt == 2 {
				panic("attempt 2")
			}
			return fmt.Errorf("attempt %d", job.Attempt)
		})
		run(t, r)
		id := enqueue(t, d, r, "k", nil, jobs.Options{MaxAttempts: 3})
		for i, wait := range []time.Duration{500 * time.Millisecond, time.Second} { // half of 1s and 2s
			attempt := int64(i + 1)
			record := until(
				t, d, id, func(j jobs.Record) bool { return j.State == jobs.Available && j.Attempt == attempt },
			)
			if got := record.RunAt.Sub(c.now()); got != wait ||
				!strings.Contains(record.Error, fmt.Sprintf("attempt %d", attempt)) {
				t.Fatalf("after attempt %d: runs in %v, want %v; error %q", attempt, got, wait, record.Error)
			}
			c.advance(wait)
		}
		if record := finished(t, r, id); record.State != jobs.Failed || record.Attempt != 3 ||
			record.Error != "attempt 3" {
			t.Errorf("%+v", record)
		}
	})
}

func TestAPermanentErrorAndUnreadableArgsFailAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		r := newRunner(d, newClock(), "w", 1)
		jobs.Register(r, "q", "permanent", func(context.Context, *jobs.Job, any) error {
			return fmt.Errorf("outer: %w", jobs.Permanent(errors.New("no use")))
		})
		jobs.Register(r, "q", "args", func(context.Context, *jobs.Job, int) error { return nil })
		run(t, r)
		for kind, want := range map[string]string{"permanent": "outer: no use", "args": "decode args"} {
			record := finished(t, r, enqueue(t, d, r, kind, "text", jobs.Options{}))
			if record.State != jobs.Failed || record.Attempt != 1 || !strings.Contains(record.Error, want) {
				t.Errorf("%s: %+v", kind, record)
			}
		}
	})
}

func TestCancelEndsAWaitingJobAtOnceAndAsksARunningOneToStop(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		here, there := newRunner(d, c, "here", 1), newRunner(d, c, "there", 0)
		causes, started := make(chan error, 9), make(chan struct{}, 9)
		block := func(ctx context.Context, _ *jobs.Job, _ any) error {
			started <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		jobs.Register(here, "q", "k", block)
		jobs.Register(there, "q", "k", block)
		run(t, here)
		cancel := func(by *jobs.Runner, id string) {
			update(t, d, func(tx *db.Tx) error { return by.Cancel(t.Context(), tx, id) })
		}

		waiting := enqueue(t, d, here, "k", nil, jobs.Options{RunAt: c.now().Add(time.Hour)})
		cancel(here, waiting)
		if got := get(t, d, waiting); got.State != jobs.Cancelled || got.FinishedAt.IsZero() {
			t.Errorf("waiting: %+v", got)
		}
		cancel(here, waiting) // again: no change, no fault

		local := enqueue(t, d, here, "k", nil, jobs.Options{})
		<-started
		// Starting the job and adding it to the runner are separate steps; a cancel in between is
		// noticed at renewal, like one from another process.
		cancel(here, local)
		c.advance(lease / 3)
		if got := finished(t, here, local); got.State != jobs.Cancelled || got.Error != "" || got.Attempt != 1 {
			t.Errorf("local: %+v", got)
		}

		remote := enqueue(t, d, here, "k", nil, jobs.Options{})
		<-started
		cancel(there, remote)
		c.advance(lease / 3)
		if got := finished(t, there, remote); got.State != jobs.Cancelled {
			t.Errorf("remote: %+v", got)
		}
		for range 2 {
			if err := <-causes; !errors.Is(err, jobs.ErrCancelled) || !errors.Is(err, context.Canceled) {
				t.Errorf("cause: %v", err)
			}
		}

		err := d.Update(t.Context(), func(tx *db.Tx) error { return here.Cancel(t.Context(), tx, "none") })
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("unknown job: %v", err)
		}
	})
}

func TestASucceededJobCannotBeCancelled(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	r := newRunner(d, newClock(), "w", 1)
	jobs.Register(r, "q", "k", func(context.Context, *jobs.Job, any) error { return nil })
	run(t, r)
	id := enqueue(t, d, r, "k", nil, jobs.Options{})
	finished(t, r, id)
	if err := d.Update(t.Context(), func(tx *db.Tx) error { return r.Cancel(t.Context(), tx, id) }); !fault.Is(
		err, fault.Conflict,
	) {
		t.Errorf("%v", err)
	}
}

func TestAGroupLeavesWorkersToOthersHoweverManyJobsItHas(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := jobs.New(jobs.Config{
			DB:         d,
			Queues:     map[string]int{"q": 3},
			PerGroup:   map[string]int{"q": 2},
			Lease:      lease,
			Poll:       2 * time.Millisecond,
			Worker:     "a",
			Log:        slog.New(slog.DiscardHandler),
			Now:        c.now,
			LeaseClock: c.lease,
			Rand:       func() float64 { return 0.5 },
		})
		began := make(chan string, 10)
		release := map[string]chan struct{}{
			"greedy": make(chan struct{}),
			"late":   make(chan struct{}),
			"third":  make(chan struct{}),
		}
		jobs.Register(r, "q", "work", func(ctx context.Context, _ *jobs.Job, group string) error {
			began <- group
			select {
			case <-release[group]:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		add := func(group string, n int) (ids []string) {
			for range n {
				ids = append(ids, enqueue(t, d, r, "work", group, jobs.Options{Group: group}))
			}
			return ids
		}
		next := func() string {
			select {
			case group := <-began:
				return group
			case <-time.After(time.Minute):
				t.Fatal("no job begins")
				return ""
			}
		}
		greedy := add("greedy", 5)
		run(t, r)
		next()
		next()
		add("late", 2)
		if group := next(); group != "late" {
			t.Errorf("the last worker went to %s", group)
		}
		third := add("third", 1)
		release["greedy"] <- struct{}{} // greedy and late have one each now, and wait for longer
		if group := next(); group != "third" {
			t.Errorf("the next worker went to %s", group)
		}
		for _, group := range release {
			close(group)
		}
		for _, id := range append(greedy, third...) {
			if record := finished(t, r, id); record.State != jobs.Succeeded {
				t.Errorf("%+v", record)
			}
		}
	})
}

func TestAPausedQueueIsNotClaimedUntilItIsResumed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := jobs.New(jobs.Config{
			DB: d, Queues: map[string]int{"a": 1, "b": 1}, Poll: 2 * time.Millisecond, Worker: "w",
			Log: slog.New(slog.DiscardHandler), Now: c.now, LeaseClock: c.lease, Rand: func() float64 { return 0 },
		})
		done := func(context.Context, *jobs.Job, any) error { return nil }
		jobs.Register(r, "a", "in-a", done)
		jobs.Register(r, "b", "in-b", done)
		update(t, d, func(tx *db.Tx) error { return r.Pause(t.Context(), tx, "a") })
		if names, err := jobs.PausedQueues(t.Context(), d); err != nil || strings.Join(names, " ") != "a" {
			t.Errorf("paused: %v, %v", names, err)
		}
		first := enqueue(t, d, r, "in-a", nil, jobs.Options{})
		run(t, r)
		finished(t, r, enqueue(t, d, r, "in-b", nil, jobs.Options{})) // one claim serves both queues
		if got := get(t, d, first); got.State != jobs.Available {
			t.Errorf("paused: %+v", got)
		}
		update(t, d, func(tx *db.Tx) error { return r.Resume(t.Context(), tx, "a") })
		finished(t, r, first)
	})
}

func TestAUniqueKeyHoldsOneUnfinishedJobOfItsKind(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		r := newRunner(d, newClock(), "w", 1)
		goOn := make(chan struct{}, 1)
		wait := func(context.Context, *jobs.Job, any) error { <-goOn; return nil }
		jobs.Register(r, "q", "k", wait)
		jobs.Register(r, "q", "other", wait)
		first := enqueue(t, d, r, "k", 1, jobs.Options{UniqueKey: "u"})
		if again := enqueue(t, d, r, "k", 2, jobs.Options{UniqueKey: "u"}); again != first {
			t.Error("a second job while the first is available")
		}
		stop := run(t, r)
		until(t, d, first, state(jobs.Running))
		if again := enqueue(t, d, r, "k", 3, jobs.Options{UniqueKey: "u"}); again != first {
			t.Error("a second job while the first is running")
		}
		goOn <- struct{}{}
		finished(t, r, first)
		stop()
		ids := map[string]bool{first: true}
		for _, o := range []struct{ kind, key string }{{"k", "u"}, {"other", "u"}, {"k", "v"}, {"k", ""}, {"k", ""}} {
			ids[enqueue(t, d, r, o.kind, nil, jobs.Options{UniqueKey: o.key})] = true
		}
		if len(ids) != 6 {
			t.Errorf("%d jobs, want 6: finished jobs, other kinds, other keys and no key never match", len(ids))
		}
	})
}

func TestAJobOfADeadWorkerIsTakenUpAndTheLateFinishIsIgnored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		// A clock that stands still never renews: for the others, this worker is dead.
		dead, alive := newClock(), newClock()
		old, heir := newRunner(d, dead, "old", 1), newRunner(d, alive, "heir", 1)
		started, letGo := make(chan struct{}), make(chan struct{})
		jobs.Register(old, "q", "k", func(context.Context, *jobs.Job, any) error {
			close(started)
			<-letGo
			return nil
		})
		attempts := make(chan int64, 9)
		release := make(chan struct{})
		jobs.Register(heir, "q", "k", func(_ context.Context, job *jobs.Job, _ any) error {
			attempts <- job.Attempt
			<-release
			return jobs.Permanent(errors.New("by the heir"))
		})
		stopOld := run(t, old)
		id := enqueue(t, d, old, "k", nil, jobs.Options{})
		<-started

		run(t, heir)
		alive.advance(lease)
		if got := <-attempts; got != 2 {
			t.Errorf("the heir runs attempt %d, want 2", got)
		}
		close(letGo)
		stopOld() // returns after the old worker has tried to store its success
		if got := get(t, d, id); got.State != jobs.Running || got.Worker != "heir" ||
			!strings.Contains(got.Error, "old disappeared") {
			t.Errorf("after the late finish: %+v", got)
		}
		close(release)
		if got := finished(t, heir, id); got.State != jobs.Failed || got.Error != "by the heir" {
			t.Errorf("%+v", got)
		}
	})
}

func TestALeaseIsRenewedWhileTheJobRuns(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := newRunner(d, c, "w", 1)
		release := make(chan struct{})
		jobs.Register(r, "q", "k", func(context.Context, *jobs.Job, any) error { <-release; return nil })
		run(t, r)
		id := enqueue(t, d, r, "k", nil, jobs.Options{})
		until(t, d, id, state(jobs.Running))
		for range 6 {
			c.advance(lease / 3)
			until(t, d, id, func(j jobs.Record) bool { return j.LeaseUntil.Equal(c.now().Add(lease)) })
		}
		close(release)
		if got := finished(t, r, id); got.State != jobs.Succeeded || got.Attempt != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAJobThatLosesItsLeaseIsStopped(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := newRunner(d, c, "w", 1)
		cause := make(chan error, 1)
		jobs.Register(r, "q", "k", func(ctx context.Context, _ *jobs.Job, _ any) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		})
		run(t, r)
		id := enqueue(t, d, r, "k", nil, jobs.Options{})
		until(t, d, id, state(jobs.Running))
		update(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE jobs SET worker = 'thief', attempt = 2 WHERE id = ?", id)
			return err
		})
		c.advance(lease / 3)
		if err := <-cause; !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("cause: %v", err)
		}
	})
}

func TestTwoRunnersNeverRunOneJobTwice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		const n = 50
		c := newClock()
		var mu sync.Mutex
		runs := map[string]int{}
		var runners []*jobs.Runner
		for _, worker := range []string{"a", "b"} {
			r := newRunner(d, c, worker, 4)
			jobs.Register(r, "q", "k", func(_ context.Context, job *jobs.Job, _ any) error {
				mu.Lock()
				defer mu.Unlock()
				runs[job.ID]++
				return nil
			})
			runners = append(runners, r)
		}
		var ids []string
		update(t, d, func(tx *db.Tx) error {
			ids = nil
			for range n {
				id, err := runners[0].Enqueue(t.Context(), tx, "k", nil, jobs.Options{})
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return nil
		})
		for _, r := range runners {
			run(t, r)
		}
		for _, id := range ids {
			if got := finished(t, runners[0], id); got.State != jobs.Succeeded || got.Attempt != 1 {
				t.Errorf("%+v", got)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if runs[id] != 1 {
				t.Errorf("job %s ran %d times", id, runs[id])
			}
		}
	})
}

func TestShutdownHandsAJobBackWithoutUsingUpAnAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		started := make(chan struct{}, 1)
		block := func(ctx context.Context, job *jobs.Job, _ any) error {
			started <- struct{}{}
			<-ctx.Done()
			return job.Progress(ctx, 0, 0)
		}
		first := newRunner(d, c, "first", 1)
		jobs.Register(first, "q", "k", block)
		id := enqueue(t, d, first, "k", nil, jobs.Options{MaxAttempts: 1})
		stop := run(t, first)
		<-started
		stop()
		if got := get(t, d, id); got.State != jobs.Available || got.Attempt != 0 || !got.LeaseUntil.IsZero() ||
			got.Error != "" {
			t.Errorf("%+v", got)
		}
		second := newRunner(d, c, "second", 1)
		jobs.Register(second, "q", "k", func(context.Context, *jobs.Job, any) error { return nil })
		run(t, second)
		if got := finished(t, second, id); got.State != jobs.Succeeded || got.Attempt != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestProgressIsStoredOnceASecondAndAtTheEndAndRenewsTheLease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := newRunner(d, c, "w", 1)
		jobs.Register(r, "q", "k", func(ctx context.Context, job *jobs.Job, _ any) error {
			for _, step := range []struct {
				done   int64
				after  time.Duration
				stored int64
			}{{1, 0, 1}, {2, time.Second / 2, 1}, {3, time.Second / 2, 3}, {4, 0, 3}, {9, 0, 9}} {
				c.advance(step.after)
				if err := job.Progress(ctx, step.done, 9); err != nil {
					return jobs.Permanent(err)
				}
				got, err := jobs.Get(ctx, d, job.ID)
				if err != nil || got.ProgressDone != step.stored || got.ProgressTotal != 9 {
					return jobs.Permanent(
						fmt.Errorf(
							"after %d: %d of %d is stored, want %d: %w", step.done, got.ProgressDone,
							got.ProgressTotal, step.stored, err,
						),
					)
				}
				if step.stored == step.done && !got.LeaseUntil.Equal(c.now().Add(lease)) {
					return jobs.Permanent(fmt.Errorf("after %d: lease until %v", step.done, got.LeaseUntil))
				}
			}
			return nil
		})
		run(t, r)
		if got := finished(t, r, enqueue(t, d, r, "k", nil, jobs.Options{})); got.State != jobs.Succeeded {
			t.Errorf("%+v", got)
		}
	})
}

func TestProgressTellsOfACancelByAnotherReplica(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r, other := newRunner(d, c, "w", 1), newRunner(d, c, "other", 0)
		jobs.Register(r, "q", "k", func(ctx context.Context, job *jobs.Job, _ any) error {
			if err := d.Update(ctx, func(tx *db.Tx) error { return other.Cancel(ctx, tx, job.ID) }); err != nil {
				return jobs.Permanent(err)
			}
			if err := job.Progress(ctx, 1, 0); !errors.Is(err, jobs.ErrCancelled) {
				t.Errorf("Progress: %v", err)
			}
			return ctx.Err()
		})
		run(t, r)
		if got := finished(t, r, enqueue(t, d, r, "k", nil, jobs.Options{})); got.State != jobs.Cancelled {
			t.Errorf("%+v", got)
		}
	})
}

func TestAKindThatNobodyRegisteredStaysAvailable(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		newer, older := newRunner(d, c, "newer", 0), newRunner(d, c, "older", 1)
		done := func(context.Context, *jobs.Job, any) error { return nil }
		jobs.Register(newer, "q", "new", done)
		jobs.Register(newer, "q", "known", done)
		jobs.Register(older, "q", "known", done)
		unknown := enqueue(t, d, newer, "new", nil, jobs.Options{})
		run(t, older)
		finished(t, older, enqueue(t, d, newer, "known", nil, jobs.Options{})) // enqueued later, and yet done
		if got := get(t, d, unknown); got.State != jobs.Available || got.Attempt != 0 {
			t.Errorf("%+v", got)
		}
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := older.Enqueue(t.Context(), tx, "new", nil, jobs.Options{})
			return err
		})
		if err == nil {
			t.Error("a runner enqueues a kind that it does not know")
		}
	})
}

func TestListFiltersAndPagesNewestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		r := newRunner(d, newClock(), "w", 1)
		jobs.Register(r, "q", "a", func(context.Context, *jobs.Job, any) error { return nil })
		jobs.Register(r, "q", "b", func(context.Context, *jobs.Job, any) error { return nil })
		one := enqueue(t, d, r, "a", nil, jobs.Options{})
		two := enqueue(t, d, r, "b", nil, jobs.Options{})
		three := enqueue(t, d, r, "a", nil, jobs.Options{})
		for _, tt := range []struct {
			filter jobs.Filter
			want   []string
		}{
			{jobs.Filter{}, []string{three, two, one}},
			{jobs.Filter{Limit: 2}, []string{three, two}},
			{jobs.Filter{Limit: 2, After: two}, []string{one}},
			{jobs.Filter{Kind: "a", Queue: "q", State: jobs.Available}, []string{three, one}},
			{jobs.Filter{State: jobs.Running}, nil},
			{jobs.Filter{Queue: "other"}, nil},
		} {
			records, err := jobs.List(t.Context(), d, tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, record := range records {
				got = append(got, record.ID)
			}
			if strings.Join(got, " ") != strings.Join(tt.want, " ") {
				t.Errorf("%+v: %v, want %v", tt.filter, got, tt.want)
			}
		}
		if _, err := jobs.Get(t.Context(), d, "none"); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get: %v", err)
		}
	})
}

func TestDeleteFinishedRemovesOldFinishedJobsOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		c := newClock()
		r := newRunner(d, c, "w", 2)
		jobs.Register(r, "q", "k", func(context.Context, *jobs.Job, any) error { return nil })
		run(t, r)
		for range 5 {
			finished(t, r, enqueue(t, d, r, "k", nil, jobs.Options{}))
		}
		c.advance(time.Hour)
		young := enqueue(t, d, r, "k", nil, jobs.Options{})
		finished(t, r, young)
		waiting := enqueue(t, d, r, "k", nil, jobs.Options{RunAt: c.now().Add(time.Hour)})
		if n, err := jobs.DeleteFinished(t.Context(), d, c.now(), 2); err != nil || n != 5 {
			t.Errorf("%d, %v", n, err)
		}
		get(t, d, young)
		get(t, d, waiting)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	r := newRunner(d, newClock(), "w", 0)
	jobs.Register(r, "q", "k", func(context.Context, *jobs.Job, any) error { return nil })
	id := enqueue(t, d, r, "k", nil, jobs.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ctx, id); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := r.Wait(t.Context(), "none"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestArgsAreBounded(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	r := newRunner(d, newClock(), "w", 0)
	jobs.Register(r, "q", "k", func(context.Context, *jobs.Job, string) error { return nil })
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := r.Enqueue(t.Context(), tx, "k", strings.Repeat("x", jobs.MaxArgs), jobs.Options{})
		return err
	})
	if !fault.Is(err, fault.TooLarge) {
		t.Errorf("%v", err)
	}
}

// Two replicas whose clocks differ by 20 s, with leases of 10 s: neither takes the other's job.
func TestReplicasWhoseClocksDifferDoNotTakeEachOthersJobs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		var runs atomic.Int64
		began := make(chan struct{}, 10)
		release := make(chan struct{})
		runner := func(worker string, skew time.Duration) *jobs.Runner {
			r := jobs.New(jobs.Config{
				DB:     d,
				Queues: map[string]int{"q": 1},
				Lease:  10 * time.Second,
				Poll:   2 * time.Millisecond,
				Worker: worker,
				Log:    slog.New(slog.DiscardHandler),
				Now:    func() time.Time { return time.Now().Add(skew) },
				Rand:   func() float64 { return 0 },
			})
			jobs.Register(r, "q", "slow", func(context.Context, *jobs.Job, struct{}) error {
				runs.Add(1)
				began <- struct{}{}
				<-release
				return nil
			})
			return r
		}
		behind, ahead := runner("behind", -10*time.Second), runner("ahead", 10*time.Second)
		var id string
		if err := d.Update(t.Context(), func(tx *db.Tx) (err error) {
			id, err = behind.Enqueue(t.Context(), tx, "slow", struct{}{}, jobs.Options{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer run(t, behind)()
		until(t, d, id, func(j jobs.Record) bool { return j.State == jobs.Running })
		defer run(t, ahead)()
		// The replica that is ahead checks for expired leases before it takes this job.
		if err := d.Update(t.Context(), func(tx *db.Tx) (err error) {
			_, err = ahead.Enqueue(t.Context(), tx, "slow", struct{}{}, jobs.Options{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			<-began
		}
		if j := get(t, d, id); j.Worker != "behind" || j.Attempt != 1 || runs.Load() != 2 {
			t.Errorf("%+v, %d runs", j, runs.Load())
		}
		close(release)
		until(t, d, id, func(j jobs.Record) bool { return j.State == jobs.Succeeded })
	})
}
