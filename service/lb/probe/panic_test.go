package probe_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

func TestACheckThatPanicsHasFailedAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := 0
		p := probe.New(probe.Options{
			Log:  slog.New(slog.DiscardHandler),
			Dial: func(context.Context, probe.ID, netip.AddrPort) (net.Conn, error) { panic("boom") },
			OnProbe: func(_ time.Duration, ok bool) {
				if ok {
					t.Error("it succeeded")
				}
				failed++
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		if err := p.Set([]probe.Check{dialled(1)}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		cancel()
		if err := <-done; err != nil || failed < 5 {
			t.Errorf("%d probes, %v", failed, err)
		}
	})
}

func TestChecksGoOnAfterAPanicOfWhoIsToldOfThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		probes, changes := map[netip.AddrPort]int{}, 0
		p := probe.New(probe.Options{
			Log: slog.New(slog.DiscardHandler),
			Dial: func(_ context.Context, _ probe.ID, address netip.AddrPort) (net.Conn, error) {
				probes[address]++ // the bubble has one goroutine at a time here
				return nil, errors.New("refused")
			},
			OnChange: func(probe.ID, bool, string) {
				if changes++; changes == 1 {
					panic("boom")
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		one, other := dialled(1), dialled(2)
		if err := p.Set([]probe.Check{one}); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second) // it has panicked
		if err := p.Set([]probe.Check{one, other}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		cancel()
		if err := <-done; err != nil || changes < 2 || probes[one.Address] < 5 || probes[other.Address] < 5 {
			t.Errorf("%d changes, %v probes, %v", changes, probes, err)
		}
	})
}
