package backup

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// RestoreRequest is what is to be restored.
type RestoreRequest struct {
	Backup        string
	Target        string // the name of a new VM; empty: in place
	Config, Disks bool
}

// restoreArgs are the arguments of the job that restores a backup.
type restoreArgs struct {
	Backup string `json:"backup"`
	VM     string `json:"vm"`
	New    bool   `json:"new"` // the VM is made for this
	Config bool   `json:"config"`
	Disks  bool   `json:"disks"`
	Actor  string `json:"actor"`
}

// Restore begins the job that restores a backup.
func (m *Manager) Restore(ctx context.Context, q RestoreRequest) (record.Job, error) {
	b, err := m.store.Backup(ctx, q.Backup)
	switch {
	case err != nil:
		return record.Job{}, err
	case !b.Restorable():
		return record.Job{}, fault.New(fault.Conflict, "the backup is %s; only one that is completed can be restored", b.Status)
	case !q.Config && !q.Disks:
		return record.Job{}, fault.InvalidField("restore_disks", "restore the disk, the config, or both")
	case q.Target != "" && !q.Disks:
		return record.Job{}, fault.InvalidField("restore_disks", "a new VM takes the disk of the backup")
	}
	_, s, err := m.view(ctx, &b)
	if err != nil {
		return record.Job{}, err
	}
	var j record.Job
	begin := func(tx *db.Tx, r *record.VM) error {
		j = record.NewJob(record.JobRestore, r)
		j.Backup = b.ID
		return m.jobs.Begin(ctx, tx, &j, restoreArgs{
			Backup: b.ID, VM: r.ID, New: q.Target != "", Config: q.Config, Disks: q.Disks, Actor: caller.From(ctx).Person(),
		})
	}
	if q.Target == "" {
		err = m.store.BeginRestore(ctx, &b, q.Disks, begin)
	} else {
		_, err = m.store.Add(ctx, newVM(q.Target, &b, &s), "backup.restore", "made for a restore of the backup "+b.ID,
			func(tx *db.Tx, r *record.VM) error {
				if s.NetworkPolicy != nil {
					if err := m.store.GiveVMPolicy(ctx, tx, r.ID, *s.NetworkPolicy); err != nil {
						return err
					}
				}
				return begin(tx, r)
			})
	}
	if err != nil {
		return j, err
	}
	return m.store.Job(ctx, j.ID)
}

// newVM returns the row of a VM that is made of a backup.
func newVM(name string, b *record.Backup, s *settings) record.VM {
	r := record.VM{
		ID: record.NewID(), Name: name, Tenant: b.Tenant, State: record.Stopped, Description: s.About,
		CPUs: max(1, s.CPUs), Memory: max(1, s.Memory), Disk: gib(b.DiskBytes),
	}
	r.Spec.V, r.Tags.V, r.Labels.V = s.Spec, slices.Clone(s.Tags), maps.Clone(s.Labels)
	r.Spec.V.Source, r.Spec.V.Linked, r.Spec.V.Node = "", false, ""
	r.Spec.V.ImageSized = false     // the backup's disk may have grown
	r.Spec.V.Network.Forwards = nil // two VMs cannot share a port of the host
	if r.Spec.V.Backend == "" {
		r.Spec.V.Backend = "auto"
	}
	if r.Spec.V.Network.Mode == "" {
		r.Spec.V.Network.Mode = "user"
	}
	delete(r.Labels.V, record.LabelTenant)
	if b.Tenant != "" {
		if r.Labels.V == nil {
			r.Labels.V = map[string]string{}
		}
		r.Labels.V[record.LabelTenant] = b.Tenant
	}
	return r
}

// gib returns the size of a disk in GiB, rounded up.
func gib(bytes int64) int { return int((bytes + 1<<30 - 1) >> 30) }

// view opens a backup for reading, and returns the VM's settings in it.
func (m *Manager) view(ctx context.Context, b *record.Backup) (*repository.View, settings, error) {
	var s settings
	repo, err := m.open(ctx, false)
	if err != nil {
		return nil, s, err
	}
	id, err := repository.ParseID(b.RepoID)
	if err != nil {
		return nil, s, err
	}
	v, err := repo.View(ctx, owner(b.Tenant), id)
	if err != nil {
		return nil, s, err
	}
	if err := json.Unmarshal(v.Backup.Config, &s); err != nil {
		return nil, s, fault.Wrap(fault.Internal, err, "the settings in the backup cannot be read")
	}
	return v, s, nil
}

