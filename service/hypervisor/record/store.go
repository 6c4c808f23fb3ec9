package record

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Config holds the dependencies of a Store.
type Config struct {
	DB     *db.DB
	Audit  *audit.Log
	Sealer *auth.Sealer // of the secrets of guest agents; see NewSealer
	Policy *admission.Policy
	Now    func() time.Time
}

// Store stores the rows of the daemon.
type Store struct {
	db     *db.DB
	audit  *audit.Log
	sealer *auth.Sealer
	policy *admission.Policy
	now    func() time.Time
	moved  func(id string)
	bell   feed.Bell

	admitting sync.Mutex // held while a request is checked against current usage
}

// New returns a Store on a database that has its tables.
func New(c Config) *Store {
	return &Store{db: c.DB, audit: c.Audit, sealer: c.Sealer, policy: c.Policy, now: c.Now, moved: func(string) {}}
}

// OnMove sets the function to call after a VM's state has changed. Call it before using the Store.
func (s *Store) OnMove(f func(id string)) { s.moved = f }

// NewID returns an id that sorts by creation time (UUID version 7).
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// note writes an audit entry in the transaction of the change that it records.
func (s *Store) note(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	return s.audit.Append(ctx, tx, caller.From(ctx).Entry(e), nil)
}

// exec runs one statement in its own transaction.
func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// Describe prepares the rows of an earlier version for searches. Until then, they are not found.
func (s *Store) Describe(ctx context.Context) error {
	const most = 500 // rows of each table in a transaction
	for more := true; more; {
		if err := s.db.Update(ctx, func(tx *db.Tx) error {
			vms, err := search.Describe(ctx, tx, "vms", "id", most, (*VM).described)
			if err != nil {
				return err
			}
			images, err := search.Describe(ctx, tx, "images", "name", most, (*Image).described)
			more = max(vms, images) == most
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
