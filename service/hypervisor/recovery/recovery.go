// Package recovery reconciles what is stored with what the host has when the daemon starts: it
// reattaches to the processes of VMs, finishes or undoes interrupted work, and starts VMs with the
// host. It is above life and disk, whose steps it repeats, so that these need not know each other.
//
// # Invariants
//
//   - Nothing is started twice: the remains of an old process are killed before a new one is
//     started.
//   - A problem with one VM does not affect the others, and an unresponsive process blocks nobody.
//   - It is idempotent: if the daemon is killed during recovery, the next start begins again.
//
// It imports life, disk, catalog, and the packages below those.
package recovery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/disk"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/template"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Config holds the dependencies of a Recovery.
type Config struct {
	Data     string
	Store    *record.Store
	Machines *machine.Set
	Host     *host.Host
	Catalog  *catalog.Catalog
	Life     *life.Life
	Disk     *disk.Manager
	// Templates sweeps what was left of templates.
	Templates *template.Keeper
	Log       *slog.Logger
	Now       func() time.Time
}

// Recovery restores the VMs of this host.
type Recovery struct {
	data     string
	store    *record.Store
	machines *machine.Set
	host     *host.Host
	catalog  *catalog.Catalog
	life     *life.Life
	disk     *disk.Manager
	template *template.Keeper
	log      *slog.Logger
	now      func() time.Time
}

// New returns a Recovery.
func New(c Config) *Recovery {
	return &Recovery{
		data: c.Data, store: c.Store, machines: c.Machines, host: c.Host, catalog: c.Catalog,
		life: c.Life, disk: c.Disk, template: c.Templates, log: c.Log, now: c.Now,
	}
}

// restoredAtOnce is the number of VMs that are restored concurrently.
const restoredAtOnce = 16

// Restore reconciles the database with the host after the daemon was down, for whatever reason. By
// state:
//
//	creating            removed, unless an operation continues to create it
//	deleting            removed, by life.KeepTime
//	starting            its process, if any, is killed, and it is started again, from the
//	                    snapshot that it was being started from, if any
//	running, paused     its process is reattached; without one it becomes stopped
//	stopping            its process is reattached and stopped; without one it becomes stopped
//	stopped, failed     no change, but a leftover process is killed
//
// Interrupted work on its disk is finished or undone: see disk.Settle. Restore does not wait for
// long work. It removes folders and network devices of unknown VMs.
func (y *Recovery) Restore(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	all, err := y.store.AllVMs(ctx)
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
			// A problem with one VM must not affect the others, nor may an unresponsive process
			// block them.
			_ = routine.Run(y.log, "VM restore", func() { // logged
				if err := y.restoreOne(ctx, all[i]); err != nil {
					y.log.Error("a VM could not be brought back", "vm", all[i].ID, "state", all[i].State, "error", err)
				}
			})
		})
	}
	work.Wait()
	return errors.Join(
		y.host.Sweep(ctx, func(id string) bool { return known[id] }),
		y.catalog.SweepIncoming(ctx), y.disk.SweepBackups(ctx), y.template.Sweep(ctx), y.host.SweepBases(ctx),
	)
}

func (y *Recovery) restoreOne(ctx context.Context, r record.VM) error {
	switch r.State {
	case vm.Creating:
		if y.store.IsBeingMade(ctx, r.ID) {
			return nil
		}
		return y.life.Undo(ctx, r, "the daemon ended while the VM was made")
	case vm.Deleting:
		return nil // life.KeepTime removes it
	case vm.Starting:
		y.host.Strip(ctx, &r)
		return y.machines.WithInBackground(
			ctx,
			r.ID,
			"VM start",
			life.In(vm.Starting),
			y.disk.BringUpAgain,
			func(err error) {
				if err != nil {
					y.log.Warn("a VM did not start", "vm", r.ID, "error", err)
				}
			},
		)
	case vm.Running, vm.Paused, vm.Stopping:
	case vm.Stopped, vm.Failed:
		y.host.Strip(ctx, &r)
	}
	if r.Restarting { // it is started once everything else about it is in order
		defer y.life.GoOnRestarting(ctx, r.ID)
	}
	names, err := y.store.UnfinishedSnapshots(ctx, r.ID)
	switch {
	case err != nil:
		return err
	case len(names) > 0 || r.Reverting != "" || len(r.Unsettled()) > 0 || y.disk.Unended(r.ID):
		return y.settle(ctx, r)
	case r.State.HasProcess():
		if err := y.meet(ctx, r, meetLimit); err != nil {
			return err
		}
		return y.life.Agree(ctx, r, "as it was found after the daemon came back")
	}
	return nil
}

// settle restores a VM whose disk the daemon was working on when it was killed: an unfinished
// snapshot is removed, and a revert is repeated. Until then, the process may be busy with that work
// and not answer. The work lock keeps others away from the VM.
func (y *Recovery) settle(ctx context.Context, r record.VM) error {
	return y.machines.WithInBackground(ctx, r.ID, "VM restore", machine.Any, y.settleNow, func(err error) {
		if err != nil && !fault.Is(err, fault.NotFound) {
			y.log.Error("what was begun with a VM's disk before the daemon ended is not cleaned up; "+
				"that is tried again when the disk is used", "vm", r.ID, "error", err)
		}
	})
}

func (y *Recovery) settleNow(ctx context.Context, m *machine.Machine, r record.VM) error {
	if r.State.HasProcess() {
		if err := y.meet(ctx, r, backend.MemoryLimit(r.AsRunning().MemoryMiB)); err != nil {
			return err
		}
		var err error
		if r, err = y.store.VM(ctx, r.ID); err != nil {
			return err
		}
	}
	return y.disk.Settle(ctx, m, r)
}

// meetLimit is the timeout for reattaching to a VM's process.
const meetLimit = time.Minute

// meet reattaches to the process of a VM, which must answer within limit.
func (y *Recovery) meet(ctx context.Context, r record.VM, limit time.Duration) error {
	b, err := y.host.Backend(&r)
	if err != nil {
		return err
	}
	finding, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	instance, err := b.Find(finding, y.host.Spec(&r))
	if err != nil {
		// Its state is unknown: killing it is better than running a VM that nobody manages.
		y.log.Error("a VM's process does not answer and is ended", "vm", r.ID, "error", err)
		y.host.Strip(ctx, &r)
		_, err = y.store.Move(ctx, r.ID, vm.Crashed, "", err.Error(), func(r *record.VM) {
			r.LastError = "the process did not answer after the daemon came back"
		})
		return err
	}
	if instance == nil {
		y.host.Strip(ctx, &r)
		_, err := y.store.Move(
			ctx,
			r.ID,
			vm.Ended,
			"",
			"its process ended while the daemon was away",
			func(r *record.VM) {
				r.StartedAt, r.KillAt = db.Time{}, db.Time{}
			},
		)
		return err
	}
	if r.Tap != "" && y.host.HasNetwork() {
		// Its rules are restored in case the host has lost them.
		if spec, err := y.host.Equip(ctx, &r); err == nil {
			spec.Release()
		} else {
			y.log.Error("a VM's network is not as it was", "vm", r.ID, "error", err)
		}
	}
	m := y.machines.Get(r.ID)
	y.life.Adopt(ctx, m, r, instance)
	if r.State == vm.Stopping {
		y.machines.Go("VM stop", func() {
			if err := y.life.BringDown(ctx, m, r, y.now().After(r.KillAt.Time)); err != nil {
				y.log.Error("a VM is not stopped", "vm", r.ID, "error", err)
			}
		})
	}
	return nil
}
