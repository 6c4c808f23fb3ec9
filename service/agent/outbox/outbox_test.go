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

	"github.com/mainstay-infra/mainstay/kit/db"
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
				if s.Events != int64(len(model)) || s.Bytes != perEvent*s.Events || s.Bytes > limit ||
					s.Accepted != accepted ||
					s.Forwarded != forwarded ||
					s.Dropped != dropped ||
					s.Refused != refused {
					t.Fatalf(
						"stats %+v; model: %d events, %d accepted, %d forwarded, %d dropped, %d refused", s,
						len(model), accepted, forwarded, dropped, refused,
					)
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
}

func TestEventsThatNeverFitAreRefusedWithTheirSizeTheLimitAndItsSetting(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop=%t", drop), func(t *testing.T) {
			t.Parallel()
			b := open(t, 100<<10, drop)
			if _, err := b.Accept(t.Context(), []outbox.Event{event("stored", 10<<10)}); err != nil {
				t.Fatal(err)
			}
			for size, events := range map[string][]outbox.Event{
				"204937": {event("huge", 200<<10)},
				"123148": {event("a", 60<<10), event("b", 60<<10)},
			} {
				_, err := b.Accept(t.Context(), events)
				f := fault.From(err)
				if f.Kind != fault.StorageFailed || f.Code != "outbox_too_small" {
					t.Fatalf("%v", err)
				}
				for _, part := range []string{size, "102400", "--outbox-max-size"} {
					if !strings.Contains(f.Message, part) {
						t.Errorf("%q does not name %s", f.Message, part)
					}
				}
			}
			if got := b.ids(); !slices.Equal(got, []string{"stored"}) {
				t.Errorf("stored: %v", got)
			}
		})
	}
}

func TestAFullOutboxAnswersDuplicatesAndDropsNothingForThem(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop=%t", drop), func(t *testing.T) {
			t.Parallel()
			b := open(t, 100<<10, drop)
			var stored []string
			for i := range 9 {
				id := fmt.Sprintf("e%d", i)
				if _, err := b.Accept(t.Context(), []outbox.Event{event(id, 10<<10)}); err != nil {
					t.Fatal(err)
				}
				stored = append(stored, id)
			}
			receipts, err := b.Accept(t.Context(), []outbox.Event{event("e0", 10<<10), event("e8", 10<<10)})
			if err != nil || !receipts[0].Duplicate || !receipts[1].Duplicate {
				t.Errorf("duplicates: %+v, %v", receipts, err)
			}
			if got := b.ids(); !slices.Equal(got, stored) {
				t.Errorf("stored %v, want %v", got, stored)
			}
			// e0 is the oldest, so room for new is made at its cost, and it is stored again.
			receipts, err = b.Accept(t.Context(), []outbox.Event{event("e0", 10<<10), event("new", 15<<10)})
			want := append(stored[2:], "e0", "new")
			if !drop {
				want = stored
				if !fault.Is(err, fault.StorageFailed) {
					t.Errorf("beyond the limit: %+v, %v", receipts, err)
				}
			} else if err != nil || receipts[0].Duplicate || receipts[1].Duplicate {
				t.Errorf("with the oldest dropped: %+v, %v", receipts, err)
			}
			if got := b.ids(); !slices.Equal(got, want) {
				t.Errorf("stored %v, want %v", got, want)
			}
			if s := b.stats(); s.Bytes > 100<<10 {
				t.Errorf("%d bytes are stored, which is beyond the limit", s.Bytes)
			}
		})
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
				if _, err := b.Accept(
					t.Context(), []outbox.Event{event(fmt.Sprintf("%02d-%03d", p, i), 10)},
				); err != nil {
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

func (b *box) refuse(id, reason string, size int) {
	b.t.Helper()
	if _, err := b.Accept(b.t.Context(), []outbox.Event{event(id, size)}); err != nil {
		b.t.Fatal(err)
	}
	batch, err := b.Next(b.t.Context(), 1, 1)
	if err != nil || len(batch) != 1 || batch[0].EventID != id {
		b.t.Fatalf("%+v, %v", batch, err)
	}
	if err := b.Refuse(b.t.Context(), batch[0], reason); err != nil {
		b.t.Fatal(err)
	}
}

func TestRefusedEventsAreKeptWholeUpToABound(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<30, false)
	const size = 1 << 19
	for i := range 70 { // of half a megabyte, of which 63 fit into 32 MiB
		b.refuse(fmt.Sprint(i), fmt.Sprintf("reason %d", i), size)
	}
	s := b.stats()
	if s.Refused != 70 || s.SetAside != 63 || s.Discarded != 7 || s.Events != 0 || s.Bytes != 0 ||
		len(s.LastRefused) != 10 ||
		s.LastRefused[0].Reason != "reason 69" {
		t.Errorf("%+v", s)
	}
	kept, err := b.Refused(t.Context(), 0, 1000)
	if err != nil || len(kept) != 63 || kept[0].EventID != "69" || kept[62].EventID != "7" || kept[62].Bytes < size ||
		!kept[62].Whole {
		t.Errorf("%d kept, %v", len(kept), err)
	}
	if rest, err := b.Refused(t.Context(), kept[61].Seq, 1000); err != nil || len(rest) != 1 || rest[0].EventID != "7" {
		t.Errorf("the last page: %+v, %v", rest, err)
	}
}

