package record

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Config is what a Store stands on.
type Config struct {
	DB     *db.DB
	Audit  *audit.Log
	Sealer *auth.Sealer // of the secrets of guest agents; see NewSealer
	Policy *admission.Policy
	Now    func() time.Time
}

// Store is the rows of the daemon.
type Store struct {
	db     *db.DB
	audit  *audit.Log
	sealer *auth.Sealer
	policy *admission.Policy
	now    func() time.Time
	moved  func(id string)

	admitting sync.Mutex // held while a request is held against what is there already
}

// New makes a Store of a database that has its tables.
func New(c Config) *Store {
	return &Store{db: c.DB, audit: c.Audit, sealer: c.Sealer, policy: c.Policy, now: c.Now, moved: func(string) {}}
}

// OnMove has f called whenever a VM's state has changed. It is called before the Store is used.
func (s *Store) OnMove(f func(id string)) { s.moved = f }

// NewID makes an id that sorts by the time it was made (UUID version 7).
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// note writes an audit entry in the transaction of the change that it reports.
func (s *Store) note(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	return s.audit.Append(ctx, tx, caller.From(ctx).Entry(e), nil)
}

// exec runs one statement in a transaction of its own.
func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}
