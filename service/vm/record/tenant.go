package record

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/tenant"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Tenant owns VMs. Limits are nil where there is none.
type Tenant struct {
	Name         string  `db:"name"`
	Description  string  `db:"description"`
	MaxVMs       *int64  `db:"max_vms"`
	MaxCPUs      *int64  `db:"max_cpus"`
	MaxMemory    *int64  `db:"max_memory"` // MiB
	MaxDisk      *int64  `db:"max_disk"`   // GiB
	MaxSnapshots *int64  `db:"max_snapshots"`
	MaxBackups   *int64  `db:"max_backup_bytes"`
	CreatedAt    db.Time `db:"created_at"`
	Needs        int64   `db:"backup_needs"`    // bytes, see Use.BackupBytes
	NeedsAt      db.Time `db:"backup_needs_at"` // zero: not counted yet

	Used Use `db:"-"`
}

// Use is how much the VMs of a tenant have together.
type Use struct {
	VMs       int64 `db:"vms"`
	CPUs      int64 `db:"cpus"`
	Memory    int64 `db:"memory"` // MiB
	Disk      int64 `db:"disk"`   // GiB
	Snapshots int64 `db:"snapshots"`
	// BackupBytes is what the backups of the tenant need in the repository, also those of deleted VMs: as the last
	// prune has counted it, and what backups have added since. One that is deleted counts until the next prune:
	// others may need what it has brought. What unfinished ones have left counts until it is removed.
	BackupBytes int64 `db:"backup_bytes"`
}

// Check returns a fault that names the first limit that a tenant would exceed with more, and how
// much is left of it.
func (t *Tenant) Check(more Use) error {
	for _, l := range []struct {
		name, unit      string
		limit           *int64
		used, requested int64
	}{
		{"vms", "VMs", t.MaxVMs, t.Used.VMs, more.VMs},
		{"cpus", "CPUs", t.MaxCPUs, t.Used.CPUs, more.CPUs},
		{"memory", "MiB of memory", t.MaxMemory, t.Used.Memory, more.Memory},
		{"disk", "GiB of disk", t.MaxDisk, t.Used.Disk, more.Disk},
		{"snapshots", "snapshots", t.MaxSnapshots, t.Used.Snapshots, more.Snapshots},
		{"backup_bytes", "or more bytes of backups", t.MaxBackups, t.Used.BackupBytes, more.BackupBytes},
	} {
		if l.limit == nil || l.requested <= 0 || l.requested <= *l.limit-l.used {
			continue
		}
		return fault.New(fault.Denied, "quota %s of tenant %s: %d %s requested, %d of %d left",
			l.name, t.Name, l.requested, l.unit, max(0, *l.limit-l.used), *l.limit)
	}
	return nil
}

const selectUse = `SELECT COUNT(*) AS vms, COALESCE(SUM(cpus), 0) AS cpus, COALESCE(SUM(memory), 0) AS memory,
	COALESCE(SUM(disk + data_disk), 0) AS disk, (SELECT COUNT(*) FROM snapshots s JOIN vms v ON v.id = s.vm_id
	WHERE v.tenant = ? AND v.deleted_at IS NULL) AS snapshots, (SELECT COALESCE(MAX(t.backup_needs), 0) FROM tenants t
	WHERE t.name = ?) + (SELECT COALESCE(SUM(size_bytes), 0) FROM backups b JOIN tenants t ON t.name = b.tenant
	WHERE b.tenant = ? AND (t.backup_needs_at IS NULL OR b.finished_at > t.backup_needs_at)) + (SELECT
	COALESCE(SUM(bytes), 0) FROM backup_leavings WHERE tenant = ? AND until > ?) AS backup_bytes
	FROM vms WHERE tenant = ? AND deleted_at IS NULL`

// readUse reads what a tenant has.
func (s *Store) readUse(ctx context.Context, q db.Querier, t *Tenant) error {
	return q.Get(ctx, &t.Used, selectUse, t.Name, t.Name, t.Name, t.Name, db.At(s.now()), t.Name)
}