// restore is the job vm.restore.
func (m *Manager) restore(ctx context.Context, a restoreArgs, progress func(float64)) error {
	ctx = caller.Acting(ctx, a.Actor)
	r, err := m.store.VM(ctx, a.VM)
	if fault.Is(err, fault.NotFound) {
		return nil // deleted meanwhile
	}
	if err == nil {
		err = m.restoreInto(ctx, &r, a, progress)
	}
	if err == nil || job.BrokenOff(ctx) {
		return err
	}
	return m.restoreFailed(ctx, a, err)
}

// restoreFailed undoes a restore that failed, or stores why it did, and returns the error. A VM that was made for
// it has the disk of an image, and must not be taken for what was in the backup.
func (m *Manager) restoreFailed(ctx context.Context, a restoreArgs, cause error) error {
	reason := fault.From(cause).Message
	if ctx.Err() != nil {
		reason = "the job was cancelled"
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var err error
	if a.New {
		err = m.life.Discard(after, a.VM)
	} else {
		err = m.store.Failed(after, a.VM, record.Stopped, "restore failed: "+reason)
	}
	if err != nil {
		m.log.Error("the end of a restore was not stored", "vm", a.VM, "error", err)
	}
	return cause
}

// restoreCancelled ends a restore that was cancelled before it ran.
func (m *Manager) restoreCancelled(ctx context.Context, a restoreArgs) error {
	ctx = caller.ByItself(ctx)
	if a.New {
		return m.life.Discard(ctx, a.VM)
	}
	return m.store.Failed(ctx, a.VM, record.Stopped, "the restore was cancelled")
}

func (m *Manager) restoreInto(ctx context.Context, r *record.VM, a restoreArgs, progress func(float64)) error {
	b, err := m.store.Backup(ctx, a.Backup)
	if err != nil {
		return err
	}
	v, s, err := m.view(ctx, &b)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }() // it was only read
	if a.New {
		if *r, err = m.makeBare(ctx, r); err != nil {
			return err
		}
	}
	if a.Disks {
		if err := m.restoreDisk(ctx, r, v, progress); err != nil {
			return err
		}
	}
	// The disk is replaced: the rest is done, too.
	ctx = context.WithoutCancel(ctx)
	if a.Config && !a.New {
		tags := slices.Clone(s.Tags)
		labels := newVM(r.Name, &b, &s).Labels.V
		c := record.Change{
			CPUs: &s.CPUs, Memory: &s.Memory, Description: &s.About, Tags: &tags, Labels: &labels, Autostart: &s.Autostart,
		}
		if r.Job != nil {
			c.Job = r.Job.ID
		}
		if _, err := m.life.Update(ctx, r.ID, c); err != nil {
			return err
		}
	}
	seen, err := m.driver.Get(ctx, driver.PlaceOf(r))
	if err != nil {
		return err
	}
	if err := m.store.Observed(ctx, r.ID, seen, true); err != nil {
		return err
	}
	return m.store.Restored(ctx, r.ID, "restored from the backup "+b.ID)
}

// makeBare has the daemon make a VM that a backup is restored to. If the image that the VM was once
// made of is gone, the VM is made without one: its disk comes from the backup anyway.
func (m *Manager) makeBare(ctx context.Context, r *record.VM) (record.VM, error) {
	made, err := m.life.Make(ctx, r)
	if err == nil || r.Spec.V.Image == "" || !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) {
		return made, err
	}
	without := *r
	without.Spec.V.Image = ""
	made, second := m.life.Make(ctx, &without)
	if second != nil {
		return made, err // which tells more
	}
	return made, nil
}

// restoreDisk replaces the disk of a stopped VM.
func (m *Manager) restoreDisk(ctx context.Context, r *record.VM, v *repository.View, progress func(float64)) error {
	item, err := v.Item(systemDisk)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	t, err := m.driver.WriteDisk(ctx, driver.PlaceOf(r), item.Size())
	if err != nil {
		return err
	}
	err = item.WriteTo(ctx, t, repository.RestoreOptions{Progress: func(done, total int64) {
		progress(float64(done) / float64(total))
	}})
	if err != nil {
		t.Abort()
		return err
	}
	return t.Finish()
}
