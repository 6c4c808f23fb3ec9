package hypervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// restoredAtOnce is how many VMs are brought back at once.
const restoredAtOnce = 16

// restore brings what the database says and what the host has together, after the daemon
// was away for whatever reason:
//
//	creating            what there is of it is removed, unless an operation goes on with it
//	deleting            removed, by expire
//	starting            its process is ended, if there is one, and it is started anew, from
//	                    the snapshot that it was to be started from
//	running, paused     its process is met again; without one it has stopped
//	stopping            its process is met again, and stopped; without one it has stopped
//	stopped, failed     nothing, but a process that was left is ended
//
// What was begun with its disk is finished or undone: see settle. It does not wait for what
// takes long. Folders and network devices of no VM are removed.
func (s *Service) restore(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	all, err := s.store.AllVMs(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	var work sync.WaitGroup
	places := make(chan struct{}, restoredAtOnce)
	for i := range all {
		known[all[i].ID] = true
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			// One VM's trouble is not the others', and a process that does not answer does not
			// hold them up.
			_ = routine.Run(s.log, "VM restore", func() { // logged
				if err := s.restoreOne(ctx, all[i]); err != nil {
					s.log.Error("a VM could not be brought back", "vm", all[i].ID, "state", all[i].State, "error", err)
				}
			})
		})
	}
	work.Wait()
	return errors.Join(s.host.Sweep(ctx, func(id string) bool { return known[id] }), s.catalog.SweepIncoming(ctx), s.sweepBackups(ctx), s.host.SweepBases(ctx))
}

func (s *Service) restoreOne(ctx context.Context, r record.VM) error {
	switch r.State {
	case vm.Creating:
		if s.store.IsBeingMade(ctx, r.ID) {
			return nil
		}
		if _, err := s.store.Move(ctx, r.ID, vm.Crashed, "", "the daemon ended while the VM was made", nil); err != nil {
			return err
		}
		return s.life.Erase(ctx, r)
	case vm.Deleting:
		return nil // expire removes it
	case vm.Starting:
		s.host.Strip(ctx, &r)
		return s.machines.WithInBackground(ctx, r.ID, "VM start", life.In(vm.Starting), s.bringUpAgain, func(err error) {
			if err != nil {
				s.log.Warn("a VM did not start", "vm", r.ID, "error", err)
			}
		})
	case vm.Running, vm.Paused, vm.Stopping:
	case vm.Stopped, vm.Failed:
		s.host.Strip(ctx, &r)
	}
	names, err := s.store.UnfinishedSnapshots(ctx, r.ID)
	switch {
	case err != nil:
		return err
	case len(names) > 0 || r.Reverting != "":
		return s.settle(ctx, r)
	case r.State.HasProcess():
		if err := s.meet(ctx, r, meetLimit); err != nil {
			return err
		}
		return s.life.Agree(ctx, r, "as it was found after the daemon came back")
	}
	return nil
}

