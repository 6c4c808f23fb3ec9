package agent

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
)

const (
	// patience is the timeout of one attempt to reach an agent. It is limited, because data written
	// to a guest that then reboots is lost. It is long, so that the attempt is pending when a
	// booting guest starts its agent.
	patience = 20 * time.Second
	// pause is the delay between attempts that fail immediately.
	pause = 200 * time.Millisecond
)

// Keep maintains a session with the guest's agent while the VM runs.
func (k *Keeper) Keep(m *machine.Machine, instance backend.Instance) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	routine.Go(k.log, "guest agent", func() {
		defer cancel()
		select {
		case <-instance.Done():
		case <-k.machines.Ending().Done():
		case <-ctx.Done():
		}
	})
	observer, _ := instance.(backend.Observer)
	for ctx.Err() == nil {
		changes := k.awaitOpen(ctx, observer)
		session, stop := k.whileItStays(ctx, observer, changes)
		client, err := k.connect(session, m, instance)
		if err == nil {
			k.use(session, m, client, instance)
		} else {
			select {
			case <-time.After(pause):
			case <-session.Done():
			}
		}
		stop()
	}
}

// awaitOpen waits until a program in the guest has opened the agent's channel, and returns the
// current count of changes. It waits at most patience, since a process that was started by an
// earlier version of the daemon does not report this.
func (k *Keeper) awaitOpen(ctx context.Context, o backend.Observer) (changes int) {
	if o == nil {
		return 0
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		condition, changed := o.Condition()
		if condition.AgentOpen {
			return condition.AgentChanges
		}
		select {
		case <-changed:
		case <-timer.C:
			return condition.AgentChanges
		case <-ctx.Done():
			return condition.AgentChanges
		}
	}
}

// whileItStays returns a context that ends when the agent's channel was closed or may have been
// opened by another program: then nobody answers any more.
func (k *Keeper) whileItStays(
	ctx context.Context, o backend.Observer, changes int,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if o == nil {
		return ctx, cancel
	}
	routine.Go(k.log, "guest agent", func() {
		defer cancel()
		for {
			condition, changed := o.Condition()
			if condition.AgentChanges != changes {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, cancel
}

// use makes client the VM's session until it is lost or ctx ends.
func (k *Keeper) use(ctx context.Context, m *machine.Machine, client *guest.Client, instance backend.Instance) {
	if m.Connect(client) {
		k.rotate(ctx, m)
	}
	k.ping(ctx, m, client, instance)
	m.Disconnect(client)
	_ = client.Close() // it is lost, or no longer needed
}

const (
	// pingEvery is the time between an agent's answer and the next ping.
	pingEvery = 10 * time.Second
	// silentAfter is how long an agent may take to answer a ping before it counts as not connected.
	// lostAfter is how long until its session is closed. It is long because guests may be slow, and
	// an agent kills what it runs for a session that ends.
	silentAfter = 5 * time.Second
	lostAfter   = 2 * time.Minute
	// doubtLimit replaces lostAfter if another program may have opened the channel: that program
	// does not know the session and never answers.
	doubtLimit = 10 * time.Second
)

// ping pings an agent periodically, and immediately when it may have been replaced, until the
// session ends, the agent is lost, or ctx ends.
func (k *Keeper) ping(ctx context.Context, m *machine.Machine, client *guest.Client, instance backend.Instance) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	observer, _ := instance.(backend.Observer)
	for doubts := 0; ; {
		patience := lostAfter
		var condition backend.Condition
		var changed <-chan struct{}
		if observer != nil {
			condition, changed = observer.Condition()
		}
		if condition.AgentDoubts != doubts {
			doubts, patience = condition.AgentDoubts, doubtLimit
		} else {
			select {
			case <-time.After(pingEvery):
			case <-changed:
				continue
			case <-client.Done():
				return
			case <-ctx.Done():
				return
			}
		}
		answered := routine.Start(k.log, "guest agent ping", func() error { return client.Ping(ctx) })
		if err := k.awaitPing(ctx, m, answered, patience, instance); err != nil {
			return
		}
	}
}

var errLost = errors.New("the agent does not answer")

// awaitPing waits for the answer to a ping. While the guest is paused, it keeps waiting.
func (k *Keeper) awaitPing(
	ctx context.Context, m *machine.Machine, answered <-chan error, patience time.Duration, instance backend.Instance,
) error {
	silent, lost := time.NewTimer(silentAfter), time.NewTimer(patience)
	defer silent.Stop()
	defer lost.Stop()
	for {
		select {
		case err := <-answered:
			m.SetSilent(false)
			return err
		case <-silent.C:
			m.SetSilent(true)
		case <-lost.C:
			asking, cancel := context.WithTimeout(ctx, machine.CallLimit)
			paused, err := instance.Paused(asking)
			cancel()
			if err == nil && !paused {
				return errLost
			}
			lost.Reset(patience) // a process that does not answer may be saving the guest's memory
		}
	}
}

// rotate gives an agent a new secret. If that fails, it is retried in the next session.
func (k *Keeper) rotate(ctx context.Context, m *machine.Machine) {
	ctx, cancel := context.WithTimeout(ctx, machine.CallLimit)
	defer cancel()
	if err := k.rotateSecret(ctx, m); err != nil {
		k.log.Warn("a guest's agent keeps its secret as yet", "vm", m.ID, "error", err)
		return
	}
	m.SetRotate(false)
}

// connect makes one attempt. It reads the secret every time, since it may have been rotated.
func (k *Keeper) connect(ctx context.Context, m *machine.Machine, instance backend.Instance) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	secrets, err := k.store.Secrets(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	for i, secret := range secrets {
		stream, err := instance.Dial(ctx, backend.AgentChannel)
		if err != nil {
			return nil, err
		}
		client, err := guest.Connect(ctx, stream, secret)
		if err != nil {
			return nil, err
		}
		err = client.Ping(ctx)
		if err == nil {
			return client, nil
		}
		_ = client.Close() // another secret may be the right one
		if !guest.IsRefusal(err, wire.Denied) || i == len(secrets)-1 {
			return nil, err
		}
	}
	return nil, fault.New(fault.Conflict, "the VM has no secret for its agent")
}
