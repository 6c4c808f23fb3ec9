package hypervisor

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// operations registers what runs behind operations.
func (s *Service) operations() {
	operation.Register(s.operate, record.OperationBackup, operation.Kind[backupArgs]{
		Run: func(ctx context.Context, a backupArgs, progress func(float64)) error {
			return s.runBackup(shell.As(ctx, a.Actor), a, progress)
		},
	})
	for kind, run := range map[string]func(context.Context, copyArgs, func(float64)) error{
		record.OperationClone: s.runClone, record.OperationRestore: s.runRestore,
	} {
		operation.Register(s.operate, kind, operation.Kind[copyArgs]{
			Run: func(ctx context.Context, a copyArgs, progress func(float64)) error {
				ctx = shell.As(ctx, a.Actor)
				err := run(ctx, a, progress)
				if err == nil || operation.BrokenOff(ctx) {
					return err
				}
				return errors.Join(err, s.unmake(ctx, a.VM, fault.From(err).Message))
			},
			Cancelled: func(ctx context.Context, op *record.Operation) error {
				return s.unmake(ctx, op.VM, "the operation was cancelled")
			},
		})
	}
}
