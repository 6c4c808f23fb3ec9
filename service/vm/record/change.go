package record

import (
	"context"
	"fmt"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Add stores a new VM after checking the tenant's quota, and begins the job that makes it. The
// caller of Add has checked the row.
func (s *Store) Add(ctx context.Context, r VM, action, message string, begin func(tx *db.Tx, r *VM) error) (VM, error) {
	r.CreatedAt, r.UpdatedAt = db.At(s.now()), db.At(s.now())
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		r := &r
		r.Events = 0
		use := Use{VMs: 1, CPUs: int64(r.CPUs), Memory: int64(r.Memory), Disk: int64(r.Disk)}
		if err := s.admit(ctx, tx, r.Tenant, use); err != nil {
			return err
		}
		if err := s.tell(ctx, tx, r, EventState, message); err != nil {
			return err
		}
		r.Search = r.searchText()
		if err := tx.Insert(ctx, "vms", *r); db.IsUnique(err) {
			return fault.New(fault.Conflict, "there is a VM named %s already", r.Name)
		} else if err != nil {
			return err
		}
		s.networkChange(tx)
		if err := setTags(ctx, tx, r.ID, r.Tags.V); err != nil {
			return err
		}
		if err := s.tellWorld(ctx, tx, Happening{Type: VMCreated, VM: r}); err != nil {
			return err
		}
		if err := s.note(ctx, tx, audit.Entry{Action: action, Target: r.ID, Tenant: r.Tenant, Message: r.Name}); err != nil {
			return err
		}
		return begin(tx, r)
	})
	if err != nil {
		return r, err
	}
	return s.VM(ctx, r.ID)
}

// Change is what UpdateVM can change at a VM. Nil fields stay.
type Change struct {
	Name        *string
	CPUs        *int
	Memory      *int // MiB
	Labels      *map[string]string
	Tags        *[]string
	Description *string
	Autostart   *bool
	Protected   *bool
	// Job is the id of the job that makes the change, or empty.
	Job string
}

// Below returns the part of a change that the daemon is told, as far as it differs from what the VM has.
func (c Change) Below(r *VM) (below Change, any bool) {
	if c.Name != nil && *c.Name != r.Name {
		below.Name = c.Name
	}
	if c.CPUs != nil && *c.CPUs != r.CPUs {
		below.CPUs = c.CPUs
	}
	if c.Memory != nil && *c.Memory != r.Memory {
		below.Memory = c.Memory
	}
	if c.Autostart != nil && *c.Autostart != r.Autostart {
		below.Autostart = c.Autostart
	}
	return below, below.Name != nil || below.CPUs != nil || below.Memory != nil || below.Autostart != nil
}

// Reverse returns the change that undoes c on a VM that was as r.
func (c Change) Reverse(r *VM) Change {
	var back Change
	if c.Name != nil {
		back.Name = &r.Name
	}
	if c.CPUs != nil {
		back.CPUs = &r.CPUs
	}
	if c.Memory != nil {
		back.Memory = &r.Memory
	}
	if c.Autostart != nil {
		back.Autostart = &r.Autostart
	}
	return back
}

// Update changes a VM's record, after checking the tenant's quota. It fails with Conflict if the daemon
// has to be told and a job changes the VM.
func (s *Store) Update(ctx context.Context, id string, c Change) (VM, error) {
	var out VM
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		out, err = s.change(ctx, tx, id, func(r *VM) (kind, message string, err error) {
			if _, below := c.Below(r); below && r.Job != nil && r.Job.ID != c.Job {
				return "", "", errBusy(r.Job)
			}
			more := Use{}
			if c.CPUs != nil {
				more.CPUs, r.CPUs = int64(*c.CPUs-r.CPUs), *c.CPUs
			}
			if c.Memory != nil {
				more.Memory, r.Memory = int64(*c.Memory-r.Memory), *c.Memory
			}
			if more != (Use{}) {
				if err := s.admit(ctx, tx, r.Tenant, more); err != nil {
					return "", "", err
				}
			}
			if c.Name != nil {
				r.Name = *c.Name
			}
			if c.Labels != nil {
				r.Labels.V = *c.Labels
			}
			if c.Description != nil {
				r.Description = *c.Description
			}
			if c.Autostart != nil {
				r.Autostart = *c.Autostart
			}
			if c.Protected != nil {
				r.Protected = *c.Protected
			}
			if c.Tags != nil {
				r.Tags.V = slices.Clone(*c.Tags)
				if err := setTags(ctx, tx, r.ID, r.Tags.V); err != nil {
					return "", "", err
				}
			}
			return EventConfig, "changed", nil
		})
		if db.IsUnique(err) {
			return fault.New(fault.Conflict, "there is a VM named %s already", *c.Name)
		}
		if err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "vm.update", Target: id, Tenant: out.Tenant})
	})
	return out, err
}

