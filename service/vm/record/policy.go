package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// PolicySpec says which VMs a backup policy is for, when it runs, and what it keeps.
type PolicySpec struct {
	Tags          []string `json:"tags"`
	Schedule      string   `json:"schedule"` // daily, weekly or monthly
	Time          string   `json:"time"`     // HH:MM
	Timezone      string   `json:"timezone"` // of the IANA database
	Weekday       string   `json:"weekday"`
	Day           int      `json:"day"`
	Kind          string   `json:"kind"` // of backup
	RetentionDays int      `json:"retention_days"`
	KeepLast      int      `json:"keep_last"`
	KeepDaily     int      `json:"keep_daily"`
	KeepWeekly    int      `json:"keep_weekly"`
	KeepMonthly   int      `json:"keep_monthly"`
}

// Policy is a backup policy.
type Policy struct {
	ID         string              `db:"id"`
	Tenant     string              `db:"tenant"` // whose VMs; empty: those of all
	Name       string              `db:"name"`
	Spec       db.JSON[PolicySpec] `db:"spec"`
	Enabled    bool                `db:"enabled"`
	CreatedAt  db.Time             `db:"created_at"`
	NextRunAt  db.Time             `db:"next_run_at"` // none unless it is enabled
	LastRunAt  db.Time             `db:"last_run_at"`
	LastResult string              `db:"last_result"`
}

var errPolicyName = fault.New(fault.Conflict, "there is a policy of this name already")

// Policies lists the backup policies in the caller's scope by name.
func (s *Store) Policies(ctx context.Context) (all []Policy, err error) {
	condition, args := caller.From(ctx).Scope().SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM backup_policies WHERE "+condition+" ORDER BY name, tenant", args...)
}

// Policy returns a backup policy in the caller's scope.
func (s *Store) Policy(ctx context.Context, id string) (Policy, error) {
	return policyIn(ctx, s.db, id, "")
}

func policyIn(ctx context.Context, q db.Querier, id, lock string) (p Policy, err error) {
	err = q.Get(ctx, &p, "SELECT * FROM backup_policies WHERE id = ?"+lock, id)
	if err == nil && !caller.From(ctx).Sees(p.Tenant) {
		err = db.ErrNoRows
	}
	return p, db.NotFound(err, "there is no such policy")
}

// maxPolicies is how many backup policies there may be.
const maxPolicies = 1000

// AddPolicy stores a backup policy.
func (s *Store) AddPolicy(ctx context.Context, p Policy) (Policy, error) {
	p.ID, p.CreatedAt = NewID(), db.At(s.now())
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		var n int
		if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM backup_policies"); err != nil {
			return err
		}
		if n >= maxPolicies {
			return fault.New(fault.Conflict, "there are %d backup policies, the most that there may be", maxPolicies)
		}
		if err := tx.Insert(ctx, "backup_policies", p); db.IsUnique(err) {
			return errPolicyName
		} else if err != nil {
			return err
		}
		return s.notePolicy(ctx, tx, "backup-policy.create", &p)
	})
	return p, err
}

// ReplacePolicy replaces what a backup policy says. Its tenant stays.
func (s *Store) ReplacePolicy(ctx context.Context, id string, with Policy) (out Policy, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		p, err := policyIn(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		p.Name, p.Spec, p.Enabled, p.NextRunAt = with.Name, with.Spec, with.Enabled, with.NextRunAt
		_, err = tx.Exec(ctx, "UPDATE backup_policies SET name = ?, spec = ?, enabled = ?, next_run_at = ? WHERE id = ?",
			p.Name, p.Spec, p.Enabled, p.NextRunAt, id)
		if db.IsUnique(err) {
			return errPolicyName
		}
		if err != nil {
			return err
		}
		out = p
		return s.notePolicy(ctx, tx, "backup-policy.update", &p)
	})
	return out, err
}

// RemovePolicy removes a backup policy. Its backups stay.
func (s *Store) RemovePolicy(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		p, err := policyIn(ctx, tx, id, tx.ForUpdate())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM backup_policies WHERE id = ?", id); err != nil {
			return err
		}
		return s.notePolicy(ctx, tx, "backup-policy.delete", &p)
	})
}

func (s *Store) notePolicy(ctx context.Context, tx *db.Tx, action string, p *Policy) error {
	return s.note(ctx, tx, audit.Entry{Action: action, Target: p.ID, Tenant: p.Tenant, Message: p.Name})
}

// DuePolicy claims a policy whose time has come, by storing when it runs next, or returns nil if
// there is none. Of several replicas, one gets it.
func (s *Store) DuePolicy(ctx context.Context, next func(p *Policy) (db.Time, error)) (due *Policy, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		due = nil
		var all []Policy
		if err := tx.Select(ctx, &all, `SELECT * FROM backup_policies WHERE enabled AND next_run_at <= ?
			ORDER BY next_run_at, id LIMIT 1`+tx.ForUpdate(), db.At(s.now())); err != nil || len(all) == 0 {
			return err
		}
		p := all[0]
		if p.NextRunAt, err = next(&p); err != nil {
			return err
		}
		p.LastRunAt, due = db.At(s.now()), &p
		_, err := tx.Exec(ctx, "UPDATE backup_policies SET next_run_at = ?, last_run_at = ? WHERE id = ?",
			p.NextRunAt, p.LastRunAt, p.ID)
		return err
	})
	return due, err
}

// PolicyRan stores what a run of a policy has done.
func (s *Store) PolicyRan(ctx context.Context, id, result string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE backup_policies SET last_result = ? WHERE id = ?", result, id)
		return err
	})
}

// Tagged lists the VMs of a policy, beginning after an id.
func (s *Store) Tagged(ctx context.Context, p *Policy, after string, limit int) (all []VM, err error) {
	scope := db.Where("deleted_at IS NULL").And("id > ?", after)
	if p.Tenant != "" {
		scope = scope.And("tenant = ?", p.Tenant)
	}
	marks, tags := "", []any{}
	for i, tag := range p.Spec.V.Tags {
		if i > 0 {
			marks += ", "
		}
		marks, tags = marks+"?", append(tags, tag)
	}
	scope = scope.And("EXISTS (SELECT 1 FROM vm_tags t WHERE t.vm_id = vms.id AND t.tag IN ("+marks+"))", tags...)
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM vms WHERE "+condition+" ORDER BY id LIMIT ?", append(args, limit)...)
}