func TestARefusedEventIsSentAgainOrDiscardedAsAPersonSays(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<20, false)
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if _, err := b.Accept(
		t.Context(),
		[]outbox.Event{
			{ID: "a", Topic: "t/a", Payload: []byte(`{"x":1}`), Headers: map[string]string{"X-A": "b"}, Time: at},
		},
	); err != nil {
		t.Fatal(err)
	}
	before, err := b.Next(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Refuse(t.Context(), before[0], "no"); err != nil {
		t.Fatal(err)
	}
	b.refuse("b", "no", 10)
	b.refuse("c", "no", 10)
	if _, err := b.Accept(t.Context(), []outbox.Event{event("waiting", 10)}); err != nil {
		t.Fatal(err)
	}
	for _, try := range []func(context.Context, []string) (int64, error){b.Retry, b.Discard} {
		if n, err := try(t.Context(), []string{"b", "nobody"}); !fault.Is(err, fault.NotFound) || n != 0 {
			t.Errorf("%d, %v", n, err)
		}
	}
	if s := b.stats(); s.SetAside != 3 {
		t.Fatalf("a request with an unknown id changed something: %+v", s)
	}
	if n, err := b.Discard(t.Context(), []string{"b"}); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	b.close()
	b.open()
	if n, err := b.Retry(t.Context(), nil); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if got := b.ids(); !slices.Equal(got, []string{"waiting", "a", "c"}) {
		t.Errorf("%v", got)
	}
	after, err := b.Next(t.Context(), 3, 1<<20)
	if err != nil || after[1].Payload != before[0].Payload || after[1].Topic != "t/a" ||
		after[1].Headers.V["X-A"] != "b" ||
		!after[1].EventTime.Equal(at) ||
		after[1].Bytes != before[0].Bytes {
		t.Errorf("%+v became %+v, %v", before[0], after[1], err)
	}
	if s := b.stats(); s.SetAside != 0 || s.Events != 3 || s.Bytes < after[1].Bytes {
		t.Errorf("%+v", s)
	}
	for i := 0; ; i++ { // a full outbox takes none back
		if _, err := b.Accept(t.Context(), []outbox.Event{event(fmt.Sprint("fill", i), 10<<10)}); err != nil {
			break
		}
	}
	batch, err := b.Next(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Refuse(t.Context(), batch[0], "no"); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if _, err := b.Accept(t.Context(), []outbox.Event{event(fmt.Sprint("brim", i), 1)}); err != nil {
			break
		}
	}
	if _, err := b.Retry(t.Context(), nil); !fault.Is(err, fault.StorageFailed) || b.stats().SetAside != 1 {
		t.Errorf("into a full outbox: %v, %+v", err, b.stats())
	}
}