// Delete marks a VM as deleted, which frees its name, and cancels its unfinished job by calling
// cancel. Removed then forgets it, once the daemon has removed it.
func (s *Store) Delete(ctx context.Context, id string, cancel func(tx *db.Tx, job string) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		r, err := s.change(ctx, tx, id, func(r *VM) (kind, message string, err error) {
			if r.Protected {
				return "", "", fault.New(fault.Conflict,
					"the VM is protected; set protected to false before you delete it")
			}
			r.DeletedAt, r.Secret = db.At(s.now()), ""
			return "", "", nil
		})
		if err != nil {
			return err
		}
		if err := s.countDeleted(ctx, tx, &r); err != nil {
			return err
		}
		if r.Job != nil {
			if err := cancel(tx, r.Job.ID); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "DELETE FROM compliance_scans WHERE vm_id = ?", id); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "vm.delete", Target: id, Tenant: r.Tenant, Message: r.Name})
	})
}

// Deleted lists VMs that the daemon still has to remove and that no job works on, oldest first.
func (s *Store) Deleted(ctx context.Context, limit int) (all []VM, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM vms WHERE deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1
		FROM operations o JOIN jobs j ON j.id = o.id WHERE o.vm_id = vms.id AND o.kind LIKE 'vm.%' AND j.finished_at IS NULL)
		ORDER BY deleted_at LIMIT ?`, limit)
}

// Removed forgets a deleted VM that the daemon has removed.
func (s *Store) Removed(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		for _, statement := range []string{
			"DELETE FROM events WHERE vm_id = ?", "DELETE FROM vm_tags WHERE vm_id = ?",
			"DELETE FROM vm_policies WHERE vm_id = ?", "DELETE FROM vm_policy_states WHERE vm_id = ?",
			"DELETE FROM snapshots WHERE vm_id = ?", "DELETE FROM vms WHERE id = ? AND deleted_at IS NOT NULL",
		} {
			if _, err := tx.Exec(ctx, statement, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// Made stores that the daemon has made a VM, and begins the job that starts it if somebody has asked
// for that meanwhile. If the VM was deleted meanwhile, it stores only where the VM is, so that it
// will be removed.
func (s *Store) Made(ctx context.Context, id string, seen Seen, begin func(tx *db.Tx, r *VM) error) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		var r VM
		if err := tx.Get(ctx, &r, "SELECT * FROM vms WHERE id = ?"+tx.ForUpdate(), id); err != nil {
			return db.NotFound(err, "there is no such VM")
		}
		starting := r.State == Starting && r.DeletedAt.IsZero()
		r.Observe(seen)
		r.Node, r.DriverID, r.Secret, r.LastError = seen.Node, seen.DriverID, "", ""
		if r.DeletedAt.IsZero() {
			message := "made"
			if r.Node != "" {
				message += " on " + r.Node
			}
			if err := s.tell(ctx, tx, &r, EventState, message); err != nil {
				return err
			}
		}
		if err := s.countMade(ctx, tx, &r); err != nil {
			return err
		}
		if starting {
			r.State = Starting
		}
		if err := s.save(ctx, tx, &r); err != nil || !starting {
			return err
		}
		return begin(tx, &r)
	})
}

// Failed stores why a job for a VM failed, and the state that the VM is left in.
func (s *Store) Failed(ctx context.Context, id string, state State, reason string) error {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := s.change(ctx, tx, id, func(r *VM) (kind, message string, err error) {
			r.State, r.LastError = state, reason
			return EventState, reason, nil
		})
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return nil // deleted meanwhile
	}
	return err
}

// Seen is what the daemon tells about a VM.
type Seen struct {
	Node, DriverID string
	Generation     int64
	State          State
	CPUs, Memory   int // what is wanted; 0: not known
	Pending        []string
	Disk           int    // GiB; 0: not known
	Disks          []Disk // beside the system disk
	CD             string
	IPs            []string
	MAC            string
	Agent          Agent
	Autostart      bool
	StartedAt      db.Time
	LastError      string
}

// Observe takes over what the daemon tells about a VM, and reports whether anything has changed.
func (r *VM) Observe(seen Seen) (changed bool) {
	before := *r
	r.State, r.Unreachable, r.DriverGen = seen.State, false, seen.Generation
	r.IPs.V, r.MAC, r.Agent.V, r.StartedAt = seen.IPs, seen.MAC, seen.Agent, seen.StartedAt
	r.Autostart = seen.Autostart
	if seen.Node != "" { // it may have moved to another host of the fleet
		r.Node = seen.Node
	}
	if seen.Disk > 0 {
		r.Disk = seen.Disk
	}
	if seen.CPUs > 0 && seen.Memory > 0 { // the daemon's word counts, also if a change was interrupted
		r.CPUs, r.Memory, r.Pending.V = seen.CPUs, seen.Memory, seen.Pending
		r.CD, r.Disks.V = seen.CD, seen.Disks
	}
	if seen.LastError != "" || seen.State == Running || before.State == Missing {
		r.LastError = seen.LastError
	}
	return before.State != r.State || before.Node != r.Node || before.Unreachable ||
		!slices.Equal(before.IPs.V, r.IPs.V) || before.MAC != r.MAC ||
		before.Agent.V != r.Agent.V || !before.StartedAt.Equal(r.StartedAt.Time) || before.Disk != r.Disk ||
		before.Autostart != r.Autostart || before.CPUs != r.CPUs || before.Memory != r.Memory ||
		!slices.Equal(before.Pending.V, r.Pending.V) || before.LastError != r.LastError || before.DriverGen != r.DriverGen ||
		!slices.Equal(before.Disks.V, r.Disks.V) || before.CD != r.CD
}

// Observed stores what the daemon tells about a VM, with an event if its state has changed. While a
// job changes the VM, it stores nothing unless force is set: the job stores what it leads to.
func (s *Store) Observed(ctx context.Context, id string, seen Seen, force bool) error {
	return s.observe(ctx, id, func(r *VM) (message string, changed bool) {
		if r.Job != nil && !force || seen.Generation < r.DriverGen && seen.State != Missing {
			return "", false // an answer that was overtaken by a newer one
		}
		was, at := r.State, r.Node
		changed = r.Observe(seen)
		if changed = r.dropReservations(s.now(), "") || changed; at != r.Node {
			message = fmt.Sprintf("it moved from the host %s to %s", at, r.Node)
		} else if was != r.State {
			message = string(r.State)
			if r.LastError != "" && (r.State == Failed || r.State == Missing) {
				message += ": " + r.LastError
			}
		}
		return message, changed
	})
}

// Same reports whether a row holds already what is seen.
func (r *VM) Same(seen Seen) bool {
	copied := *r
	return !copied.Observe(seen) && len(r.Reservations.V) == 0
}

// AllUnreached stores that no host answers.
func (s *Store) AllUnreached(ctx context.Context) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE vms SET unreachable = TRUE
			WHERE driver_id <> '' AND deleted_at IS NULL AND NOT unreachable`)
		return err
	})
}

