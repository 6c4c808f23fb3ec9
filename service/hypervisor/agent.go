package hypervisor

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

const (
	// agentPatience is how long one attempt to reach an agent lasts. What was written to a
	// guest that starts anew meanwhile is lost, hence not for ever; a guest that boots finds it
	// waiting, hence long.
	agentPatience = 20 * time.Second
	// agentPause is between attempts that fail at once.
	agentPause = 200 * time.Millisecond
)

// keepAgent keeps a session with the guest's agent for as long as the VM runs.
func (s *Service) keepAgent(m *machine.Machine, r record.VM, instance backend.Instance) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	routine.Go(s.log, "guest agent", func() {
		defer cancel()
		select {
		case <-instance.Done():
		case <-s.machines.Ending().Done():
		case <-ctx.Done():
		}
	})
	observer, _ := instance.(backend.Observer)
	for ctx.Err() == nil {
		changes := s.awaitAgent(ctx, observer)
		session, stop := s.whileAgentStays(ctx, observer, changes)
		client, err := s.connectAgent(session, m, instance)
		if err == nil {
			s.useAgent(session, m, client, instance)
		} else {
			select {
			case <-time.After(agentPause):
			case <-session.Done():
			}
		}
		stop()
	}
}

// awaitAgent waits until a program in the guest has the agent's channel open, and returns the
// count of changes since when it has. It does not wait for longer than an attempt lasts, since a
// process that was started by an earlier version of the daemon does not tell.
func (s *Service) awaitAgent(ctx context.Context, o backend.Observer) (changes int) {
	if o == nil {
		return 0
	}
	timer := time.NewTimer(agentPatience)
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

// whileAgentStays is a context that ends when another program than before may have the agent's
// channel open, or none: nobody answers any more then.
func (s *Service) whileAgentStays(ctx context.Context, o backend.Observer, changes int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if o == nil {
		return ctx, cancel
	}
	routine.Go(s.log, "guest agent", func() {
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

// useAgent has a session be the VM's until it is over, or ctx ends.
func (s *Service) useAgent(ctx context.Context, m *machine.Machine, client *guest.Client, instance backend.Instance) {
	rotate := m.Connect(client)
	if rotate {
		s.rotateAgent(ctx, m)
	}
	s.pingAgent(ctx, m, client, instance)
	m.Disconnect(client)
	_ = client.Close() // it is over, or no longer wanted
}

const (
	// pingEvery is the time between an agent's answer and the next ping.
	pingEvery = 10 * time.Second
	// silentAfter is how long an agent may take to answer a ping before it is not called
	// connected any more, and lostAfter before its session is given up. The agent kills what it
	// runs for a session that is over, hence long: a guest may be slow.
	silentAfter = 5 * time.Second
	lostAfter   = 2 * time.Minute
	// doubtLimit is lostAfter where another program may have the channel open than before: that
	// one does not know the session, and never answers.
	doubtLimit = 10 * time.Second
)

// pingAgent asks an agent for an answer time and again, and at once when it may be another than
// before, until the session is over, or the agent is lost, or ctx ends.
func (s *Service) pingAgent(ctx context.Context, m *machine.Machine, client *guest.Client, instance backend.Instance) {
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
		answered := routine.Start(s.log, "guest agent ping", func() error { return client.Ping(ctx) })
		if err := s.awaitPing(ctx, m, answered, patience, instance); err != nil {
			return
		}
	}
}

var errAgentLost = errors.New("the agent does not answer")

// awaitPing waits for the answer to a ping. A guest that is paused is waited for as long as it is.
func (s *Service) awaitPing(ctx context.Context, m *machine.Machine, answered <-chan error, patience time.Duration, instance backend.Instance) error {
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
				return errAgentLost
			}
			lost.Reset(patience) // who does not even say that may be saving the guest's memory
		}
	}
}

// rotateAgent gives an agent a new secret, which is tried again with the next session if
// it fails.
func (s *Service) rotateAgent(ctx context.Context, m *machine.Machine) {
	ctx, cancel := context.WithTimeout(ctx, machine.CallLimit)
	defer cancel()
	if err := s.rotateSecret(ctx, m); err != nil {
		s.log.Warn("a guest's agent keeps its secret as yet", "vm", m.ID, "error", err)
		return
	}
	m.SetRotate(false)
}

// connectAgent makes one attempt. The secret is read every time, since it may be rotated.
func (s *Service) connectAgent(ctx context.Context, m *machine.Machine, instance backend.Instance) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	secrets, err := s.store.Secrets(ctx, m.ID)
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

// Agent is the session with a VM's agent, for who may see the VM. Without one the error
// is a conflict.
func (s *Service) Agent(ctx context.Context, id string) (*guest.Client, error) {
	r, err := s.store.VM(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.State.HasProcess() {
		return nil, fault.New(fault.Conflict, "the VM is %s; its agent can be reached while it runs", r.State).WithCode("wrong_state")
	}
	if !r.Spec.V.Agent {
		return nil, fault.New(fault.Conflict, "the VM was made without an agent").WithCode("no_agent")
	}
	return s.machines.Get(id).Session()
}

// codeSilent is the code of a fault about an agent that does not answer.
const codeSilent = "agent_silent"

// agentFault is what a caller is told of a call to an agent that failed.
func agentFault(err error) error {
	if err == nil {
		return nil
	}
	refusal := (*guest.Refusal)(nil)
	switch {
	case errors.As(err, &refusal):
		kind := map[wire.Code]fault.Kind{wire.Invalid: fault.Invalid, wire.NotFound: fault.Invalid, wire.Denied: fault.Conflict, wire.Busy: fault.TooMany, wire.Frozen: fault.Conflict, wire.Unsupported: fault.Conflict}[refusal.Code]
		if kind == fault.Internal {
			kind = fault.Conflict
		}
		return fault.Wrap(kind, err, "the guest refuses: %s", refusal.Message).WithCode("agent_" + string(refusal.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, err, "the guest's agent did not answer in time").WithCode(codeSilent)
	case fault.From(err).Kind != fault.Internal:
		return err
	}
	return fault.Wrap(fault.Timeout, err, "the guest's agent broke off").WithCode(codeSilent)
}

// noteAgent writes the audit entry of a call to an agent, before the call: what was done
// in a guest must not go unrecorded because its answer was lost.
func (s *Service) noteAgent(ctx context.Context, id, action, message string) error {
	r, err := s.store.VM(ctx, id)
	if err != nil {
		return err
	}
	return s.store.Note(ctx, audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message})
}
