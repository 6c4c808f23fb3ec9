package hypervisor

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// note writes an audit entry in the transaction of the change that it tells of.
func (s *Service) note(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	return s.audit.Append(ctx, tx, caller.From(ctx).Entry(e), nil)
}

// noteAgent writes the audit entry of a call to an agent, before the call: what was done
// in a guest must not go unrecorded because its answer was lost.
func (s *Service) noteAgent(ctx context.Context, id, action, message string) error {
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		return s.note(ctx, tx, audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message})
	})
}

// noteNode writes the audit entry of a change to a node, in the transaction of the change.
func (s *Service) noteNode(ctx context.Context, action, name string) func(tx *db.Tx) error {
	return func(tx *db.Tx) error { return s.note(ctx, tx, audit.Entry{Action: action, Target: name}) }
}

// noteFleet writes the audit entry of what another host has done, and has noted itself:
// the answer is what that host says, whether or not it can be noted here too.
func (s *Service) noteFleet(ctx context.Context, action, target, tenant, message string) {
	ctx = context.WithoutCancel(ctx)
	if err := s.db.Update(ctx, func(tx *db.Tx) error {
		return s.note(ctx, tx, audit.Entry{Action: action, Target: target, Tenant: tenant, Message: message})
	}); err != nil {
		s.log.Error("what was done on another host is not in this one's audit log", "action", action, "target", target, "error", err)
	}
}

// AcknowledgeAudit ends the alarm of the audit log's breaks up to an entry.
func (s *Service) AcknowledgeAudit(ctx context.Context, through int64, note string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		return s.audit.Acknowledge(ctx, tx, through, caller.From(ctx).Entry(audit.Entry{Message: note}))
	})
}
