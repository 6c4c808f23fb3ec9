package operation_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/operation"
)

var tables = dbtest.Migrations{"jobs": jobs.Migrations(), "operations": operation.Migrations()}

// service is a service whose operations paint things.
type service struct {
	*testing.T
	*operation.Runner
	db      *db.DB
	ending  context.Context
	end     context.CancelFunc // ends waiting
	work    chan func(ctx context.Context, progress func(float64)) error
	cleaned chan string

	mu sync.Mutex
	at time.Time
}

type paint struct{ Thing string }

const patience = 20 * time.Second

func newService(t *testing.T, d *db.DB) *service {
	s := &service{
		T: t, db: d, at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), cleaned: make(chan string, 10),
		work: make(chan func(context.Context, func(float64)) error, 10),
	}
	ending, end := context.WithCancel(t.Context())
	s.ending, s.end = ending, end
	s.Runner = operation.New(operation.Config{
		DB: d, Log: slog.New(slog.DiscardHandler), Now: s.now, Workers: 2, WorkersOfTenant: 1, Ending: ending,
	})
	operation.Register(s.Runner, "paint", operation.Kind[paint]{
		Run: func(ctx context.Context, _ paint, progress func(float64)) error { return (<-s.work)(ctx, progress) },
		Cancelled: func(_ context.Context, a paint) error {
			s.cleaned <- a.Thing
			return nil
		},
	})
	return s
}

func (s *service) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *service) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// run runs operations until the returned function is called, or the test ends.
func (s *service) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Runner.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	s.Cleanup(stop)
	return stop
}

func (s *service) begin(ctx context.Context, thing string) (operation.Operation, error) {
	o := operation.Operation{Kind: "paint", Tenant: "acme", Actor: "ann"}
	err := s.db.Update(ctx, func(tx *db.Tx) error { return s.Begin(ctx, tx, &o, paint{thing}) })
	return o, err
}

func (s *service) begun(ctx context.Context, thing string) operation.Operation {
	s.Helper()
	o, err := s.begin(ctx, thing)
	if err != nil {
		s.Fatal(err)
	}
	return o
}

func (s *service) await(o operation.Operation) operation.Operation {
	s.Helper()
	if err := s.Await(s.Context(), &o, patience); err != nil {
		s.Fatal(err)
	}
	return o
}

func (s *service) get(id string) (o operation.Operation, err error) {
	return o, operation.Get(s.Context(), s.db, id, &o)
}

var words = operation.States[string]{
	Queued: "pending", Running: "in progress", Succeeded: "done", Failed: "broken", Cancelled: "stopped",
}

func TestAnOperationIsFollowedFromItsBeginToItsEnd(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		o := s.begun(t.Context(), "fence")
		if words.Of(&o) != "pending" || o.Progress() != 0 || o.Actor != "ann" || o.CreatedAt.Time != s.now() {
			t.Errorf("begun: %+v", o)
		}
		half, end := make(chan struct{}), make(chan struct{})
		s.work <- func(_ context.Context, progress func(float64)) error {
			progress(0.5)
			close(half)
			<-end
			return nil
		}
		s.run()
		<-half
		got, err := s.get(o.ID)
		if err != nil || words.Of(&got) != "in progress" || got.Progress() != 0.5 {
			t.Errorf("under way: %+v, %v", got, err)
		}
		close(end)
		o = s.await(o)
		if words.Of(&o) != "done" || o.Progress() != 1 || o.Actor != "ann" || o.Tenant != "acme" {
			t.Errorf("ended: %+v", o)
		}
		if _, err := s.get("none"); !fault.Is(err, fault.NotFound) {
			t.Errorf("one that there is not: %v", err)
		}
	})
}

