package agent

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
)

// pinged pings an agent as for a VM that is paused or not, and says whether the agent is connected,
// and when it is given up.
func pinged(
	ctx context.Context, log *slog.Logger, client *guest.Client, paused func() bool,
) (connected func() bool, over <-chan struct{}) {
	k, m, done := &Keeper{log: log}, machine.New("one"), make(chan struct{})
	m.Connect(client)
	go func() {
		defer close(done)
		k.ping(ctx, m, client, pausable{paused: paused})
	}()
	return func() bool { return m.Status().Connected }, done
}

type pausable struct {
	backend.Instance
	paused func() bool
}

func (p pausable) Paused(context.Context) (bool, error) { return p.paused(), nil }

// mute is an agent that greets, and answers pings while it may.
func mute(t *testing.T, far net.Conn, answers <-chan bool) {
	r := wire.NewReader(far)
	nonce, err := r.Preamble(nil, 0)
	if err != nil {
		t.Error(err)
		return
	}
	hello := wire.With(0, wire.OpHello, wire.Hello{Proto: wire.Proto, Version: "1"})
	raw, err := hello.Encode()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = far.Write(append(nonce.Preamble(), raw...))
	for {
		f, err := r.Frame()
		if err != nil {
			return // the daemon has had enough
		}
		if f.Op != wire.OpPing {
			continue
		}
		if !<-answers {
			_, _ = io.Copy(io.Discard, far)
			return
		}
		pong := wire.With(f.ID, wire.OpResult, struct{}{})
		if raw, err = pong.Encode(); err != nil {
			t.Error(err)
			return
		}
		_, _ = far.Write(raw)
	}
}

func TestAnAgentThatDoesNotAnswerIsNotConnectedAndIsGivenUpUnlessItsGuestIsPaused(t *testing.T) {
	t.Parallel()
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			host, far := net.Pipe()
			answers := make(chan bool)
			go mute(t, far, answers)
			client, err := guest.Connect(t.Context(), host, "a-secret-of-this-test-alone")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			connected, over := pinged(ctx, slog.New(slog.DiscardHandler), client, func() bool { return paused })
			for range 3 {
				time.Sleep(16 * time.Second) // a ping is due, and its answer too
				if connected() {
					t.Error("an agent that owes an answer is connected")
				}
				answers <- true
				synctest.Wait()
				if !connected() {
					t.Error("an agent that answered is not connected")
				}
			}
			time.Sleep(10 * time.Minute)
			select {
			case <-over:
				if paused {
					t.Error("the agent of a guest that is paused is given up")
				}
			default:
				if !paused {
					t.Error("an agent that does not answer is kept")
				}
			}
			close(answers)
		})
	}
}
