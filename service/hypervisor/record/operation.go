package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Operation is a long-running durable job, and what it is about.
type Operation struct {
	operation.Operation
	VM     string `db:"vm_id"`
	Backup string `db:"backup_id"`
	Image  string `db:"image"`
}

// NewOperation returns an operation of a kind and a tenant that has not started.
func NewOperation(kind, tenant string) Operation {
	return Operation{Operation: operation.Operation{Kind: kind, Tenant: tenant}}
}

// Kinds of operations.
const (
	OperationImage    = "image.add"
	OperationResize   = "image.resize"
	OperationBackup   = "backup"
	OperationRestore  = "restore"
	OperationClone    = "clone"
	OperationMigrate  = "vm.migrate"
	OperationTemplate = "template.create"
)

// AddOperation calls begin, which stores an operation, and writes an audit entry, in one
// transaction.
func (s *Store) AddOperation(ctx context.Context, entry audit.Entry, begin func(tx *db.Tx) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if err := begin(tx); err != nil {
			return err
		}
		return s.note(ctx, tx, entry)
	})
}

// Operations lists operations in the caller's scope, newest first, starting before an id.
func (s *Store) Operations(ctx context.Context, before string, limit int) ([]Operation, error) {
	query, args := "SELECT * FROM operations WHERE 1 = 1", []any{}
	if c := caller.From(ctx); c.Tenant != "" {
		query, args = query+" AND tenant = ?", append(args, c.Tenant)
	}
	if before != "" {
		query, args = query+" AND id < ?", append(args, before)
	}
	var ops []Operation
	if err := s.db.Select(ctx, &ops, query+" ORDER BY id DESC LIMIT ?", append(args, limit)...); err != nil {
		return nil, err
	}
	for i := range ops {
		if err := operation.ReadJob(ctx, s.db, &ops[i]); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// Operation returns an operation in the caller's scope.
func (s *Store) Operation(ctx context.Context, id string) (Operation, error) {
	var op Operation
	if err := operation.Get(ctx, s.db, id, &op); err != nil {
		return op, err
	}
	if !caller.From(ctx).Sees(op.Tenant) {
		return Operation{}, operation.ErrUnknown
	}
	return op, nil
}

// CancelOperation calls cancel, which cancels the operation's job, and writes an audit entry, in
// one transaction.
func (s *Store) CancelOperation(ctx context.Context, op *Operation, cancel func(tx *db.Tx) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if err := cancel(tx); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "operation.cancel", Target: op.ID, Tenant: op.Tenant})
	})
}

// IsBeingMade reports whether an open operation creates the VM, or another host has yet to say that it is
// this host's. It returns true on errors.
func (s *Store) IsBeingMade(ctx context.Context, vmID string) bool {
	var n int
	err := s.db.Get(ctx, &n, `SELECT (SELECT COUNT(*) FROM operations o JOIN jobs j ON j.id = o.id
		WHERE o.vm_id = ? AND o.kind IN (?, ?) AND j.finished_at IS NULL)
		+ (SELECT COUNT(*) FROM arrivals WHERE vm_id = ? AND state = ?)`,
		vmID, OperationClone, OperationRestore, vmID, ArrivalPrepared)
	return err != nil || n > 0
}

// OpenArgs returns the arguments of all unfinished jobs of a kind.
func (s *Store) OpenArgs(ctx context.Context, kind string) (args []string, err error) {
	return args, s.db.Select(ctx, &args, "SELECT args FROM jobs WHERE kind = ? AND finished_at IS NULL", kind)
}