func TestWhatFailsFailsForGoodWithoutInnerDetails(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	inner, plain := s.begun(t.Context(), "a"), s.begun(t.Context(), "b")
	s.work <- func(context.Context, func(float64)) error { return errors.New("open /secret: no such file") }
	s.work <- func(context.Context, func(float64)) error { return fault.New(fault.Conflict, "the paint is dry") }
	s.run()
	for _, c := range []struct {
		o          operation.Operation
		want, code string
	}{
		{inner, "internal error; the service's log has the details under operation " + inner.ID, "internal"},
		{plain, "the paint is dry", "conflict"},
	} {
		if o := s.await(c.o); words.Of(&o) != "broken" || o.Job.Error != c.want || o.Job.ErrorCode != c.code ||
			o.Job.Attempt != 1 {
			t.Errorf("%+v", o.Job)
		}
	}
}

func TestWhatTheEndOfTheProcessBreaksOffIsDoneAgain(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	o := s.begun(t.Context(), "fence")
	begun := make(chan struct{})
	brokenOff := make(chan bool, 1)
	s.work <- func(ctx context.Context, _ func(float64)) error {
		close(begun)
		<-ctx.Done()
		brokenOff <- operation.BrokenOff(ctx)
		return ctx.Err()
	}
	stop := s.run()
	<-begun
	stop()
	if !<-brokenOff {
		t.Error("it does not know that it is broken off")
	}
	s.work <- func(context.Context, func(float64)) error { return nil }
	s.run()
	if o = s.await(o); words.Of(&o) != "done" {
		t.Errorf("%+v", o.Job)
	}
}

func (s *service) cancel(o *operation.Operation) {
	s.Helper()
	var ended bool
	err := s.db.Update(s.Context(), func(tx *db.Tx) (err error) {
		ended, err = s.Cancel(s.Context(), tx, o.ID)
		return err
	})
	if err == nil {
		err = operation.Get(s.Context(), s.db, o.ID, o)
	}
	if err == nil && ended {
		err = s.CleanUp(s.Context(), o)
	}
	if err != nil {
		s.Fatal(err)
	}
}

func TestACancelledOperationIsCleanedUpOnceByWhoKnowsOfIt(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	waiting := s.begun(t.Context(), "waiting")
	s.cancel(&waiting)
	if words.Of(&waiting) != "stopped" || len(s.cleaned) != 1 || <-s.cleaned != "waiting" {
		t.Errorf("%+v; %d were cleaned up", waiting.Job, len(s.cleaned))
	}
	running := s.begun(t.Context(), "running")
	begun := make(chan struct{})
	s.work <- func(ctx context.Context, _ func(float64)) error {
		close(begun)
		<-ctx.Done()
		if operation.BrokenOff(ctx) {
			t.Error("it will not be taken up again")
		}
		return ctx.Err()
	}
	s.run()
	<-begun
	s.cancel(&running)
	if running = s.await(running); words.Of(&running) != "stopped" || len(s.cleaned) > 0 {
		t.Errorf("%+v; %d were cleaned up", running.Job, len(s.cleaned))
	}
}

func TestNobodyWaitsForAnOperationWhenTheServiceEnds(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	o := s.begun(t.Context(), "fence")
	s.end()
	if o = s.await(o); words.Of(&o) != "pending" {
		t.Errorf("%+v", o.Job)
	}
}

