package hypervisor

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// RevertSnapshot puts a VM back to a snapshot: a full one leaves it running.
func (s *Service) RevertSnapshot(ctx context.Context, id, name string) (Record, error) {
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return r, err
	}
	snap, err := s.snapshot(ctx, s.db, id, name)
	if err != nil {
		return r, err
	}
	ctx = context.WithoutCancel(ctx)
	switch {
	case snap.Kind == snapshotDisk:
		err = s.revertDisk(ctx, id, &snap)
	case r.Backend == backend.Sandbox, r.State != vm.Running && r.State != vm.Paused:
		err = s.startFrom(ctx, id, &snap)
	default:
		err = s.revertRunning(ctx, id, &snap)
	}
	if err != nil {
		return r, err
	}
	return s.record(ctx, s.db, id)
}

// revertDisk puts the disk of a VM that is stopped back.
func (s *Service) revertDisk(ctx context.Context, id string, snap *Snapshot) error {
	m := s.machines.get(id)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return err
	}
	if r.State != vm.Stopped && r.State != vm.Failed {
		return fault.New(fault.Conflict, "the VM is %s; stop it before its disk is put back, or revert to a full snapshot", r.State).WithCode("wrong_state")
	}
	// What the bitmaps noted does not fit the disk afterwards: the next backup is a full one.
	if err := s.forgetBitmaps(ctx, m, &r); err != nil {
		return err
	}
	if err := (storage.DirPool{}).Revert(ctx, s.volume(&r), snap.Name); err != nil {
		return err
	}
	_, err = s.change(ctx, id, eventDisk, "vm.snapshot.revert", "the disk is as in snapshot "+snap.Name, func(_ *db.Tx, r *Record) error { return s.measure(r) })
	return err
}

// measure corrects what a VM's row says of the size of its disk: a snapshot brings back the
// size, too, that the disk had.
func (s *Service) measure(r *Record) error {
	if r.Spec.V.DiskGiB == 0 || !r.hasDisk() {
		return nil
	}
	size, err := image.VirtualSize(s.pool(r).Disk(s.volume(r)).Target)
	if err != nil {
		return err
	}
	r.Spec.V.DiskGiB = int((size + gib - 1) / gib)
	return nil
}

// forgetBitmaps has the next backup be a full one. The VM's work is locked.
func (s *Service) forgetBitmaps(ctx context.Context, m *machine, r *Record) error {
	if err := s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE backups SET bitmap = '' WHERE vm_id = ?", r.ID)
		return err
	}); err != nil {
		return err
	}
	d, err := s.openDisk(ctx, m, r)
	if err != nil {
		return err
	}
	err = d.DropBitmaps(ctx)
	if !r.State.HasProcess() {
		err = errors.Join(err, d.Close())
	}
	return err
}

// revertRunning loads a full snapshot into a VM that runs.
func (s *Service) revertRunning(ctx context.Context, id string, snap *Snapshot) error {
	m := s.machines.get(id)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return err
	}
	return s.load(ctx, m, r, snap)
}

// load puts a VM that runs back to a full snapshot. That is stored first, so that a daemon that
// is killed meanwhile does it again: it may have left the VM halted, or half put back. The VM's
// work is locked.
func (s *Service) load(ctx context.Context, m *machine, r Record, snap *Snapshot) error {
	if err := s.setReverting(ctx, r.ID, snap.Name); err != nil {
		return err
	}
	if err := s.loadNow(ctx, m, r, snap); err != nil {
		return errors.Join(err, s.setReverting(ctx, r.ID, ""))
	}
	if r.State == vm.Paused {
		if _, err := s.move(ctx, r.ID, vm.Resume, "", "reverted to snapshot "+snap.Name, nil); err != nil {
			return err
		}
	}
	return s.reverted(ctx, r.ID, m, snap)
}

func (s *Service) loadNow(ctx context.Context, m *machine, r Record, snap *Snapshot) error {
	if err := s.forgetBitmaps(ctx, m, &r); err != nil {
		return err
	}
	d, err := s.openDisk(ctx, m, &r)
	if err != nil {
		return err
	}
	if err := s.secretOfSnapshot(ctx, r.ID, snap); err != nil {
		return err
	}
	if err := d.RevertFull(ctx, snap.Name); err != nil {
		if agreeErr := s.agree(ctx, r, "the snapshot "+snap.Name+" could not be loaded"); agreeErr != nil {
			s.log.Warn("whether a VM is halted is not known", "vm", r.ID, "error", agreeErr)
		}
		return err
	}
	return nil
}

