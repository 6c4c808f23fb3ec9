package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// box is an outbox on a file, which can be closed and opened again.
type box struct {
	*outbox.Outbox
	t     testing.TB
	dir   string
	max   int64
	drop  bool
	close func()
}

func open(t testing.TB, max int64, drop bool) *box {
	t.Helper()
	b := &box{t: t, dir: t.TempDir(), max: max, drop: drop}
	b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *box) open() {
	b.t.Helper()
	d, err := store.Open(context.Background(), b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.Outbox, err = outbox.New(context.Background(), outbox.Config{DB: d, MaxBytes: b.max, DropOldest: b.drop,
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Registry: prometheus.NewRegistry()}); err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { b.Run(ctx) })
	b.close = func() {
		stop()
		work.Wait()
		if err := d.Close(); err != nil {
			b.t.Error(err)
		}
	}
}

func event(id string, size int) outbox.Event {
	return outbox.Event{ID: id, Topic: "t", Payload: []byte(`"` + strings.Repeat("x", size) + `"`)}
}

func (b *box) ids() []string {
	b.t.Helper()
	all, err := b.Next(b.t.Context(), 1_000_000, 1<<40)
	if err != nil {
		b.t.Fatal(err)
	}
	ids := []string{}
	for _, e := range all {
		ids = append(ids, e.EventID)
	}
	return ids
}

