package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Policy says where volumes are made, and of which kind they are.
type Policy struct {
	Name        string      `db:"name"`
	Description string      `db:"description"`
	BackendID   string      `db:"backend_id"`
	Pool        string      `db:"pool"`
	Kind        driver.Kind `db:"kind"`
	CreatedAt   db.Time     `db:"created_at"`
}

// Names of policies that mean something.
const (
	DefaultPolicy = "default" // that of requests that name none
	SharedPolicy  = "shared"  // always of the kind filesystem
)

// Policies lists policies by name, starting after one.
func (s *Store) Policies(ctx context.Context, after string, limit int) (all []Policy, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM policies WHERE name > ? ORDER BY name LIMIT ?", after, limit)
}

// Policy returns a policy.
func (s *Store) Policy(ctx context.Context, name string) (p Policy, err error) {
	err = s.db.Get(ctx, &p, "SELECT * FROM policies WHERE name = ?", name)
	return p, db.NotFound(err, "there is no such policy")
}

// PutPolicy adds or replaces a policy, of which BackendID may hold the backend's name. Volumes that were made by it
// stay as they are.
func (s *Store) PutPolicy(ctx context.Context, p Policy) (Policy, error) {
	if p.Name == SharedPolicy && p.Kind != driver.Filesystem {
		return p, fault.InvalidField("kind", "the policy %s is always of the kind %s", SharedPolicy, driver.Filesystem)
	}
	p.CreatedAt = db.At(s.now())
	err := s.update(ctx, func(tx *db.Tx) error {
		var b Backend
		err := db.NotFound(tx.Get(ctx, &b, "SELECT * FROM backends WHERE id = ? OR name = ?", p.BackendID, p.BackendID), "none")
		if fault.Is(err, fault.NotFound) {
			return fault.InvalidField("backend_id", "there is no such backend")
		}
		if err != nil {
			return err
		}
		p.BackendID = b.ID
		if _, err := tx.Exec(ctx, `INSERT INTO policies (name, description, backend_id, pool, kind, created_at)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET description = excluded.description,
			backend_id = excluded.backend_id, pool = excluded.pool, kind = excluded.kind`,
			p.Name, p.Description, p.BackendID, p.Pool, p.Kind, p.CreatedAt); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "policy.put", Target: p.Name})
	})
	return p, err
}

// DeletePolicy removes a policy. Volumes that were made by it stay.
func (s *Store) DeletePolicy(ctx context.Context, name string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM policies WHERE name = ?", name)
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.New(fault.NotFound, "there is no such policy")
		}
		return s.note(ctx, tx, audit.Entry{Action: "policy.delete", Target: name})
	})
}
