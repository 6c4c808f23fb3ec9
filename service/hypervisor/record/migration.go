package record

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// HandOver is a migration that gave a VM to another host. From when it is stored until the other host has
// confirmed or refused it, the VM is nobody's to use here.
type HandOver struct {
	Migration string `json:"migration"`
	Node      string `json:"node"`
	Start     bool   `json:"start"` // there
}

// IsHere returns a fault.Conflict if the VM was handed over to another host.
func (r *VM) IsHere() error {
	if r.HandedOver.V == nil {
		return nil
	}
	return fault.New(fault.Conflict, "the VM was handed over to the host %s, which has not confirmed yet; "+
		"if that host does not come back, take the VM back", r.HandedOver.V.Node).WithCode("handed_over")
}

// Codes of the faults about migrations that are over.
const (
	CodeCommitted = "migration_committed"
	CodeAborted   = "migration_aborted"
)

// Arrival is a VM that comes, or came, from another host.
type Arrival struct {
	ID        string  `db:"id"` // of the migration
	VM        string  `db:"vm_id"`
	Name      string  `db:"name"`
	Tenant    string  `db:"tenant"`
	Node      string  `db:"node"` // where it comes from
	State     string  `db:"state"`
	CreatedAt db.Time `db:"created_at"`
	EndedAt   db.Time `db:"ended_at"`

	// What is stored with it.
	Bases     []Base        `db:"-"`
	Snapshots []Snapshot    `db:"-"`
	Policy    NetworkPolicy `db:"-"`
}

// States of arrivals.
const (
	ArrivalReceiving = "receiving" // its files are being written
	ArrivalPrepared  = "prepared"  // it is complete; only the host that it comes from, or an admin, ends it
	ArrivalCommitted = "committed" // it is this host's VM
	ArrivalAborted   = "aborted"
)

// Conditions on rows of vms, with the values that the constants above have.
const (
	// arrived excludes VMs that are still another host's, and what is left of those that did not come.
	arrived = "COALESCE((SELECT a.state FROM arrivals a WHERE a.vm_id = vms.id " +
		"ORDER BY a.created_at DESC, a.id DESC LIMIT 1), 'committed') = 'committed'"
	// staying excludes those that are moving between hosts, in either direction.
	staying = "handed_over = 'null' AND " + arrived
)

// ErrUnknownMigration means that this host knows no migration of that id.
var ErrUnknownMigration = fault.New(fault.NotFound, "there is no such migration").WithCode("unknown_migration")

// mayMove refuses what would let a VM that moves between hosts run twice, or vanish.
func mayMove(ctx context.Context, tx *db.Tx, r *VM, m vm.Move) error {
	if m != vm.Left {
		if err := r.IsHere(); err != nil {
			return err
		}
	}
	if r.State != vm.Creating || m != vm.Delete {
		return nil
	}
	var n int
	if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM arrivals WHERE vm_id = ? AND state IN (?, ?)",
		r.ID, ArrivalReceiving, ArrivalPrepared); err != nil || n == 0 {
		return err
	}
	return fault.New(fault.Conflict, "the VM is on its way to this host; abort the migration instead").
		WithCode("migrating")
}

// insertArrival stores what comes with a VM whose row was inserted.
func (s *Store) insertArrival(ctx context.Context, tx *db.Tx, r *VM, a *Arrival) error {
	a.VM, a.Name, a.Tenant, a.State, a.CreatedAt = r.ID, r.Name, r.Tenant, ArrivalReceiving, db.At(s.now())
	for _, b := range a.Bases {
		if err := tx.Insert(ctx, "bases", b); err != nil {
			return err
		}
	}
	for _, snap := range a.Snapshots {
		snap.VM, snap.State = r.ID, snapshotReady
		if err := tx.Insert(ctx, "snapshots", snap); err != nil {
			return err
		}
	}
	if p := a.Policy; p.Revision > 0 {
		p.VM = r.ID
		if err := tx.Insert(ctx, "network_policies", p); err != nil {
			return err
		}
	}
	err := tx.Insert(ctx, "arrivals", *a)
	if db.IsUnique(err) {
		return fault.New(fault.Conflict, "there is a migration with this id already").WithCode("migration_exists")
	}
	return err
}

// Arrival returns a migration to this host.
func (s *Store) Arrival(ctx context.Context, id string) (Arrival, error) {
	return arrivalIn(ctx, s.db, id)
}

func arrivalIn(ctx context.Context, q db.Querier, id string) (a Arrival, err error) {
	err = q.Get(ctx, &a, "SELECT * FROM arrivals WHERE id = ?", id)
	if errors.Is(err, db.ErrNoRows) {
		return a, ErrUnknownMigration
	}
	return a, err
}

