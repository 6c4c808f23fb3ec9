package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

func TestAnInboxHoldsAWindowAndNoByteMore(t *testing.T) {
	t.Parallel()
	in := wire.NewInbox()
	chunk := make([]byte, wire.MaxChunk)
	for range wire.Window / wire.MaxChunk {
		if err := in.Put(wire.Output, chunk); err != nil {
			t.Fatal(err)
		}
	}
	_, data, err := in.Take(t.Context())
	if err != nil || len(data) != wire.Window {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if err := in.Put(wire.Output, chunk[:1]); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("taken, but not consumed: %v", err)
	}
	in = wire.NewInbox()
	in.Drop()
	for range wire.Window / wire.MaxChunk {
		if err := in.Put(wire.Output, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Put(wire.Output, chunk[:1]); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("one that drops: %v", err)
	}
}

func TestAnInboxGivesEverythingBeforeItsEnd(t *testing.T) {
	t.Parallel()
	in := wire.NewInbox()
	_ = in.Put(wire.Output, []byte("out"))
	_ = in.Put(wire.Errors, []byte("err"))
	in.End([]byte(`1`))
	if err := in.Put(wire.Output, []byte("x")); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("data after the end: %v", err)
	}
	for _, want := range []string{"out", "err"} {
		if _, data, err := in.Take(t.Context()); err != nil || string(data) != want {
			t.Errorf("%q, %v, want %q", data, err, want)
		}
	}
	if _, _, err := in.Take(t.Context()); err != io.EOF || string(in.Trailer()) != "1" {
		t.Errorf("%v, %s", err, in.Trailer())
	}
}

func TestCreditIsOnlyForWhatWasSent(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 0, -1, wire.Window} {
		if err := wire.NewBudget().Add(n); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("credit of %d: %v", n, err)
		}
	}
}

func TestCopyStopsAtTheWindowUntilThereIsCredit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, budget := wire.NewSender(), wire.NewBudget()
		var sent bytes.Buffer
		go func() { _ = s.Run(&sent) }()
		defer s.Stop()
		done := make(chan error, 1)
		go func() {
			_, err := s.Copy(t.Context(), 1, wire.Output, strings.NewReader(strings.Repeat("x", wire.Window+1)), budget)
			done <- err
		}()
		synctest.Wait() // it waits, and for credit
		select {
		case err := <-done:
			t.Fatal("more than the window was sent", err)
		default:
		}
		if err := budget.Add(1); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		total := 0
		for r := wire.NewReader(&sent); ; {
			f, err := r.Frame()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			total += len(f.Data)
		}
		if total != wire.Window+1 {
			t.Errorf("%d bytes arrived", total)
		}
	})
}

func TestSendersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := wire.NewSender()
		r, w := io.Pipe()
		go func() { _ = s.Run(w) }()
		for id := range uint64(4) {
			go func() {
				for range 8 {
					_ = s.Send(t.Context(), wire.Frame{ID: id, Op: wire.OpCancel})
				}
			}()
		}
		synctest.Wait() // all wait to send
		frames := wire.NewReader(r)
		count := map[uint64]int{}
		for range 32 {
			f, err := frames.Frame()
			if err != nil {
				t.Fatal(err)
			}
			count[f.ID]++
			synctest.Wait() // its sender stands in line again
			for _, n := range count {
				if count[f.ID] > n+2 {
					t.Errorf("sender %d sent %d frames when another had sent %d", f.ID, count[f.ID], n)
				}
			}
		}
		s.Stop()
	})
}

func TestSendingEndsWithItsContextAndWithTheSession(t *testing.T) {
	t.Parallel()
	s := wire.NewSender() // that nobody runs
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	if err := s.Send(ctx, wire.Frame{Op: wire.OpPing}); err != cause {
		t.Error(err)
	}
	s.Stop()
	if err := s.Send(t.Context(), wire.Frame{Op: wire.OpPing}); err != wire.ErrEnded {
		t.Error(err)
	}
}
