package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/tenant"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// Tenant owns volumes and buckets. Limits are nil where there is none.
type Tenant struct {
	Name         string  `db:"name"`
	Description  string  `db:"description"`
	MaxVolumes   *int64  `db:"max_volumes"`
	MaxBytes     *int64  `db:"max_bytes"` // of volumes, by their sizes
	MaxSnapshots *int64  `db:"max_snapshots"`
	CreatedAt    db.Time `db:"created_at"`

	Used Use `db:"-"`
}

// Use is how much a tenant has.
type Use struct {
	Volumes   int64 `db:"volumes"`
	Bytes     int64 `db:"bytes"`
	Snapshots int64 `db:"snapshots"`
	Buckets   int64 `db:"buckets"`

	Backups     int64 `db:"backups"`
	BackupBytes int64 `db:"backup_bytes"` // that they added to their buckets
}

// Check returns a fault that names the first limit that a tenant would exceed with more, and how much is
// left of it.
func (t *Tenant) Check(more Use) error {
	for _, l := range []struct {
		name, unit  string
		limit       *int64
		used, asked int64
	}{
		{"volumes", "volumes", t.MaxVolumes, t.Used.Volumes, more.Volumes},
		{"bytes", "bytes of volumes", t.MaxBytes, t.Used.Bytes, more.Bytes},
		{"snapshots", "snapshots", t.MaxSnapshots, t.Used.Snapshots, more.Snapshots},
	} {
		if l.limit == nil || l.asked <= 0 || l.asked <= *l.limit-l.used {
			continue
		}
		return fault.New(fault.Denied, "quota %s of tenant %s: %d %s requested, %d of %d left",
			l.name, t.Name, l.asked, l.unit, max(0, *l.limit-l.used), *l.limit).WithLimit(l.name)
	}
	return nil
}

const selectUse = `SELECT COUNT(*) AS volumes, COALESCE(SUM(size_bytes), 0) AS bytes, (SELECT COUNT(*) FROM snapshots
	WHERE tenant = ? AND deleted_at IS NULL) +
	(SELECT CAST(COALESCE(SUM(members), 0) AS BIGINT) FROM group_snapshots WHERE tenant = ?) AS snapshots,
	(SELECT COUNT(*) FROM buckets WHERE tenant = ?) AS buckets,
	(SELECT COUNT(*) FROM backups WHERE tenant = ?) AS backups,
	(SELECT COALESCE(SUM(stored_bytes), 0) FROM backups WHERE tenant = ?) AS backup_bytes FROM volumes
	WHERE tenant = ? AND ` + stored + ` AND NOT foreign_made`

// Tenants lists the tenants in the caller's scope by name, starting after a name.
func (s *Store) Tenants(ctx context.Context, after string, limit int) ([]Tenant, error) {
	scope := db.All()
	if c := caller.From(ctx); !c.SeesAll() {
		scope = db.Where("name = ?", c.Tenant)
	}
	condition, args := scope.And("name > ?", after).SQL()
	var all []Tenant
	err := s.db.Select(ctx, &all, "SELECT * FROM tenants WHERE "+condition+" ORDER BY name LIMIT ?",
		append(args, limit)...)
	for i := 0; i < len(all) && err == nil; i++ {
		err = s.db.Get(ctx, &all[i].Used, selectUse, of(all[i].Name)...)
	}
	return all, err
}

// Tenant returns a tenant in the caller's scope.
func (s *Store) Tenant(ctx context.Context, name string) (Tenant, error) {
	return tenantIn(ctx, s.db, name, "")
}

func tenantIn(ctx context.Context, q db.Querier, name, lock string) (t Tenant, err error) {
	err = db.ErrNoRows
	if name != "" && caller.From(ctx).Sees(name) {
		err = q.Get(ctx, &t, "SELECT * FROM tenants WHERE name = ?"+lock, name)
	}
	if err := db.NotFound(err, "there is no such tenant"); err != nil {
		return t, err
	}
	return t, q.Get(ctx, &t.Used, selectUse, of(name)...)
}

// PutTenant adds a tenant, or replaces its description and limits.
func (s *Store) PutTenant(ctx context.Context, t Tenant) (out Tenant, err error) {
	if err := tenant.CheckName("name", t.Name); err != nil {
		return out, err
	}
	t.CreatedAt = db.At(s.now())
	err = s.update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO tenants (name, description, max_volumes, max_bytes, max_snapshots, created_at)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET description = excluded.description,
			max_volumes = excluded.max_volumes, max_bytes = excluded.max_bytes, max_snapshots = excluded.max_snapshots`,
			t.Name, t.Description, t.MaxVolumes, t.MaxBytes, t.MaxSnapshots, t.CreatedAt); err != nil {
			return err
		}
		if err := s.note(ctx, tx, audit.Entry{Action: "tenant.put", Target: t.Name, Tenant: t.Name}); err != nil {
			return err
		}
		out, err = tenantIn(ctx, tx, t.Name, "")
		return err
	})
	return out, err
}

// of returns the arguments of selectUse.
func of(tenant string) []any { return []any{tenant, tenant, tenant, tenant, tenant, tenant} }

// DeleteTenant removes a tenant that has no volumes, snapshots, buckets and backups.
func (s *Store) DeleteTenant(ctx context.Context, name string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		t, err := tenantIn(ctx, tx, name, tx.ForUpdate())
		if err != nil {
			return err
		}
		if t.Used != (Use{}) {
			return fault.New(fault.Conflict, "the tenant has %d volumes with those in the trash, %d snapshots, %d buckets and "+
				"%d backups; delete them first", t.Used.Volumes, t.Used.Snapshots, t.Used.Buckets, t.Used.Backups)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM tenants WHERE name = ?", name); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "tenant.delete", Target: name, Tenant: name})
	})
}

// admit checks that a tenant may have more, and locks the tenant until the end of the transaction. field is where
// the request named the tenant. Storage of no tenant has no limits.
func (s *Store) admit(ctx context.Context, tx *db.Tx, field, tenant string, more Use) error {
	if tenant == "" {
		return nil
	}
	t, err := tenantIn(caller.ByItself(ctx), tx, tenant, tx.ForUpdate())
	if fault.Is(err, fault.NotFound) {
		return fault.InvalidField(field, "there is no tenant %s", tenant)
	}
	if err != nil {
		return err
	}
	return t.Check(more)
}