// Unreached stores that a VM's host does not answer.
func (s *Store) Unreached(ctx context.Context, id string) error {
	return s.observe(ctx, id, func(r *VM) (string, bool) {
		was := r.Unreachable
		r.Unreachable = true
		return "", !was
	})
}

// observe changes a VM if f says so. It does nothing if the VM was deleted meanwhile.
func (s *Store) observe(ctx context.Context, id string, f func(r *VM) (message string, changed bool)) error {
	ctx = caller.Acting(ctx, caller.From(ctx).Person()) // the person who caused it stays in the event
	r, err := s.VM(ctx, id)
	if err == nil {
		if _, changed := f(&r); !changed {
			return nil // without the lock: most of the time there is nothing to write
		}
		err = s.db.Update(ctx, func(tx *db.Tx) error {
			_, err := s.change(ctx, tx, id, func(r *VM) (kind, message string, err error) {
				message, _ = f(r)
				return EventState, message, nil
			})
			return err
		})
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// Placed returns the VM that has an id at the daemon of a host.
func (s *Store) Placed(ctx context.Context, node, driverID string) (VM, error) {
	var r VM
	err := s.db.Get(ctx, &r, "SELECT * FROM vms WHERE node = ? AND driver_id = ? AND deleted_at IS NULL", node, driverID)
	return r, db.NotFound(err, "there is no such VM")
}

// Known lists all VMs that the daemon has made, without their jobs.
func (s *Store) Known(ctx context.Context) (all []VM, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM vms WHERE driver_id <> '' AND deleted_at IS NULL ORDER BY id")
}

// Vanished returns what is seen of a VM that the daemon does not know any more.
func Vanished(r *VM) Seen {
	return Seen{
		Node: r.Node, DriverID: r.DriverID, Generation: r.DriverGen, State: Missing, MAC: r.MAC, Autostart: r.Autostart,
		LastError: "the hypervisor daemon does not know the VM any more",
	}
}
