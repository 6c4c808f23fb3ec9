package backup

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/nbd"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const (
	// trialLimit is how long a guest may take from its start until its agent answers.
	trialLimit = 10 * time.Minute
	// trialLife is when the daemon removes the VM of a trial, if this service was killed.
	trialLife = trialLimit + 10*time.Minute
	// trialWrites is how much a guest may write while it boots, in bytes. It is kept in memory.
	trialWrites = 256 << 20
)

// bootArgs are the arguments of the job that boots a backup.
type bootArgs struct {
	Backup string `json:"backup"`
	Actor  string `json:"actor"`
}

// Boot begins the job that boots a backup and asks its agent.
func (m *Manager) Boot(ctx context.Context, id string) (record.Job, error) {
	j := record.NewJob(record.JobBoot, &record.VM{})
	err := m.store.BeginBoot(ctx, id, func(tx *db.Tx, b *record.Backup) error {
		if !b.Restorable() {
			return fault.New(fault.Conflict, "the backup is %s; only one that is completed can be booted", b.Status)
		}
		j.VM, j.VMName, j.Tenant, j.Backup = b.VM, b.VMName, b.Tenant, b.ID
		return m.jobs.Begin(ctx, tx, &j, bootArgs{Backup: b.ID, Actor: caller.From(ctx).Person()})
	})
	if err != nil {
		return j, err
	}
	return m.store.Job(ctx, j.ID)
}

// BootOne begins to boot a backup if none was booted for an interval; 0: never.
func (m *Manager) BootOne(ctx context.Context) error {
	if m.bootInterval == 0 {
		return nil
	}
	ctx = caller.ByItself(ctx)
	b, err := m.store.NextBoot(ctx, m.now().Add(-m.bootInterval))
	if b == nil || err != nil {
		return err
	}
	_, err = m.Boot(ctx, b.ID)
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
		return nil // one is being booted, or it was deleted a moment ago
	}
	return err
}

// boot is the job backup.boot.
func (m *Manager) boot(ctx context.Context, a bootArgs, _ func(float64)) error {
	ctx = caller.Acting(ctx, a.Actor)
	b, err := m.store.Backup(ctx, a.Backup)
	if fault.Is(err, fault.NotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	failed, err := m.trial(ctx, &b)
	if ctx.Err() != nil {
		return context.Cause(ctx) // cancelled or broken off, which says nothing about the backup
	}
	outcome, why, message := record.BootPassed, "", ""
	switch {
	case err != nil:
		outcome, why = record.BootUntried, fault.From(err).Message
	case failed != nil:
		outcome, why = record.BootFailed, fault.From(failed).Message
		message = "backup " + b.ID + " did not boot: " + why
	}
	if _, noted := m.store.ChangeBackup(ctx, b.ID, message, func(b *record.Backup) error {
		b.Boot, b.BootError, b.BootedAt = outcome, why, db.At(m.now())
		return nil
	}); noted != nil && !fault.Is(noted, fault.NotFound) {
		return noted
	}
	if err == nil && failed != nil {
		err = fault.New(fault.Conflict, "the backup did not boot: %s", why)
	}
	return err
}

// trial boots a backup. failed is why it did not boot; err is why that could not be found out.
func (m *Manager) trial(ctx context.Context, b *record.Backup) (failed, err error) {
	disk, s, err := m.openDisk(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { _ = disk.Close() }() // it was only read
	spec := driver.Reader{Tenant: b.Tenant, For: b.ID, CPUs: max(1, s.CPUs), Memory: max(64, s.Memory), Life: trialLife}
	kernel, err := m.driver.BootsKernel(ctx, s.Spec.Image)
	if err != nil {
		return nil, err
	}
	if kernel {
		spec.Kernel = s.Spec.Image // the disk has none
	}
	at, err := m.driver.MakeReader(ctx, spec)
	if at.ID != "" {
		defer m.removeTrial(ctx, at)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn, err := m.driver.ServeDisk(ctx, at)
	if err != nil {
		return nil, err
	}
	served := routine.Start(m.log, "backup disk", func() error {
		defer cancel(errUnserved)
		return nbd.Serve(ctx, conn, nbd.NewOverlay(disk, trialWrites))
	})
	defer func() {
		_ = conn.Close() // which ends Serve
		if err := <-served; err != nil && ctx.Err() == nil {
			m.log.Debug("the disk of a backup is not served any more", "backup", b.ID, "error", err)
		}
	}()
	if _, err := m.driver.Start(ctx, at, driver.StartOptions{}); err != nil {
		return nil, err
	}
	err = m.driver.AwaitAgent(ctx, at, trialLimit)
	switch {
	case err == nil:
		return nil, nil
	case disk.Damage() != nil: // whatever the guest made of it
		return disk.Damage(), nil
	case errors.Is(context.Cause(ctx), errUnserved):
		return nil, errUnserved
	case driver.Unbootable(err):
		return err, nil
	}
	return nil, err
}

// errUnserved is the fault for a trial during which the hypervisor daemon closed the connection to the disk.
var errUnserved = fault.New(fault.Unavailable, "the hypervisor daemon closed the connection to the disk; it may have been restarted")

// removeTrial removes the VM of a trial.
func (m *Manager) removeTrial(ctx context.Context, at driver.Place) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := m.driver.RemoveReader(ctx, at); err != nil {
		m.log.Warn("a VM that booted a backup was not removed; that is tried again", "vm", at.ID, "node", at.Node, "error", err)
	}
}

// openDisk opens the disk of a backup, and reads the settings of its VM.
func (m *Manager) openDisk(ctx context.Context, b *record.Backup) (*Disk, settings, error) {
	var s settings
	disk, err := m.OpenDisk(ctx, b)
	if err != nil {
		return nil, s, err
	}
	return disk, s, json.Unmarshal(disk.view.Backup.Config, &s) // which OpenDisk has read, too
}