func (s *Service) setReverting(ctx context.Context, id, snapshot string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE vms SET reverting = ? WHERE id = ?", snapshot, id)
		return err
	})
}

// startFrom starts a VM from a full snapshot. A sandbox that runs is ended before.
func (s *Service) startFrom(ctx context.Context, id string, snap *Snapshot) error {
	m := s.machines.get(id)
	if instance, ended := m.runs(); instance != nil {
		if _, err := s.move(ctx, id, vm.Stop, "", "for the snapshot "+snap.Name, nil); err != nil {
			return err
		}
		if err := s.kill(ctx, instance, ended); err != nil {
			return err
		}
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.move(ctx, id, vm.Start, "", "from the snapshot "+snap.Name, func(r *Record) { r.LastError, r.Reverting = "", snap.Name })
	if err != nil {
		return err
	}
	return s.bringUpFrom(ctx, m, r, snap)
}

// bringUpFrom starts the process of a VM in state starting from a full snapshot. The VM's work
// is locked.
func (s *Service) bringUpFrom(ctx context.Context, m *machine, r Record, snap *Snapshot) error {
	if err := s.secretOfSnapshot(ctx, r.ID, snap); err != nil {
		return err
	}
	b, err := s.backendOf(&r)
	if err != nil {
		return err
	}
	begin := func(ctx context.Context, spec *backend.Spec) (backend.Instance, error) {
		if restores, ok := b.(restorer); ok {
			return restores.Restore(ctx, spec, s.checkpointFolder(r.ID, snap.Name))
		}
		if keeper, ok := b.(backend.DiskKeeper); ok {
			return keeper.StartFrom(ctx, spec, snap.Name)
		}
		return nil, fault.New(fault.Conflict, "the backend %s has no full snapshots", r.Backend)
	}
	if _, err := s.bringUpBy(ctx, m, r, begin); err != nil {
		return err
	}
	return s.reverted(ctx, r.ID, m, snap)
}

// secretOfSnapshot has the daemon try the secret that the snapshot's memory holds, beside
// the one that the VM has now.
func (s *Service) secretOfSnapshot(ctx context.Context, id string, snap *Snapshot) error {
	old, err := s.secrets.Open(snap.Secret, id)
	if err != nil || len(old) == 0 {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		now, err := s.secretsOf(ctx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE vms SET secret = ? WHERE id = ?", s.secrets.Seal([]byte(string(old)+"\n"+now[0]), id), id)
		return err
	})
}

// reverted notes that a VM is in the state of a full snapshot, and has its agent get a new
// secret: whoever has seen the old one may have been the reason to revert.
func (s *Service) reverted(ctx context.Context, id string, m *machine, snap *Snapshot) error {
	// Asked for before the session ends: the next one begins at once, and has to know.
	m.mu.Lock()
	m.rotate = true
	m.mu.Unlock()
	if client, err := m.agent(); err == nil {
		_ = client.Close() // it was with the guest as it was before
	}
	_, err := s.change(ctx, id, eventDisk, "vm.snapshot.revert", "the VM is as in snapshot "+snap.Name, func(_ *db.Tx, r *Record) error {
		r.Reverting = ""
		return s.measure(r)
	})
	return err
}

// rotateSecret gives a guest's agent a new secret. Both are tried until that is known to
// have worked, so that a daemon that is killed meanwhile is not locked out.
func (s *Service) rotateSecret(ctx context.Context, m *machine) error {
	r, err := s.record(caller.ByItself(ctx), s.db, m.id)
	if err != nil {
		return err
	}
	secrets, err := s.secretsOf(ctx, m.id)
	if err != nil {
		return err
	}
	client, err := m.agent()
	if err != nil {
		return err
	}
	fresh := auth.NewToken("")
	keep := func(plain string) error {
		return s.db.Update(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE vms SET secret = ? WHERE id = ?", s.secrets.Seal([]byte(plain), m.id), m.id)
			return err
		})
	}
	if err := keep(fresh + "\n" + secrets[0]); err != nil {
		return err
	}
	if err := s.writeSeed(&r, fresh); err != nil {
		return err
	}
	if _, err := client.RotateSecret(ctx, fresh); err != nil {
		return err
	}
	return keep(fresh)
}
