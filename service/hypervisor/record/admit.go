package record

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Admission is a new VM, and what the policy checks besides its row.
type Admission struct {
	VM      *VM
	DiskGiB int    // of its disk; the row has it only if the request gave it
	Why     string // why its backend was chosen
	Action  string // of the audit entry
	Message string // of the audit entry
	// Arrival is what comes with a VM of another host; nil: the VM is new.
	Arrival *Arrival
}

// Admit checks a new VM against the policy and inserts its row, under one lock and in one
// transaction, so that two requests cannot pass a cap together.
func (s *Store) Admit(ctx context.Context, a Admission) error {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	r := a.VM
	return s.update(ctx, func(tx *db.Tx) error {
		usage, err := usageOf(ctx, tx, r.Tenant)
		if err != nil {
			return err
		}
		asked := admission.Request{
			Tenant: r.Tenant, Backend: r.Backend, VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB, DiskGiB: a.DiskGiB,
			TTL: time.Duration(r.Spec.V.TTLSeconds) * time.Second,
		}
		if err := s.policy.Check(asked, usage); err != nil {
			return err
		}
		if err := checkForwards(ctx, tx, r); err != nil {
			return err
		}
		// The lowest slot that no VM uses.
		if err := tx.Get(ctx, &r.Slot, `SELECT MIN(s.slot) FROM (SELECT 0 AS slot UNION ALL SELECT slot + 1 FROM vms) s
			WHERE NOT EXISTS (SELECT 1 FROM vms v WHERE v.slot = s.slot)`); err != nil {
			return err
		}
		r.Events, r.Search = 0, r.searchText()
		r.settleHardware()
		if err := s.tell(ctx, tx, r, EventBackend, a.Why); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "vms", *r); db.IsUnique(err) {
			return fault.New(fault.Conflict, "there is a VM named %s already", r.Name).WithCode("name_taken")
		} else if err != nil {
			return err
		}
		if a.Arrival != nil {
			if err := s.insertArrival(ctx, tx, r, a.Arrival); err != nil {
				return err
			}
		}
		return s.note(ctx, tx, audit.Entry{Action: a.Action, Target: r.ID, Tenant: r.Tenant, Message: a.Message})
	})
}

// Usage returns a tenant's usage, including VMs that are being created.
func (s *Store) Usage(ctx context.Context, tenant string) (admission.Usage, error) {
	return usageOf(ctx, s.db, tenant)
}

func usageOf(ctx context.Context, q db.Querier, tenant string) (admission.Usage, error) {
	var u Given
	err := q.Get(ctx, &u, `SELECT '' AS state, COUNT(*) AS vms, COALESCE(SUM(counted_vcpus), 0) AS vcpus,
		COALESCE(SUM(counted_memory_mib), 0) AS memory_mib FROM vms WHERE tenant = ?`, tenant)
	return admission.Usage{VMs: u.VMs, VCPUs: u.VCPUs, MemoryMiB: u.MemoryMiB}, err
}

// Doom stores that a VM is being deleted, and cancels its open operations by calling cancel with
// the id of each.
func (s *Store) Doom(ctx context.Context, id string, cancel func(tx *db.Tx, operation string) error) (VM, error) {
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		if r, err = s.moveIn(ctx, tx, id, vm.Delete, "vm.delete", "", nil); err != nil {
			return err
		}
		var open []string
		if err := tx.Select(ctx, &open, `SELECT o.id FROM operations o JOIN jobs j ON j.id = o.id
			WHERE o.vm_id = ? AND j.finished_at IS NULL`, id); err != nil {
			return err
		}
		for _, operation := range open {
			if err := cancel(tx, operation); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.moved(id)
	}
	return r, err
}

// Forget removes the row of a VM that has nothing left on the host, and its dependent rows.
func (s *Store) Forget(ctx context.Context, id string) error {
	if err := s.forgetUsage(ctx, id); err != nil {
		return err
	}
	err := s.update(ctx, func(tx *db.Tx) error {
		var r VM
		switch err := tx.Get(ctx, &r, "SELECT * FROM vms WHERE id = ?", id); {
		case errors.Is(err, db.ErrNoRows): // it is gone already
		case err != nil:
			return err
		default:
			if err := s.publish(ctx, tx, &r, EventDeleted, "the VM is gone", ""); err != nil {
				return err
			}
		}
		for _, statement := range []string{
			"DELETE FROM events WHERE vm_id = ?", "DELETE FROM snapshots WHERE vm_id = ?",
			"DELETE FROM vm_minutes WHERE vm_id = ?", "DELETE FROM network_policies WHERE vm_id = ?",
			"UPDATE backups SET bitmap = '' WHERE vm_id = ?", "DELETE FROM vms WHERE id = ?",
		} {
			if _, err := tx.Exec(ctx, statement, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.moved(id)
	}
	return err
}
