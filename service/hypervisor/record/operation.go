package record

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Operation is what takes long: a durable job, and what it is about.
type Operation struct {
	ID        string  `db:"id"`
	Kind      string  `db:"kind"`
	Tenant    string  `db:"tenant"`
	VM        string  `db:"vm_id"`
	Backup    string  `db:"backup_id"`
	Image     string  `db:"image"`
	CreatedAt db.Time `db:"created_at"`

	Job jobs.Record `db:"-"`
}

// The kinds of operations.
const (
	OperationImage   = "image.add"
	OperationBackup  = "backup"
	OperationRestore = "restore"
	OperationClone   = "clone"
)

// AddOperation stores an operation with its job, which enqueue makes, and an audit entry.
func (s *Store) AddOperation(
	ctx context.Context, op Operation, entry audit.Entry, enqueue func(tx *db.Tx) (id string, err error),
) (Operation, error) {
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if op.ID, err = enqueue(tx); err != nil {
			return err
		}
		op.CreatedAt = db.At(s.now())
		if err := tx.Insert(ctx, "operations", struct {
			ID        string  `db:"id"`
			Kind      string  `db:"kind"`
			Tenant    string  `db:"tenant"`
			VM        string  `db:"vm_id"`
			Backup    string  `db:"backup_id"`
			Image     string  `db:"image"`
			CreatedAt db.Time `db:"created_at"`
		}{op.ID, op.Kind, op.Tenant, op.VM, op.Backup, op.Image, op.CreatedAt}); err != nil {
			return err
		}
		return s.note(ctx, tx, entry)
	})
	if err != nil {
		return op, err
	}
	op.Job, err = jobs.Get(ctx, s.db, op.ID)
	return op, err
}

// Operations lists operations in the caller's scope, newest first, before an id.
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
		job, err := jobs.Get(ctx, s.db, ops[i].ID)
		if err != nil {
			return nil, err
		}
		ops[i].Job = job
	}
	return ops, nil
}

// Operation reads one.
func (s *Store) Operation(ctx context.Context, id string) (Operation, error) {
	var op Operation
	err := s.db.Get(ctx, &op, "SELECT * FROM operations WHERE id = ?", id)
	if err == nil && !caller.From(ctx).Sees(op.Tenant) {
		err = db.ErrNoRows
	}
	if err != nil {
		return op, db.NotFound(err, "there is no such operation, or no longer")
	}
	op.Job, err = jobs.Get(ctx, s.db, id)
	return op, err
}

// CancelOperation cancels an operation by what cancel does to its job, with an audit entry.
func (s *Store) CancelOperation(ctx context.Context, op *Operation, cancel func(tx *db.Tx) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if err := cancel(tx); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "operation.cancel", Target: op.ID, Tenant: op.Tenant})
	})
}

// IsBeingMade says whether an operation continues with making a VM.
func (s *Store) IsBeingMade(ctx context.Context, vmID string) bool {
	var n int
	err := s.db.Get(ctx, &n, `SELECT COUNT(*) FROM operations o JOIN jobs j ON j.id = o.id
		WHERE o.vm_id = ? AND o.kind IN (?, ?) AND j.finished_at IS NULL`, vmID, OperationClone, OperationRestore)
	return err != nil || n > 0
}

// OpenArgs are the arguments of the jobs of a kind that have not ended.
func (s *Store) OpenArgs(ctx context.Context, kind string) (args []string, err error) {
	return args, s.db.Select(ctx, &args, "SELECT args FROM jobs WHERE kind = ? AND finished_at IS NULL", kind)
}

// operationLife is how long an operation that has ended can be asked for.
const operationLife = 24 * time.Hour

// ExpireOperations forgets operations that ended a day ago.
func (s *Store) ExpireOperations(ctx context.Context) error {
	if _, err := jobs.DeleteFinished(ctx, s.db, s.now().Add(-operationLife), 500); err != nil {
		return err
	}
	return s.exec(ctx, "DELETE FROM operations WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = operations.id)")
}
