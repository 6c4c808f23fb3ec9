package record

import (
	"context"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// save writes a VM's changed row and increments its generation.
func save(ctx context.Context, tx *db.Tx, r *VM) error {
	r.Generation++
	r.settleHardware()
	_, err := tx.Exec(
		ctx,
		`UPDATE vms SET name = ?, backend = ?, state = ?, spec = ?, secret = ?, mac = ?, tap = ?, ips = ?,
		autostart = ?, generation = ?, last_error = ?, started_at = ?, kill_at = ?, events = ?, vcpus = ?, memory_mib = ?,
		base = ?, disk_base = ?, pause_reason = ?, reverting = ?, restarting = ?, search = ?, labels = ?,
		handed_over = ?, running = ?, started_with = ?, counted_vcpus = ?, counted_memory_mib = ?, disks = ?, cd = ?,
		instant = ?, template = ?, booted = ?, taken_back_at = ? WHERE id = ?`,
		r.Name,
		r.Backend,
		r.State,
		r.Spec,
		r.Secret,
		r.MAC,
		r.Tap,
		r.IPs,
		r.Autostart,
		r.Generation,
		r.LastError,
		r.StartedAt,
		r.KillAt,
		r.Events,
		r.VCPUs,
		r.MemoryMiB,
		r.Base,
		r.DiskBase,
		r.PauseReason,
		r.Reverting,
		r.Restarting,
		r.searchText(),
		r.Labels,
		r.HandedOver,
		r.Running,
		r.StartedWith,
		r.CountedVCPUs,
		r.CountedMemoryMiB,
		r.Disks,
		r.CD,
		r.Instant,
		r.Template,
		r.Booted,
		r.TakenBackAt,
		r.ID,
	)
	return err
}

// Move stores the next state of a VM if vm.Next allows it, together with other changes, an event
// and, unless action is empty, an audit entry. Callers carry out the move on the host afterwards.
func (s *Store) Move(ctx context.Context, id string, m vm.Move, action, message string, change func(*VM)) (VM, error) {
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		r, err = s.moveIn(ctx, tx, id, m, action, message, change)
		return err
	})
	if err == nil {
		s.moved(id)
	}
	return r, err
}

func (s *Store) moveIn(
	ctx context.Context, tx *db.Tx, id string, m vm.Move, action, message string, change func(*VM),
) (VM, error) {
	r, err := vmIn(ctx, tx, id)
	if err != nil {
		return r, err
	}
	next, err := vm.Next(r.State, m)
	if err == nil {
		err = mayMove(ctx, tx, &r, m)
	}
	if err != nil {
		return r, err
	}
	from := r.State
	r.State = next
	if from == vm.Starting {
		r.Instant = "" // the guest may have run
	}
	if next != vm.Paused {
		r.PauseReason = ""
	}
	if !next.HasProcess() {
		r.Reverting, r.Running.V, r.StartedWith.V = "", nil, nil
		r.Template, r.Booted = "", ""
	}
	switch m {
	case vm.Restart:
		r.Restarting = true
	case vm.Start, vm.Stop, vm.Delete:
		r.Restarting = false
	case vm.Pause, vm.Resume, vm.Reset, vm.Made, vm.CameUp, vm.Ended, vm.Crashed, vm.Left:
	}
	if change != nil {
		change(&r)
	}
	text := fmt.Sprintf("%s, was %s", next, from)
	if message != "" {
		text += ": " + message
	}
	if err := s.tell(ctx, tx, &r, EventState, text); err != nil {
		return r, err
	}
	if action != "" {
		e := audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name}
		if message != "" {
			e.Message += ": " + message
		}
		if err := s.note(ctx, tx, e); err != nil {
			return r, err
		}
	}
	return r, save(ctx, tx, &r)
}

// Change stores a change to a VM other than to its state, with an event and, unless action is
// empty, an audit entry that names the VM. change may be nil.
func (s *Store) Change(ctx context.Context, id, kind, action, message string, change func(*VM)) (VM, error) {
	return s.changeWith(ctx, id, kind, action, message, func(_ *db.Tx, r *VM) error {
		if change != nil {
			change(r)
		}
		return nil
	})
}

// changeWith is like Change, but can also change other rows in the transaction.
func (s *Store) changeWith(
	ctx context.Context, id, kind, action, message string, do func(tx *db.Tx, r *VM) error,
) (VM, error) {
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		if r, err = vmIn(ctx, tx, id); err != nil {
			return err
		}
		if err := r.IsHere(); err != nil {
			return err
		}
		if kind == EventDisk {
			r.Instant = "" // a template's disk must not take the place of this one
		}
		if err := do(tx, &r); err != nil {
			return err
		}
		if err := s.tell(ctx, tx, &r, kind, message); err != nil {
			return err
		}
		if action != "" {
			e := audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message}
			if err := s.note(ctx, tx, e); err != nil {
				return err
			}
		}
		return save(ctx, tx, &r)
	})
	return r, err
}

// SetAutostart sets whether a VM starts with the host.
func (s *Store) SetAutostart(ctx context.Context, id string, on bool) (VM, error) {
	action := map[bool]string{true: "vm.enable", false: "vm.disable"}[on]
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		if r, err = vmIn(ctx, tx, id); err != nil {
			return err
		}
		if r.Autostart != on {
			r.Autostart = on
			message := map[bool]string{true: "it starts with the host", false: "it does not start with the host"}[on]
			if err := s.tell(ctx, tx, &r, EventConfig, message); err != nil {
				return err
			}
			if err := r.IsHere(); err != nil {
				return err
			}
			if err := save(ctx, tx, &r); err != nil {
				return err
			}
		}
		return s.note(ctx, tx, audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name})
	})
	return r, err
}

// SetReverting stores the snapshot that a VM is being reverted to; empty: none.
func (s *Store) SetReverting(ctx context.Context, id, snapshot string) error {
	return s.exec(ctx, "UPDATE vms SET reverting = ? WHERE id = ?", snapshot, id)
}