// Tenants lists the tenants in the caller's scope by name, starting after a name.
func (s *Store) Tenants(ctx context.Context, after string, limit int) ([]Tenant, error) {
	c := caller.From(ctx)
	scope := db.Where("name = ?", c.Tenant)
	if c.SeesAll() {
		scope = db.All()
	}
	condition, args := scope.And("name > ?", after).SQL()
	var all []Tenant
	err := s.db.Select(ctx, &all, "SELECT * FROM tenants WHERE "+condition+" ORDER BY name LIMIT ?",
		append(args, limit)...)
	for i := 0; i < len(all) && err == nil; i++ {
		err = s.readUse(ctx, s.db, &all[i])
	}
	return all, err
}

// Tenant returns a tenant in the caller's scope.
func (s *Store) Tenant(ctx context.Context, name string) (Tenant, error) {
	return s.tenantIn(ctx, s.db, name, "")
}

func (s *Store) tenantIn(ctx context.Context, q db.Querier, name, lock string) (t Tenant, err error) {
	if c := caller.From(ctx); c.SeesAll() || c.Tenant == name && c.Tenant != "" {
		err = q.Get(ctx, &t, "SELECT * FROM tenants WHERE name = ?"+lock, name)
	} else {
		err = db.ErrNoRows
	}
	if err := db.NotFound(err, "there is no such tenant"); err != nil {
		return t, err
	}
	return t, s.readUse(ctx, q, &t)
}

// leavingsLife is how long what an unfinished backup has left counts: two hourly prunes, with their grace period
// between them, have removed it by then.
const leavingsLife = 4 * time.Hour

// LeaveBackup stores that an unfinished backup of a tenant has left bytes in the repository.
func (s *Store) LeaveBackup(ctx context.Context, tenant string, bytes int64) error {
	if tenant == "" || bytes <= 0 {
		return nil
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO backup_leavings (id, tenant, bytes, until) VALUES (?, ?, ?, ?)",
			NewID(), tenant, bytes, db.At(s.now().Add(leavingsLife)))
		return err
	})
}

// ForgetLeavings forgets what unfinished backups have left and prunes have removed.
func (s *Store) ForgetLeavings(ctx context.Context) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM backup_leavings WHERE until <= ?", db.At(s.now()))
		return err
	})
}

// SetBackupNeeds stores what the backups of tenants need in the repository, as it was counted at a time.
func (s *Store) SetBackupNeeds(ctx context.Context, needs map[string]int64, at time.Time) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		for tenant, bytes := range needs {
			if _, err := tx.Exec(ctx, "UPDATE tenants SET backup_needs = ?, backup_needs_at = ? WHERE name = ?",
				bytes, db.At(at), tenant); err != nil {
				return err
			}
		}
		return nil
	})
}

// BackupBytesLeft returns how many bytes the backups of a tenant may still add to the repository, or nil if there is
// no limit.
func (s *Store) BackupBytesLeft(ctx context.Context, tenant string) (*int64, error) {
	if tenant == "" {
		return nil, nil
	}
	t, err := s.tenantIn(caller.ByItself(ctx), s.db, tenant, "")
	if err != nil || t.MaxBackups == nil {
		return nil, err
	}
	return new(*t.MaxBackups - t.Used.BackupBytes), nil
}

// errRetired is the fault for the name of a tenant that was deleted.
var errRetired = fault.New(fault.Conflict, "there was a tenant of this name, of which jobs, usage, invoices and the "+
	"audit log are kept; choose another name, or revive the tenant (revive), which then has them").WithCode("tenant_retired")

// CheckRetired fails with Conflict if a name is that of a tenant that was deleted.
func (s *Store) CheckRetired(ctx context.Context, name string) error {
	return checkRetired(ctx, s.db, name)
}

func checkRetired(ctx context.Context, q db.Querier, name string) error {
	var retired bool
	err := q.Get(ctx, &retired, "SELECT EXISTS (SELECT 1 FROM retired_tenants WHERE name = ?)", name)
	if err == nil && retired {
		err = errRetired
	}
	return err
}

