package hypervisor

import (
	"context"
	"log/slog"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
)

// RunIdle brings back the VMs as Run does, and leaves operations queued until ctx ends.
func (s *Service) RunIdle(ctx context.Context) error {
	if err := s.restore(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	close(s.restored)
	<-ctx.Done()
	s.machines.Depart()
	return nil
}

// PingAgent pings an agent as for a VM that is paused or not, and says whether the agent is
// connected, and when it is given up.
func PingAgent(ctx context.Context, log *slog.Logger, client *guest.Client, paused func() bool) (connected func() bool, over <-chan struct{}) {
	s, m, done := &Service{log: log}, machine.New("one"), make(chan struct{})
	m.Connect(client)
	go func() {
		defer close(done)
		s.pingAgent(ctx, m, client, pausable{paused: paused})
	}()
	return func() bool { return m.Status().Connected }, done
}

type pausable struct {
	backend.Instance
	paused func() bool
}

func (p pausable) Paused(context.Context) (bool, error) { return p.paused(), nil }

// EnoughRoom is the rule by which a VM goes on that was halted for want of room.
var EnoughRoom = enoughRoom
