package life

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// haltCheck is the interval at which a halted VM is checked again.
const haltCheck = 2 * time.Second

// followHalts pauses, with the reason, a VM that its backend halted on its own, and resumes it when
// the host has free space again. The full disk may be the one with the database. Then the VM's
// status still shows the halt (machine.Status), and the halt is stored before the VM resumes.
func (l *Life) followHalts(ctx context.Context, m *machine.Machine, instance backend.Instance, o backend.Observer) {
	for {
		condition, changed := o.Condition()
		var err error
		if condition.Known {
			m.SetHalt(condition.Halt)
			err = l.noteHalt(ctx, m.ID, condition.Halt)
		}
		if err == nil && condition.Halt == backend.HaltNoSpace {
			err = l.resumeWithRoom(ctx, m, instance)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			l.log.Warn("a VM that the host halted is not looked after; that is tried again",
				"vm", m.ID, "halt", condition.Halt, "error", err)
		}
		var again <-chan time.Time
		if condition.Halt != "" || err != nil {
			again = time.After(haltCheck)
		}
		select {
		case <-changed:
		case <-again:
		case <-instance.Done():
			return
		case <-l.machines.Ending().Done():
			return
		}
	}
}

// haltTexts are the reasons as shown in events.
var haltTexts = map[backend.Halt]string{
	backend.HaltNoSpace: "the host has no room for what the guest writes to its disk; " +
		"the VM continues when there is room again",
	backend.HaltIOError:  "the host cannot read or write the VM's disk; look at the host's disks, then resume the VM",
	backend.HaltInternal: "the virtual processor cannot continue; stop the VM by force, and start it again",
}

// noteHalt stores why a VM is halted, or that it no longer is. It does nothing for a VM that a
// caller paused.
func (l *Life) noteHalt(ctx context.Context, id string, halt backend.Halt) error {
	r, err := l.store.VM(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case halt != "" && r.State == vm.Running:
		_, err = l.store.Move(
			ctx, id, vm.Pause, "", haltTexts[halt], func(r *record.VM) { r.PauseReason = string(halt) },
		)
	case halt != "" && r.State == vm.Paused && r.PauseReason != string(halt):
		// The halt happened while the daemon was down.
		_, err = l.store.Change(ctx, id, record.EventState, "", "paused: "+haltTexts[halt],
			func(r *record.VM) { r.PauseReason = string(halt) })
	case halt == "" && r.State == vm.Paused && r.PauseReason != "":
		_, err = l.store.Move(ctx, id, vm.Resume, "", "the reason why the host halted it is gone", nil)
	}
	if fault.Is(err, fault.Conflict) {
		return nil // it was stopped since
	}
	return err
}

// resumeWithRoom resumes a VM that was halted because its disk was full, once there is free space.
// noteHalt stores the move to running when the backend reports it.
func (l *Life) resumeWithRoom(ctx context.Context, m *machine.Machine, instance backend.Instance) error {
	r, err := l.store.VM(ctx, m.ID)
	if err != nil || r.State != vm.Paused || r.Spec.V.Storage != storage.Dir {
		return err // for other storages, the free space is not known here
	}
	room, err := hasRoom(l.host.Folder(m.ID))
	if err != nil || !room {
		return err
	}
	release, ok := m.TryWork()
	if !ok {
		return nil // other work holds the lock; the next check is soon
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, machine.CallLimit)
	defer cancel()
	return instance.Resume(ctx)
}

// hasRoom reports whether the file system of a folder has enough free space to resume a guest that
// was halted for lack of it.
func hasRoom(folder string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return false, err
	}
	unit := uint64(fs.Bsize) //nolint:gosec // a block's size is positive
	return enoughRoom(fs.Bavail*unit, fs.Blocks*unit), nil
}

// enoughRoom reports whether at least a twentieth of the file system is free, or 1 GiB if that is
// less. Both arguments are in bytes. With less free space, the guest would be halted again at once.
func enoughRoom(free, size uint64) bool { return free >= min(size/20, record.GiB) }