func TestAnIDThatIsRepeatedWhileItsEventIsSetAsideIsADuplicateAndChangesNothing(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop=%t", drop), func(t *testing.T) {
			t.Parallel()
			b := open(t, 100<<10, drop)
			b.refuse("again", "no", 10)
			var stored []string
			for i := range 9 { // the outbox is full, so the repeated event gets no room either
				id := fmt.Sprintf("e%d", i)
				if _, err := b.Accept(t.Context(), []outbox.Event{event(id, 10<<10)}); err != nil {
					t.Fatal(err)
				}
				stored = append(stored, id)
			}
			for _, batch := range [][]outbox.Event{
				{event("again", 10<<10)}, {event("again", 10<<10), event("e8", 10<<10)},
			} {
				receipts, err := b.Accept(t.Context(), batch)
				if err != nil || !receipts[0].Duplicate {
					t.Fatalf("%+v, %v", receipts, err)
				}
			}
			if got := b.ids(); !slices.Equal(got, stored) {
				t.Errorf("stored %v, want %v", got, stored)
			}
			if s := b.stats(); s.SetAside != 1 || s.LastRefused[0].Bytes > 1<<10 || s.Dropped != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Older versions accepted the id of an event that was set aside, so both can be in a data folder.
func TestRetryAndASecondRefusalDropNoEventOfAnIDThatIsStoredTwice(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<20, false)
	b.refuse("twice", "first", 1)
	b.close()
	d, err := store.Open(t.Context(), b.dir)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO outbox
			(event_id, topic, payload, headers, event_time, accepted_at, bytes) VALUES ('twice', 't', '"second"', '{}', 1, 1, 1)`)
		return err
	})
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	b.open()
	for _, ids := range [][]string{nil, {"twice"}} {
		if n, err := b.Retry(t.Context(), ids); n != 0 || err != nil || b.stats().SetAside != 1 {
			t.Errorf("%v: %d moved, %v, %+v", ids, n, err, b.stats())
		}
	}
	waiting, err := b.Next(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Refuse(t.Context(), waiting[0], "second"); err != nil {
		t.Fatal(err)
	}
	if s := b.stats(); s.SetAside != 2 {
		t.Errorf("after the second refusal: %+v", s)
	}
	for left := int64(1); left >= 0; left-- { // one after the other, since only one of them can wait
		if n, err := b.Retry(t.Context(), nil); n != 1 || err != nil || b.stats().SetAside != left {
			t.Errorf("%d moved, %v, %+v", n, err, b.stats())
		}
		waiting, err := b.Next(t.Context(), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Acknowledge(t.Context(), waiting); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.stats(); s.Forwarded != 2 {
		t.Errorf("%+v", s)
	}
}

func TestWhatAnOlderVersionKeptOfRefusedEventsIsShownButNotSent(t *testing.T) {
	t.Parallel()
	b := open(t, 1<<20, false)
	b.refuse("new", "no", 10)
	b.close()
	d, err := store.Open(t.Context(), b.dir)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Update(t.Context(), func(tx *db.Tx) error { // as version 1 of the tables did
		_, err := tx.Exec(
			t.Context(),
			"INSERT INTO refused_events (event_id, topic, payload, reason, refused_at) VALUES ('old', 't', '{\"cut', 'no', 1)",
		)
		return err
	})
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	b.open()
	if list, err := b.Refused(
		t.Context(), 0, 10,
	); err != nil || len(list) != 2 || list[0].EventID != "old" || list[0].Whole ||
		!list[1].Whole {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := b.Retry(t.Context(), []string{"old"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if n, err := b.Retry(t.Context(), nil); err != nil || n != 1 || !slices.Equal(b.ids(), []string{"new"}) {
		t.Errorf("%d, %v, %v", n, err, b.ids())
	}
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
		_, err := b.AcceptOne(t.Context(), c.event)
		if f := fault.From(err); f == nil || f.Field != c.field || f.Kind != fault.Invalid && f.Kind != fault.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		_, err = b.Accept(t.Context(), []outbox.Event{c.event})
		if f := fault.From(err); f == nil || f.Field != "events.0."+c.field {
			t.Errorf("%s in a batch of one: %v", name, err)
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