func key(t *testing.T, caller, word string, request any) operation.Key {
	t.Helper()
	k, err := operation.NewKey(caller, word, request)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestARequestThatIsRepeatedWithItsKeyFindsItsOperationAlsoAfterItsEnd(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		k := key(t, "ann", "word", paint{"fence"})
		finds := func(k operation.Key, want string) {
			t.Helper()
			if id, err := s.Repeated(t.Context(), k); err != nil || id != want {
				t.Errorf("%q, want %q, %v", id, want, err)
			}
		}
		finds(k, "")
		o := s.begun(operation.WithKey(t.Context(), k), "fence")
		s.begun(t.Context(), "fence") // without a key, each is another one
		s.begun(t.Context(), "fence")
		finds(k, o.ID)
		finds(key(t, "bob", "word", paint{"fence"}), "") // somebody else's
		finds(key(t, "ann", "other", paint{"fence"}), "")
		finds(key(t, "ann", "", paint{"fence"}), "")
		finds(operation.Key{}, "")
		id, err := s.Repeated(t.Context(), key(t, "ann", "word", paint{"house"}))
		if f := fault.From(err); f == nil || f.Kind != fault.Conflict || f.Code != "idempotency_key_reused" || id != "" {
			t.Errorf("other arguments: %q, %v", id, err)
		}
		for range 3 {
			s.work <- func(context.Context, func(float64)) error { return nil }
		}
		s.run()
		s.await(o)
		finds(k, o.ID)
		s.advance(operation.Life + time.Second)
		if err := s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		finds(k, "")
	})
}

func TestTwoRequestsWithOneKeyAtATimeBeginOneOperation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		ctx := operation.WithKey(t.Context(), key(t, "ann", "word", paint{"fence"}))
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.begin(ctx, "fence")
				errs <- err
			}()
		}
		one, two := <-errs, <-errs
		if one != nil {
			one, two = two, one
		}
		if one != nil || fault.From(two).PublicCode() != "idempotency_key_in_use" {
			t.Errorf("%v and %v", one, two)
		}
		if open, err := jobs.List(t.Context(), d, jobs.Filter{}); err != nil || len(open) != 1 {
			t.Errorf("%d jobs, %v", len(open), err)
		}
	})
}

// Only memory knows of the first request until it is stored, and each replica has its own.
func TestTwoReplicasWithOneKeyAtATimeBeginOneOperation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		one, two := newService(t, d), newService(t, d)
		get := func(_ context.Context, id string) (operation.Operation, error) { return one.get(id) }
		once := func(s *service, begin func(context.Context) (operation.Operation, error)) operation.Operation {
			t.Helper()
			o, err := operation.Once(t.Context(), s.Runner, "ann", "word", paint{"fence"}, get, begin)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		var first operation.Operation
		second := once(two, func(context.Context) (operation.Operation, error) {
			first = once(one, func(ctx context.Context) (operation.Operation, error) { return one.begin(ctx, "fence") })
			return operation.Operation{}, fault.New(fault.Conflict, "there is a fence already")
		})
		if first.ID == "" || second.ID != first.ID {
			t.Errorf("%+v and %+v", first, second)
		}
	})
}

func TestAnOperationIsForgottenADayAfterItsEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	ended := s.begun(t.Context(), "a")
	s.cancel(&ended)
	open := s.begun(t.Context(), "b")
	for _, c := range []struct {
		after time.Duration
		gone  bool
	}{{operation.Life, false}, {time.Second, true}, {1000 * operation.Life, true}} {
		s.advance(c.after)
		if err := s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.get(ended.ID); fault.Is(err, fault.NotFound) != c.gone {
			t.Errorf("one that has ended: %v", err)
		}
		if _, err := s.get(open.ID); err != nil {
			t.Errorf("one that has not: %v", err)
		}
	}
}

// painting is the row of a service that stores more than the kit does.
type painting struct {
	operation.Operation
	Colour string `db:"colour"`
}

func TestAServiceStoresMoreOfItsOperations(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		p := painting{operation.Operation{Kind: "paint", Actor: "ann"}, "green"}
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "ALTER TABLE operations ADD COLUMN colour TEXT NOT NULL DEFAULT ''")
			return errors.Join(err, s.Begin(t.Context(), tx, &p, paint{"fence"}))
		})
		if err != nil {
			t.Fatal(err)
		}
		var got painting
		if err := operation.Get(t.Context(), d, p.ID, &got); err != nil || got != p || got.Colour != "green" {
			t.Errorf("%+v, want %+v, %v", got, p, err)
		}
	})
}
