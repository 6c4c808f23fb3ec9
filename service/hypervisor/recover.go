package hypervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// restore brings what the database says and what the host has together, after the daemon
// was away for whatever reason:
//
//	creating            what there is of it is removed, unless an operation goes on with it
//	deleting            removed
//	starting            its process is ended, if there is one, and it is started anew
//	running, paused     its process is met again; without one it has stopped
//	stopping            its process is met again, and stopped; without one it has stopped
//	stopped, failed     nothing, but a process that was left is ended
//
// It does not wait for what takes long. Folders and network devices of no VM are removed.
func (s *Service) restore(ctx context.Context) error {
	ctx = byItself(ctx)
	var all []Record
	if err := s.db.Select(ctx, &all, "SELECT * FROM vms ORDER BY id"); err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range all {
		known[all[i].ID] = true
		if err := s.restoreOne(ctx, all[i]); err != nil {
			// One VM's trouble is not the others'.
			s.log.Error("a VM could not be brought back", "vm", all[i].ID, "state", all[i].State, "error", err)
		}
	}
	if s.network != nil {
		swept, err := s.network.Sweep(ctx, func(id string) bool { return known[id] })
		if err != nil {
			s.log.Error("network devices of VMs that are gone are not removed", "error", err)
		} else if swept.Taps > 0 {
			s.log.Info("removed network devices of VMs that are gone", "devices", swept.Taps)
		}
	}
	if s.groups != nil {
		if _, err := s.groups.Sweep(func(id string) bool { return known[id] }); err != nil {
			s.log.Error("control groups of VMs that are gone are not removed", "error", err)
		}
	}
	return errors.Join(s.sweepFolders(known), s.sweepIncoming(ctx), s.sweepBackups(ctx), s.sweepBases(ctx))
}

// sweepFolders removes folders of VMs that never were.
func (s *Service) sweepFolders(known map[string]bool) error {
	entries, err := os.ReadDir(filepath.Join(s.data, "vms"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !known[e.Name()] {
			err = errors.Join(err, os.RemoveAll(s.folder(e.Name())))
		}
	}
	return err
}

// sweepIncoming removes what was being taken in and no operation goes on with.
func (s *Service) sweepIncoming(ctx context.Context) error {
	var open []string
	if err := s.db.Select(ctx, &open, "SELECT args FROM jobs WHERE kind = ? AND finished_at IS NULL", kindImage); err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, args := range open {
		keep[incomingOf(args)] = true
	}
	return s.contents.DropAll(func(id string) bool { return keep[id] })
}

func (s *Service) restoreOne(ctx context.Context, r Record) error {
	switch r.State {
	case vm.Creating:
		if s.isBeingMade(ctx, r.ID) {
			return nil
		}
		if _, err := s.move(ctx, r.ID, vm.Crashed, "", "the daemon ended while the VM was made", nil); err != nil {
			return err
		}
		return s.erase(ctx, r)
	case vm.Deleting:
		s.watchers.Go(func() {
			if err := s.Delete(ctx, r.ID); err != nil && !fault.Is(err, fault.NotFound) {
				s.log.Error("a VM is not removed", "vm", r.ID, "error", err)
			}
		})
		return nil
	case vm.Starting:
		s.strip(ctx, &r)
		m := s.machines.get(r.ID)
		s.watchers.Go(func() {
			if err := m.lock(ctx); err != nil {
				return
			}
			defer m.unlock()
			if _, err := s.bringUp(ctx, m, r); err != nil {
				s.log.Warn("a VM did not start", "vm", r.ID, "error", err)
			}
		})
		return nil
	case vm.Running, vm.Paused, vm.Stopping:
		return s.meet(ctx, r)
	case vm.Stopped, vm.Failed:
		s.strip(ctx, &r)
	}
	return nil
}

// isBeingMade says whether an operation goes on with making a VM.
func (s *Service) isBeingMade(ctx context.Context, id string) bool {
	var n int
	err := s.db.Get(ctx, &n, "SELECT COUNT(*) FROM operations o JOIN jobs j ON j.id = o.id WHERE o.vm_id = ? AND o.kind IN (?, ?) AND j.finished_at IS NULL", id, kindClone, kindRestore)
	return err != nil || n > 0
}

// meet finds the process of a VM again.
func (s *Service) meet(ctx context.Context, r Record) error {
	b, err := s.backendOf(&r)
	if err != nil {
		return err
	}
	instance, err := b.Find(ctx, s.spec(&r))
	if err != nil {
		// It cannot be told what it does: an end is better than a VM that nobody keeps.
		s.log.Error("a VM's process does not answer and is ended", "vm", r.ID, "error", err)
		s.strip(ctx, &r)
		_, err = s.move(ctx, r.ID, vm.Crashed, "", err.Error(), func(r *Record) { r.LastError = "the process did not answer after the daemon came back" })
		return err
	}
	if instance == nil {
		s.strip(ctx, &r)
		_, err := s.move(ctx, r.ID, vm.Ended, "", "its process ended while the daemon was away", func(r *Record) { r.StartedAt, r.KillAt = db.Time{}, db.Time{} })
		return err
	}
	if r.Tap != "" && s.network != nil {
		// Its rules are made anew, should the host have lost them.
		if _, err := s.outfit(ctx, &r); err != nil {
			s.log.Error("a VM's network is not as it was", "vm", r.ID, "error", err)
		}
	}
	m := s.machines.get(r.ID)
	s.adopt(ctx, m, r, instance)
	if r.State == vm.Stopping {
		s.watchers.Go(func() {
			if err := s.bringDown(ctx, m, r, s.now().After(r.KillAt.Time)); err != nil {
				s.log.Error("a VM is not stopped", "vm", r.ID, "error", err)
			}
		})
		return nil
	}
	return s.agree(ctx, r, instance)
}

// agree notes whether a VM's processors are halted, as its backend says.
func (s *Service) agree(ctx context.Context, r Record, instance backend.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, haltLimit)
	defer cancel()
	paused, err := instance.Paused(ctx)
	if err != nil {
		return err
	}
	if paused == (r.State == vm.Paused) {
		return nil
	}
	kind := map[bool]vm.Move{true: vm.Pause, false: vm.Resume}[paused]
	_, err = s.move(ctx, r.ID, kind, "", "as it was found after the daemon came back", nil)
	return err
}

