package backup

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Expire removes backups whose time is over.
func (m *Manager) Expire(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	const page = 100
	all, err := m.store.ExpiredBackups(ctx, page)
	for i := 0; i < len(all) && err == nil && ctx.Err() == nil; i++ {
		if failed := m.Delete(ctx, all[i].ID); failed != nil && !fault.Is(failed, fault.NotFound) {
			m.log.Warn("an expired backup was not removed yet", "backup", all[i].ID, "error", failed)
		}
	}
	return err
}

// Prune frees the room of removed backups.
func (m *Manager) Prune(ctx context.Context) error {
	repo, err := m.open(ctx, false)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	began := m.now()
	report, err := repo.Prune(ctx, repository.PruneOptions{})
	if counted := m.count(ctx, repo, report, began); counted != nil {
		err = errors.Join(err, counted)
	}
	if report.Removed > 0 {
		m.log.Info("the backup repository has less to keep", "removed", report.Removed, "freed_bytes", report.Freed)
	}
	return err
}

// count stores what the backups of each tenant need in the repository, by which quotas are judged.
func (m *Manager) count(
	ctx context.Context, repo *repository.Repository, report repository.PruneReport, at time.Time,
) error {
	const page = 1000
	needs := map[string]int64{}
	for after := ""; ; {
		all, err := m.store.Tenants(caller.ByItself(ctx), after, page)
		if err != nil {
			return err
		}
		for i := range all {
			after = all[i].Name
			if bytes, ok := report.Needs[repo.Place(owner(after))]; ok {
				needs[after] = bytes
			}
		}
		if len(all) < page {
			return errors.Join(m.store.SetBackupNeeds(ctx, needs, at), m.store.ForgetLeavings(ctx))
		}
	}
}

// ScanReport says what a scan has found.
type ScanReport struct{ Found, Added, Damaged int }

// Scan takes in the backups that are in the repository and not known: those of an installation that
// was lost.
func (m *Manager) Scan(ctx context.Context) (ScanReport, error) {
	if err := m.store.NoteRepository(ctx, "backup.scan"); err != nil {
		return ScanReport{}, err
	}
	return m.scan(ctx)
}

func (m *Manager) scan(ctx context.Context) (out ScanReport, err error) {
	repo, err := m.open(ctx, false)
	if errors.Is(err, errNone) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	all, problems, err := repo.ListAll(ctx)
	if err != nil {
		return out, err
	}
	out.Found, out.Damaged = len(all), len(problems)
	unfinished, err := m.store.UnfinishedBackups(ctx)
	if err != nil {
		return out, err
	}
	for _, found := range all {
		b := rowOf(found)
		var s settings
		if json.Unmarshal(found.Config, &s) != nil {
			out.Damaged++
			continue
		}
		if unfinished[s.Backup] {
			continue // its job has committed it a moment ago
		}
		b.ID, b.Description, b.RetentionDays, b.Policy = s.Backup, s.Description, s.RetentionDays, s.Policy
		b.LeftOut.V = s.LeftOut
		if b.ID == "" {
			b.ID = record.NewID()
		}
		if b.RetentionDays > 0 {
			b.ExpiresAt = db.At(found.Taken.AddDate(0, 0, b.RetentionDays))
		}
		added, err := m.store.AdoptBackup(ctx, b)
		if fault.Is(err, fault.Invalid) { // one that the database cannot store does not keep out the others
			m.log.Warn("a backup of the repository was not taken in", "backup", b.RepoID, "error", err)
			out.Damaged++
			continue
		}
		if err != nil {
			return out, err
		}
		if added {
			out.Added++
		}
	}
	return out, nil
}

// ScanAtStart is Scan for an installation that has no backups, as a new one on an old repository.
func (m *Manager) ScanAtStart(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	known, err := m.store.RepositoryBackups(ctx)
	if err != nil || len(known) > 0 {
		return
	}
	switch found, err := m.scan(ctx); {
	case err != nil:
		m.log.Warn("the backup repository could not be looked at", "error", err)
	case found.Added > 0:
		m.log.Info("backups of an earlier installation were taken in", "backups", found.Added)
	}
}

// Verify begins the job that reads everything back.
func (m *Manager) Verify(ctx context.Context) (record.Job, error) {
	if _, err := m.open(ctx, false); err != nil {
		if errors.Is(err, errNone) {
			err = fault.New(fault.Conflict, "%s", errNone.Message)
		}
		return record.Job{}, err
	}
	j := record.NewJob(record.JobVerify, &record.VM{})
	err := m.store.BeginVerify(ctx, func(tx *db.Tx) error {
		return m.jobs.Begin(ctx, tx, &j, struct{}{})
	})
	if err != nil {
		return j, err
	}
	return m.store.Job(ctx, j.ID)
}

// verify is the job backup.verify.
func (m *Manager) verify(ctx context.Context, _ struct{}, progress func(float64)) error {
	ctx = caller.ByItself(ctx)
	repo, err := m.open(ctx, false)
	if err != nil {
		return err
	}
	all, err := m.store.RepositoryBackups(ctx)
	if err != nil {
		return err
	}
	known := map[string][]repository.ID{}
	byID := map[repository.ID]record.Backup{}
	for _, b := range all {
		id, err := repository.ParseID(b.RepoID)
		if err != nil {
			return err
		}
		known[owner(b.Tenant)], byID[id] = append(known[owner(b.Tenant)], id), b
	}
	report, err := repo.Verify(ctx, repository.VerifyOptions{Full: true, Known: known, Progress: func(done, total int64) {
		if total > 0 {
			progress(float64(done) / float64(total))
		}
	}})
	if err != nil {
		return err
	}
	at := db.At(m.now())
	for id, b := range byID {
		why, damaged := report.Damaged[id]
		if damaged == (b.Status == record.BackupDamaged) && damaged {
			continue // that is known
		}
		message := ""
		if damaged {
			message = "backup " + b.ID + " is damaged: " + why
		}
		if _, err := m.store.ChangeBackup(ctx, b.ID, message, func(b *record.Backup) error {
			if !b.Restorable() {
				return nil
			}
			if b.Status, b.Error = record.BackupDamaged, why; !damaged {
				b.Status, b.Error, b.VerifiedAt = record.BackupCompleted, "", at
			}
			return nil
		}); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	if report.Err() != nil {
		first := report.Problems[0]
		return fault.New(fault.Conflict, "%d backups are damaged, and %d objects of the repository are not as they must be; "+
			"the first is %s: %s", len(report.Damaged), len(report.Problems), first.Object, first.Reason)
	}
	return nil
}