// OpenArrivals returns the migrations to this host that are not over, oldest first. If vmID is set, it
// returns only those of that VM.
func (s *Store) OpenArrivals(ctx context.Context, vmID string) (all []Arrival, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM arrivals WHERE state IN (?, ?) AND (? = '' OR vm_id = ?)
		ORDER BY created_at, id`, ArrivalReceiving, ArrivalPrepared, vmID, vmID)
}

// DropReceiving stores that no files arrive any more, as after a restart: which bytes have arrived is only in
// memory.
func (s *Store) DropReceiving(ctx context.Context) error {
	return s.exec(ctx, "UPDATE arrivals SET state = ?, ended_at = ? WHERE state = ?",
		ArrivalAborted, db.At(s.now()), ArrivalReceiving)
}

// ForgetArrivals removes migrations that ended before a time, except those of VMs that are here.
func (s *Store) ForgetArrivals(ctx context.Context, before time.Time) error {
	return s.exec(ctx, "DELETE FROM arrivals WHERE ended_at < ? AND NOT EXISTS (SELECT 1 FROM vms WHERE id = vm_id)",
		db.At(before))
}

// PrepareArrival stores that all that belongs to a VM has arrived.
func (s *Store) PrepareArrival(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		a, err := arrivalIn(ctx, tx, id)
		if err != nil {
			return err
		}
		if a.State != ArrivalReceiving {
			return a.Over()
		}
		return setArrival(ctx, tx, id, ArrivalPrepared, db.Time{})
	})
}

func setArrival(ctx context.Context, tx *db.Tx, id, state string, ended db.Time) error {
	_, err := tx.Exec(ctx, "UPDATE arrivals SET state = ?, ended_at = ? WHERE id = ?", state, ended, id)
	return err
}

// Over returns the fault for a request about a migration that its state does not allow any more.
func (a *Arrival) Over() error {
	f := fault.New(fault.Conflict, "the migration is %s", a.State)
	switch a.State {
	case ArrivalCommitted:
		return f.WithCode(CodeCommitted)
	case ArrivalAborted:
		return f.WithCode(CodeAborted)
	}
	return f.WithCode("migration_open")
}

// CommitArrival makes a prepared VM this host's, and stores that it starts if start is set. If it was
// committed before, nothing changes.
func (s *Store) CommitArrival(ctx context.Context, id string, start bool) (a Arrival, changed bool, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		var err error
		if a, err = arrivalIn(ctx, tx, id); err != nil || a.State == ArrivalCommitted {
			return err
		}
		if a.State != ArrivalPrepared {
			return a.Over()
		}
		message := "it came from the host " + a.Node
		if _, err := s.moveIn(ctx, tx, a.VM, vm.Made, "", message, nil); err != nil {
			return err
		}
		if start {
			if _, err := s.moveIn(ctx, tx, a.VM, vm.Start, "vm.start", message, nil); err != nil {
				return err
			}
		}
		a.State, a.EndedAt, changed = ArrivalCommitted, db.At(s.now()), true
		if err := setArrival(ctx, tx, id, a.State, a.EndedAt); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "migration.commit", Target: a.VM, Tenant: a.Tenant, Message: a.Name})
	})
	if err == nil && changed {
		s.moved(a.VM)
	}
	return a, changed, err
}

// AbortArrival stores that a migration is aborted. It fails with a fault.Conflict if it was committed; if
// it was aborted before, nothing changes.
func (s *Store) AbortArrival(ctx context.Context, id, why string) (a Arrival, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		var err error
		if a, err = arrivalIn(ctx, tx, id); err != nil || a.State == ArrivalAborted {
			return err
		}
		if a.State == ArrivalCommitted {
			return a.Over()
		}
		a.State = ArrivalAborted
		if err := setArrival(ctx, tx, id, a.State, db.At(s.now())); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: "migration.abort", Target: a.VM, Tenant: a.Tenant, Message: a.Name + ": " + why,
		})
	})
	return a, err
}

// HandOver stores that a stopped VM is another host's from now on, unless that refuses it. The other host has
// what the VM was at a generation: a change since then must not be lost.
func (s *Store) HandOver(ctx context.Context, id string, generation int64, to HandOver) (VM, error) {
	message := "handed over to the host " + to.Node
	return s.changeWith(ctx, id, EventConfig, "", message, func(_ *db.Tx, r *VM) error {
		if r.Generation != generation {
			return fault.New(fault.Conflict, "the VM was changed while it was copied; migrate it again").WithCode("vm_changed")
		}
		if _, err := vm.Next(r.State, vm.Left); err != nil { // it is being deleted
			return err
		}
		r.HandedOver.V = &to
		return nil
	})
}

// TakeBack undoes HandOver of a migration that did not take place. An action means that somebody asked for
// that: then no migration that was asked for before goes on.
func (s *Store) TakeBack(ctx context.Context, id, migration, action, why string) (VM, error) {
	var r VM
	err := s.update(ctx, func(tx *db.Tx) (err error) {
		if r, err = vmIn(ctx, tx, id); err != nil {
			return err
		}
		if r.HandedOver.V == nil || r.HandedOver.V.Migration != migration {
			return fault.New(fault.Conflict, "the VM is not handed over to another host").WithCode("not_handed_over")
		}
		message := "it stays at this host: " + why
		r.HandedOver.V = nil
		if action != "" {
			r.TakenBackAt = db.At(s.now())
		}
		if err := s.tell(ctx, tx, &r, EventConfig, message); err != nil {
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

// HandedOver returns the VMs that were handed over to other hosts, which have not confirmed yet.
func (s *Store) HandedOver(ctx context.Context) (all []VM, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM vms WHERE handed_over <> 'null' AND state <> ? ORDER BY id",
		vm.Deleting)
}

// SecretOf returns the secret of the agent in a snapshot's memory, or "".
func (s *Store) SecretOf(snap *Snapshot) (string, error) {
	if snap.Secret == "" {
		return "", nil
	}
	plain, err := s.sealer.Open(snap.Secret, snap.VM)
	return string(plain), err
}