// autostart starts the VMs that start with the host. After a restart of the daemon alone
// most of them run already, and one that was stopped by somebody stays stopped: only a new
// boot of the host counts.
func (s *Service) autostart(ctx context.Context) {
	ctx = byItself(ctx)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		s.log.Error("which boot of the host this is cannot be told; nothing is started with it", "error", err)
		return
	}
	path := filepath.Join(s.data, "boot")
	if last, err := os.ReadFile(path); err == nil && string(last) == string(boot) { //nolint:gosec // our own folder
		return
	}
	var ids []string
	if err := s.db.Select(ctx, &ids, "SELECT id FROM vms WHERE autostart = TRUE AND state IN (?, ?) ORDER BY id", vm.Stopped, vm.Failed); err != nil {
		s.log.Error("VMs are not started with the host", "error", err)
		return
	}
	for _, id := range ids {
		if _, err := s.Start(ctx, id); err != nil {
			s.log.Error("a VM is not started with the host", "vm", id, "error", err)
		}
	}
	if err := os.WriteFile(path, boot, 0o600); err != nil {
		s.log.Error("the boot of the host is not noted", "error", err)
	}
}

// expire deletes VMs whose time is over.
func (s *Service) expire(ctx context.Context) error {
	ctx = byItself(ctx)
	var ids []string
	if err := s.db.Select(ctx, &ids, "SELECT id FROM vms WHERE expires_at <= ? AND state <> ? ORDER BY expires_at LIMIT 100", db.At(s.now()), vm.Deleting); err != nil {
		return err
	}
	for _, id := range ids {
		s.log.Info("a VM's time is over", "vm", id)
		if err := s.Delete(ctx, id); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

// untilNextExpiry is how long to wait for the next VM whose time is over, at most limit.
func (s *Service) untilNextExpiry(ctx context.Context, limit time.Duration) time.Duration {
	var next db.Time
	if err := s.db.Get(ctx, &next, "SELECT MIN(expires_at) FROM vms WHERE state <> ?", vm.Deleting); err != nil || next.IsZero() {
		return limit
	}
	return min(max(next.Sub(s.now()), 10*time.Millisecond), limit)
}
