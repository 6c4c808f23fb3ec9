package backup

import (
	"context"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// CheckPolicy checks a policy and sets when it runs next.
func (m *Manager) CheckPolicy(p *record.Policy) error {
	next, err := nextRun(&p.Spec.V, m.now())
	if err != nil {
		return err
	}
	if p.NextRunAt = (db.Time{}); p.Enabled {
		p.NextRunAt = db.At(next)
	}
	return nil
}

// RunPolicies begins the backups of policies whose time has come. A policy whose runs were missed
// while no service was running runs once.
func (m *Manager) RunPolicies(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	for ctx.Err() == nil {
		p, err := m.store.DuePolicy(ctx, func(p *record.Policy) (db.Time, error) {
			next, err := nextRun(&p.Spec.V, m.now())
			return db.At(next), err
		})
		if p == nil || err != nil {
			return err
		}
		result, err := m.runPolicy(ctx, p)
		if err != nil {
			result += "; " + fault.From(err).Message
			m.log.Warn("a backup policy did not run to its end", "policy", p.Name, "error", err)
		}
		if err := m.store.PolicyRan(context.WithoutCancel(ctx), p.ID, result); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// maxReasons is how many VMs a policy's result names that were not backed up.
const maxReasons = 5

func (m *Manager) runPolicy(ctx context.Context, p *record.Policy) (result string, err error) {
	const page = 100
	begun, missed, reasons := 0, 0, ""
	for after := ""; ; {
		var all []record.VM
		if all, err = m.store.Tagged(ctx, p, after, page); err != nil {
			break
		}
		for i := range all {
			after = all[i].ID
			_, _, failed := m.Create(ctx, all[i].ID, Request{
				Kind: p.Spec.V.Kind, Policy: p.ID, RetentionDays: p.Spec.V.RetentionDays, Description: "policy " + p.Name,
			})
			if failed == nil {
				begun++
				continue
			}
			if missed++; missed <= maxReasons {
				reasons += fmt.Sprintf("; %s: %s", all[i].Name, fault.From(failed).Message)
			}
		}
		if len(all) < page {
			break
		}
	}
	result = fmt.Sprintf("%d begun", begun)
	if missed > 0 {
		result += fmt.Sprintf(", %d not", missed)
	}
	return result + reasons, err
}

// thinAfter removes the backups of a VM that its policy does not keep any more. It is best effort:
// the next backup does it again.
func (m *Manager) thinAfter(ctx context.Context, b *record.Backup) {
	if b.Policy == "" {
		return
	}
	ctx = caller.ByItself(context.WithoutCancel(ctx))
	p, err := m.store.Policy(ctx, b.Policy)
	if fault.Is(err, fault.NotFound) {
		return // its backups stay
	}
	if err == nil {
		err = m.thin(ctx, &p, b.VM)
	}
	if err != nil {
		m.log.Warn("backups that a policy does not keep were not removed", "policy", b.Policy, "vm", b.VM, "error", err)
	}
}

// thin removes the backups of a VM that a policy does not keep.
func (m *Manager) thin(ctx context.Context, p *record.Policy, vm string) error {
	s := &p.Spec.V
	keep := repository.Policy{Last: s.KeepLast, Daily: s.KeepDaily, Weekly: s.KeepWeekly, Monthly: s.KeepMonthly}
	if keep == (repository.Policy{}) {
		return nil // by age only
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return err
	}
	all, err := m.store.BackupsOf(ctx, p.ID)
	if err != nil {
		return err
	}
	var dated []repository.Dated
	byID := map[repository.ID]*record.Backup{}
	for i := range all {
		b := &all[i]
		id, err := repository.ParseID(b.RepoID)
		if b.VM != vm || b.Status != record.BackupCompleted || err != nil {
			continue // a damaged backup does not count, so that whole ones stay
		}
		byID[id] = b
		dated = append(dated, repository.Dated{ID: id, Taken: b.CreatedAt.Time, ProtectedUntil: b.ProtectedTill.Time})
	}
	kept := repository.Keepers(dated, keep, m.now(), zone)
	for id, b := range byID {
		if kept[id] == nil {
			if err := m.Delete(ctx, b.ID); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
	}
	return nil
}
