package hypervisor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
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
func (s *Service) keepAgent(m *machine, r Record, instance backend.Instance) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-instance.Done():
		case <-s.leaving:
		case <-ctx.Done():
		}
		cancel()
	}()
	for ctx.Err() == nil {
		client, err := s.connectAgent(ctx, m, instance)
		if err != nil {
			select {
			case <-time.After(agentPause):
			case <-ctx.Done():
			}
			continue
		}
		m.mu.Lock()
		m.guest, m.version = client, client.Version()
		rotate := m.rotate
		m.mu.Unlock()
		m.ring()
		if rotate {
			s.rotateAgent(ctx, m)
		}
		select {
		case <-client.Done():
		case <-ctx.Done():
		}
		m.mu.Lock()
		if m.guest == client {
			m.guest = nil
		}
		m.mu.Unlock()
		_ = client.Close() // it is over, or no longer wanted
		m.ring()
	}
}

// rotateAgent gives an agent a new secret, which is tried again with the next session if
// it fails.
func (s *Service) rotateAgent(ctx context.Context, m *machine) {
	ctx, cancel := context.WithTimeout(ctx, haltLimit)
	defer cancel()
	if err := s.rotateSecret(ctx, m); err != nil {
		s.log.Warn("a guest's agent keeps its secret as yet", "vm", m.id, "error", err)
		return
	}
	m.mu.Lock()
	m.rotate = false
	m.mu.Unlock()
}

// connectAgent makes one attempt. The secret is read every time, since it may be rotated.
func (s *Service) connectAgent(ctx context.Context, m *machine, instance backend.Instance) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	secrets, err := s.secretsOf(ctx, m.id)
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

// secretsOf are the secrets that a VM's agent may have: one, or while it is being rotated
// the new one and the old.
func (s *Service) secretsOf(ctx context.Context, id string) ([]string, error) {
	var sealed string
	if err := s.db.Get(ctx, &sealed, "SELECT secret FROM vms WHERE id = ?", id); err != nil {
		return nil, db.NotFound(err, "there is no such VM")
	}
	plain, err := s.secrets.Open(sealed, id)
	return strings.Split(string(plain), "\n"), err
}

// Agent is the session with a VM's agent, for who may see the VM. Without one the error
// is a conflict.
func (s *Service) Agent(ctx context.Context, id string) (*guest.Client, error) {
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	if !r.State.HasProcess() {
		return nil, fault.New(fault.Conflict, "the VM is %s; its agent can be reached while it runs", r.State).WithCode("wrong_state")
	}
	if !r.Spec.V.Agent {
		return nil, fault.New(fault.Conflict, "the VM was made without an agent").WithCode("no_agent")
	}
	return s.machines.get(id).agent()
}

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
		return fault.Wrap(fault.Unavailable, err, "the guest's agent did not answer in time").WithCode(codeSilent)
	case fault.From(err).Kind != fault.Internal:
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the guest's agent broke off").WithCode(codeSilent)
}
