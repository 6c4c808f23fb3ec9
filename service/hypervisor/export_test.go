package hypervisor

import "context"

// RunIdle brings back the VMs as Run does, and leaves operations queued until ctx ends.
func (s *Service) RunIdle(ctx context.Context) error {
	if err := s.recovery.Restore(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	close(s.restored)
	<-ctx.Done()
	s.machines.Depart()
	return nil
}