// bringUpAgain is bringUp after the daemon was away. The VM's work is locked.
func (s *Service) bringUpAgain(ctx context.Context, m *machine.Machine, r record.VM) error {
	if r.Reverting != "" {
		snap, err := s.store.Snapshot(ctx, r.ID, r.Reverting)
		if err == nil {
			return s.bringUpFrom(ctx, m, r, &snap)
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	_, err := s.life.BringUp(ctx, m, r)
	return err
}

// settle brings back a VM whose disk the daemon was working on when it was killed: a snapshot
// that was not finished is removed, and a revert is done again. The process may be busy with
// that until then, and answers nothing; nobody else works on the VM meanwhile.
func (s *Service) settle(ctx context.Context, r record.VM) error {
	return s.machines.WithInBackground(ctx, r.ID, "VM restore", machine.Any, s.settleNow, func(err error) {
		if err != nil && !fault.Is(err, fault.NotFound) {
			s.log.Error("what was begun with a VM's disk before the daemon ended is not cleaned up; that is tried again when the disk is used", "vm", r.ID, "error", err)
		}
	})
}

func (s *Service) settleNow(ctx context.Context, m *machine.Machine, r record.VM) error {
	if r.State.HasProcess() {
		if err := s.meet(ctx, r, backend.MemoryLimit(r.MemoryMiB)); err != nil {
			return err
		}
		var err error
		if r, err = s.store.VM(ctx, r.ID); err != nil {
			return err
		}
	}
	if r.Backend == backend.Sandbox {
		return s.tidy(ctx, r.ID, nil)
	}
	if r.State == vm.Stopping || r.State == vm.Deleting {
		return nil // the disk is used by nobody until that is over
	}
	d, err := s.openDisk(ctx, m, &r) // which tidies up
	if err != nil {
		return err
	}
	instance, _ := m.Process()
	if instance == nil {
		return d.Close()
	}
	if r.Reverting != "" {
		snap, err := s.store.Snapshot(ctx, r.ID, r.Reverting)
		if err == nil {
			return s.load(ctx, m, r, &snap)
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	if r.State == vm.Running {
		// What was begun had halted it, and nobody else did.
		if err := instance.Resume(ctx); err != nil {
			return err
		}
	}
	return s.life.Agree(ctx, r, "as it was found after the daemon came back")
}

// meetLimit is how long a VM's process may take to answer when the daemon is back.
const meetLimit = time.Minute

// meet finds the process of a VM again, which must answer within a limit.
func (s *Service) meet(ctx context.Context, r record.VM, limit time.Duration) error {
	b, err := s.host.Backend(&r)
	if err != nil {
		return err
	}
	finding, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	instance, err := b.Find(finding, s.host.Spec(&r))
	if err != nil {
		// It cannot be told what it does: an end is better than a VM that nobody keeps.
		s.log.Error("a VM's process does not answer and is ended", "vm", r.ID, "error", err)
		s.host.Strip(ctx, &r)
		_, err = s.store.Move(ctx, r.ID, vm.Crashed, "", err.Error(), func(r *record.VM) { r.LastError = "the process did not answer after the daemon came back" })
		return err
	}
	if instance == nil {
		s.host.Strip(ctx, &r)
		_, err := s.store.Move(ctx, r.ID, vm.Ended, "", "its process ended while the daemon was away", func(r *record.VM) { r.StartedAt, r.KillAt = db.Time{}, db.Time{} })
		return err
	}
	if r.Tap != "" && s.host.HasNetwork() {
		// Its rules are made anew, should the host have lost them.
		if _, err := s.host.Equip(ctx, &r); err != nil {
			s.log.Error("a VM's network is not as it was", "vm", r.ID, "error", err)
		}
	}
	m := s.machines.Get(r.ID)
	s.life.Adopt(ctx, m, r, instance)
	if r.State == vm.Stopping {
		s.machines.Go("VM stop", func() {
			if err := s.life.BringDown(ctx, m, r, s.now().After(r.KillAt.Time)); err != nil {
				s.log.Error("a VM is not stopped", "vm", r.ID, "error", err)
			}
		})
	}
	return nil
}

// autostart starts the VMs that start with the host. After a restart of the daemon alone
// most of them run already, and one that was stopped by somebody stays stopped: only a new
// boot of the host counts.
func (s *Service) autostart(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		s.log.Error("which boot of the host this is cannot be told; nothing is started with it", "error", err)
		return
	}
	path := filepath.Join(s.data, "boot")
	if last, err := os.ReadFile(path); err == nil && string(last) == string(boot) { //nolint:gosec // our own folder
		return
	}
	ids, err := s.store.StartWithHost(ctx)
	if err != nil {
		s.log.Error("VMs are not started with the host", "error", err)
		return
	}
	for _, id := range ids {
		if _, err := s.life.Start(ctx, id); err != nil {
			s.log.Error("a VM is not started with the host", "vm", id, "error", err)
		}
	}
	if err := os.WriteFile(path, boot, 0o600); err != nil {
		s.log.Error("the boot of the host is not noted", "error", err)
	}
}