func (b *box) stats() outbox.Stats {
	b.t.Helper()
	s, err := b.Stats(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// The model is a list; what is done to the outbox at random is done to it, too.
func TestTheOutboxIsAListWhateverIsDoneToItAndHoweverOftenItIsReopened(t *testing.T) {
	t.Parallel()
	const limit, size = 1 << 20, 10 << 10
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop oldest %v", drop), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // a fixed seed: every run tries the same
			b := open(t, limit, drop)
			var model []string
			var accepted, forwarded, dropped, refused int64
			perEvent := int64(0)
			next := 0
			for range 120 {
				switch r.IntN(10) {
				case 0: // a batch, with an id that may be stored already
					var events []outbox.Event
					for range 1 + r.IntN(30) {
						events = append(events, event(fmt.Sprintf("e%05d", next), size))
						next++
					}
					if len(model) > 0 {
						events = append(events, event(model[r.IntN(len(model))], size))
					}
					receipts, err := b.Accept(t.Context(), events)
					if fault.Is(err, fault.StorageFailed) && !drop {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					for i, receipt := range receipts {
						if duplicate := slices.Contains(model, events[i].ID); duplicate != receipt.Duplicate && !drop {
							t.Fatalf("%s: duplicate is %v", events[i].ID, receipt.Duplicate)
						}
						if !receipt.Duplicate {
							model = append(model, events[i].ID)
							accepted++
						}
					}
				case 1: // acknowledge the beginning
					batch, err := b.Next(t.Context(), 1+r.IntN(20), 1<<30)
					if err != nil {
						t.Fatal(err)
					}
					if err := b.Acknowledge(t.Context(), batch); err != nil {
						t.Fatal(err)
					}
					model, forwarded = model[len(batch):], forwarded+int64(len(batch))
				case 2: // refuse one of the beginning
					batch, err := b.Next(t.Context(), 5, 1<<30)
					if err != nil {
						t.Fatal(err)
					}
					if len(batch) > 0 {
						i := r.IntN(len(batch))
						if err := b.Refuse(t.Context(), batch[i], "bad"); err != nil {
							t.Fatal(err)
						}
						model, refused = slices.Delete(model, i, i+1), refused+1
					}
				case 3:
					if r.IntN(10) == 0 {
						b.close()
						b.open()
					}
				default:
					id := fmt.Sprintf("e%05d", next)
					next++
					_, err := b.Accept(t.Context(), []outbox.Event{event(id, size)})
					if fault.Is(err, fault.StorageFailed) && !drop {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					model, accepted = append(model, id), accepted+1
				}
				got := b.ids()
				if drop && len(got) < len(model) { // the oldest went
					dropped += int64(len(model) - len(got))
					model = model[len(model)-len(got):]
				}
				if !slices.Equal(got, model) {
					t.Fatalf("got %v, want %v", got, model)
				}
				s := b.stats()
				if perEvent == 0 && s.Events > 0 {
					perEvent = s.Bytes / s.Events
				}
				if s.Events != int64(len(model)) || s.Bytes != perEvent*s.Events || s.Bytes > limit || s.Accepted != accepted || s.Forwarded != forwarded || s.Dropped != dropped || s.Refused != refused {
					t.Fatalf("stats %+v; model: %d events, %d accepted, %d forwarded, %d dropped, %d refused", s, len(model), accepted, forwarded, dropped, refused)
				}
			}
			if drop && dropped == 0 {
				t.Error("nothing was dropped; the test tries too little")
			}
		})
	}
}

func TestAFullOutboxRefusesUntilThereIsRoomAndLosesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, 100<<10, false)
	var accepted []string
	for i := 0; ; i++ {
		id := fmt.Sprintf("e%d", i)
		_, err := b.Accept(t.Context(), []outbox.Event{event(id, 10<<10)})
		if err != nil {
			if f := fault.From(err); f.Kind != fault.StorageFailed || f.Code != "outbox_full" {
				t.Fatal(err)
			}
			break
		}
		accepted = append(accepted, id)
	}
	if got := b.ids(); !slices.Equal(got, accepted) || len(got) < 9 {
		t.Fatalf("stored %v, accepted %v", got, accepted)
	}
	batch, err := b.Next(t.Context(), 1, 1)
	if err != nil || len(batch) != 1 {
		t.Fatalf("a batch for which one event is too large: %d events, %v", len(batch), err)
	}
	if err := b.Acknowledge(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Accept(t.Context(), []outbox.Event{event("late", 10<<10)}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := b.Accept(t.Context(), []outbox.Event{event("huge", 200<<10)}); !fault.Is(err, fault.StorageFailed) {
		t.Errorf("an event larger than the outbox: %v", err)
	}
}

func TestEventsOfOneProgramKeepTheirOrderAmongManyPrograms(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<30, false)
	const programs, each = 16, 10
	var senders sync.WaitGroup
	for p := range programs {
		senders.Go(func() {
			for i := range each {
				if _, err := b.Accept(t.Context(), []outbox.Event{event(fmt.Sprintf("%02d-%03d", p, i), 10)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	last := map[string]string{}
	for _, id := range b.ids() {
		if id <= last[id[:2]] {
			t.Fatalf("%s comes after %s", id, last[id[:2]])
		}
		last[id[:2]] = id
	}
	if s := b.stats(); s.Events != programs*each {
		t.Errorf("%d events", s.Events)
	}
}

func TestANumberIsNotUsedAgainForAnEventThatCameWhileABatchWasUnderWay(t *testing.T) {
	t.Parallel()
	b := open(t, 60<<10, true)
	send := func(id string) {
		t.Helper()
		if _, err := b.Accept(t.Context(), []outbox.Event{event(id, 10<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		send(fmt.Sprintf("old-%d", i))
	}
	batch, err := b.Next(t.Context(), 100, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // which drops all of the batch
		send(fmt.Sprintf("new-%d", i))
	}
	if err := b.Acknowledge(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if got := b.ids(); len(got) != 5 || got[0] != "new-0" {
		t.Errorf("left: %v", got)
	}
	if s := b.stats(); s.Events != 5 {
		t.Errorf("%+v", s)
	}
}

func TestTheTableOfRefusedEventsIsBounded(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<30, false)
	for i := range 101 {
		if _, err := b.Accept(t.Context(), []outbox.Event{event(fmt.Sprint(i), 5<<10)}); err != nil {
			t.Fatal(err)
		}
		batch, err := b.Next(t.Context(), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Refuse(t.Context(), batch[0], fmt.Sprintf("reason %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	s := b.stats()
	if s.Refused != 101 || s.Events != 0 || s.Bytes != 0 || len(s.LastRefused) != 10 || s.LastRefused[0].Reason != "reason 100" {
		t.Errorf("%+v", s)
	}
	b.close()
	d, err := store.Open(t.Context(), b.dir)
	if err != nil {
		t.Fatal(err)
	}
	var kept, longest int
	if err := errors.Join(d.Get(t.Context(), &kept, "SELECT COUNT(*) FROM refused_events"), d.Get(t.Context(), &longest, "SELECT MAX(LENGTH(payload)) FROM refused_events"), d.Close()); err != nil {
		t.Fatal(err)
	}
	if kept != 100 || longest > 4<<10 {
		t.Errorf("%d kept, the longest of %d bytes", kept, longest)
	}
	b.open()
}

func TestWhatTheControlPlaneWouldRefuseIsRefusedAtAcceptance(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<30, false)
	for name, c := range map[string]struct {
		event outbox.Event
		field string
	}{
		"no topic":         {outbox.Event{Payload: []byte("1")}, "topic"},
		"long topic":       {outbox.Event{Topic: strings.Repeat("t", 257), Payload: []byte("1")}, "topic"},
		"control in topic": {outbox.Event{Topic: "a\nb", Payload: []byte("1")}, "topic"},
		"no payload":       {outbox.Event{Topic: "t"}, "payload"},
		"large payload":    {event("", 1<<20), "payload"},
		"no JSON":          {outbox.Event{Topic: "t", Payload: []byte("{")}, "payload"},
		"no UTF-8":         {outbox.Event{Topic: "t", Payload: []byte("\"\xff\"")}, "payload"},
		"long id":          {event(strings.Repeat("i", 129), 1), "event_id"},
		"control in id":    {event("a\x00", 1), "event_id"},
		"credentials":      {outbox.Event{Topic: "t", Payload: []byte("1"), Headers: map[string]string{"Authorization": "x"}}, "headers.Authorization"},
		"year":             {outbox.Event{Topic: "t", Payload: []byte("1"), Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, "event_time"},
	} {
		_, err := b.Accept(t.Context(), []outbox.Event{c.event})
		if f := fault.From(err); f == nil || f.Field != c.field || f.Kind != fault.Invalid && f.Kind != fault.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		_, err = b.Accept(t.Context(), []outbox.Event{event("", 1), c.event})
		if f := fault.From(err); f == nil || f.Field != "events.1."+c.field {
			t.Errorf("%s in a batch: %v", name, err)
		}
	}
	for _, n := range []int{0, outbox.MaxBatch + 1} {
		if _, err := b.Accept(t.Context(), make([]outbox.Event, n)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d events: %v", n, err)
		}
	}
	if got := b.ids(); len(got) != 0 {
		t.Errorf("stored: %v", got)
	}
}

func TestDroppedEventsAreToldOnce(t *testing.T) {
	t.Parallel()
	b := open(t, 20<<10, true)
	for i := range 10 {
		if _, err := b.Accept(t.Context(), []outbox.Event{event(fmt.Sprint(i), 5<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	n, err := b.Untold(t.Context())
	if err != nil || n == 0 || n != b.stats().Dropped {
		t.Fatalf("untold %d, %v; %+v", n, err, b.stats())
	}
	if err := b.Told(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Untold(t.Context()); n != 0 || err != nil {
		t.Errorf("untold after telling: %d, %v", n, err)
	}
}