// PutTenant adds a tenant, or replaces its description and limits. revive brings back one that was deleted.
func (s *Store) PutTenant(ctx context.Context, t Tenant, revive bool) (out Tenant, err error) {
	if err := CheckTenant("name", t.Name); err != nil {
		return out, err
	}
	t.CreatedAt = db.At(s.now())
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if revive {
			if _, err := tx.Exec(ctx, "DELETE FROM retired_tenants WHERE name = ?", t.Name); err != nil {
				return err
			}
		}
		if err := checkRetired(ctx, tx, t.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO tenants (name, description, max_vms, max_cpus, max_memory, max_disk,
			max_snapshots, max_backup_bytes, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET
			description = excluded.description, max_vms = excluded.max_vms, max_cpus = excluded.max_cpus,
			max_memory = excluded.max_memory, max_disk = excluded.max_disk, max_snapshots = excluded.max_snapshots,
			max_backup_bytes = excluded.max_backup_bytes`,
			t.Name, t.Description, t.MaxVMs, t.MaxCPUs, t.MaxMemory, t.MaxDisk, t.MaxSnapshots, t.MaxBackups,
			t.CreatedAt); err != nil {
			return err
		}
		if err := s.note(ctx, tx, audit.Entry{Action: "tenant.put", Target: t.Name, Tenant: t.Name}); err != nil {
			return err
		}
		out, err = s.tenantIn(ctx, tx, t.Name, "")
		return err
	})
	return out, err
}

// DeleteTenant removes a tenant that has no VMs, no images and no backups, and retires its name. users is called
// in the transaction, and fails if the tenant has users.
func (s *Store) DeleteTenant(ctx context.Context, name string, users func(tx *db.Tx) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		t, err := s.tenantIn(ctx, tx, name, tx.ForUpdate())
		if err != nil {
			return err
		}
		if t.Used.VMs > 0 {
			return fault.New(fault.Conflict, "tenant %s has %d VMs; delete them first", name, t.Used.VMs)
		}
		var backups int
		if err := tx.Get(ctx, &backups, `SELECT COUNT(*) FROM backups WHERE tenant = ?
			AND (repo_id <> '' OR status IN ('pending', 'running'))`, name); err != nil {
			return err
		}
		if backups > 0 {
			return fault.New(fault.Conflict, "tenant %s has %d backups; delete them first", name, backups)
		}
		if err := tenantHasNoImages(ctx, tx, name); err != nil {
			return err
		}
		if err := users(tx); err != nil {
			return err
		}
		for _, statement := range []string{
			"DELETE FROM backups WHERE tenant = ?", "DELETE FROM backup_policies WHERE tenant = ?",
		} {
			if _, err := tx.Exec(ctx, statement, name); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "DELETE FROM tenants WHERE name = ?", name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO retired_tenants (name, retired_at) VALUES (?, ?)", name, db.At(s.now())); err != nil {
			return err
		}
		if err := s.deleteDocuments(ctx, tx, name); err != nil {
			return err
		}
		if err := s.deleteOfTenant(ctx, tx, name); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "tenant.delete", Target: name, Tenant: name})
	})
}

// admit locks a tenant, adds it if it is new, and checks that it may have more. tenant may be
// empty, which has no limits.
func (s *Store) admit(ctx context.Context, tx *db.Tx, tenant string, more Use) error {
	if tenant == "" {
		return nil
	}
	if err := checkRetired(ctx, tx, tenant); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO tenants (name, description, created_at) VALUES (?, '', ?)
		ON CONFLICT DO NOTHING`, tenant, db.At(s.now())); err != nil {
		return err
	}
	t, err := s.tenantIn(caller.ByItself(ctx), tx, tenant, tx.ForUpdate())
	if err != nil {
		return err
	}
	return t.Check(more)
}

// CheckTenant returns a fault that names the field if name is not a valid name of a tenant.
func CheckTenant(field, name string) error { return tenant.CheckName(field, name) }
