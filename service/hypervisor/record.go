package hypervisor

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Spec is what was asked for of a VM, completed with what was decided about it when it
// was made. It never changes but for the size of its disk.
type Spec struct {
	VCPUs      int       `json:"vcpus"`
	MemoryMiB  int       `json:"memory_mib"`
	DiskGiB    int       `json:"disk_gib"` // 0: no disk of its own
	Image      string    `json:"image,omitempty"`
	Kernel     string    `json:"kernel,omitempty"`
	Initrd     string    `json:"initrd,omitempty"`
	Firmware   string    `json:"firmware,omitempty"`
	KernelArgs string    `json:"kernel_args,omitempty"`
	TTLSeconds int64     `json:"ttl_seconds,omitempty"`
	Storage    string    `json:"storage"`
	Network    Network   `json:"network"`
	Agent      bool      `json:"agent"`
	CloudInit  CloudInit `json:"cloud_init"`
	Boot       Boot      `json:"boot"`
}

// Network is how a VM reaches others.
type Network struct {
	Mode   string `json:"mode"` // none, user, bridge or tap
	Bridge string `json:"bridge,omitempty"`
	IP     string `json:"ip,omitempty"`
}

// The modes of a network.
const (
	networkNone   = "none"
	networkUser   = "user"
	networkBridge = "bridge"
	networkTap    = "tap"
)

// CloudInit is what the guest's cloud-init is told.
type CloudInit struct {
	UserData          string   `json:"user_data,omitempty"`
	SSHAuthorizedKeys []string `json:"ssh_authorized_keys,omitempty"`
	Hostname          string   `json:"hostname,omitempty"`
}

// Boot is what a VM boots from, as it was found when the VM was made.
type Boot struct {
	Kernel, Initrd, KernelArgs string
	Firmware                   string
	RootFS                     string
	Disk                       bool // it has a disk of its own
}

// Record is a VM as it is stored.
type Record struct {
	ID          string                     `db:"id"`
	Name        string                     `db:"name"`
	Tenant      string                     `db:"tenant"`
	Backend     string                     `db:"backend"`
	State       vm.State                   `db:"state"`
	Spec        db.JSON[Spec]              `db:"spec"`
	Base        string                     `db:"base"`      // the content of the catalog that it stands on
	DiskBase    string                     `db:"disk_base"` // the disk that it shares with linked clones
	Labels      db.JSON[map[string]string] `db:"labels"`
	VCPUs       int                        `db:"vcpus"`
	MemoryMiB   int                        `db:"memory_mib"`
	Slot        int                        `db:"slot"`
	Secret      string                     `db:"secret"` // sealed
	MAC         string                     `db:"mac"`
	Tap         string                     `db:"tap"`
	IPs         db.JSON[[]string]          `db:"ips"`
	Autostart   bool                       `db:"autostart"`
	Generation  int64                      `db:"generation"`
	LastError   string                     `db:"last_error"`
	CreatedAt   db.Time                    `db:"created_at"`
	StartedAt   db.Time                    `db:"started_at"`
	ExpiresAt   db.Time                    `db:"expires_at"`
	KillAt      db.Time                    `db:"kill_at"`
	Events      int64                      `db:"events"`       // how many there were
	PauseReason string                     `db:"pause_reason"` // why it is paused though nobody asked for it
	Reverting   string                     `db:"reverting"`    // the full snapshot that it is being put back to
}

// newID makes an id that sorts by the time it was made (UUID version 7).
func newID() string { return uuid.Must(uuid.NewV7()).String() }

var errNoVM = fault.New(fault.NotFound, "there is no such VM")

// record reads a VM in the caller's scope.
func (s *Service) record(ctx context.Context, q db.Querier, id string) (Record, error) {
	var r Record
	err := q.Get(ctx, &r, "SELECT * FROM vms WHERE id = ?", id)
	if err == nil && !caller.From(ctx).Sees(r.Tenant) {
		err = db.ErrNoRows
	}
	return r, db.NotFound(err, "%s", errNoVM.Message)
}

// save writes a VM's changed row. Generations count changes.
func save(ctx context.Context, tx *db.Tx, r *Record) error {
	r.Generation++
	_, err := tx.Exec(ctx, `UPDATE vms SET name = ?, backend = ?, state = ?, spec = ?, secret = ?, mac = ?, tap = ?, ips = ?, autostart = ?,
		generation = ?, last_error = ?, started_at = ?, kill_at = ?, events = ?, vcpus = ?, memory_mib = ?, base = ?, disk_base = ?, pause_reason = ?, reverting = ? WHERE id = ?`,
		r.Name, r.Backend, r.State, r.Spec, r.Secret, r.MAC, r.Tap, r.IPs, r.Autostart,
		r.Generation, r.LastError, r.StartedAt, r.KillAt, r.Events, r.VCPUs, r.MemoryMiB, r.Base, r.DiskBase, r.PauseReason, r.Reverting, r.ID)
	return err
}

// ListFilter selects VMs; zero fields select all.
type ListFilter struct {
	Tenant string
	State  string
	Labels map[string]string
	After  string // the id before the page
	Limit  int
}

// VMs lists VMs in the caller's scope, oldest first.
func (s *Service) VMs(ctx context.Context, f ListFilter) ([]Record, error) {
	query, args := "SELECT * FROM vms WHERE id > ?", []any{f.After}
	if c := caller.From(ctx); c.Tenant != "" {
		query, args = query+" AND tenant = ?", append(args, c.Tenant)
	}
	if f.Tenant != "" {
		query, args = query+" AND tenant = ?", append(args, f.Tenant)
	}
	if f.State != "" {
		query, args = query+" AND state = ?", append(args, f.State)
	}
	var found []Record
	for len(found) < f.Limit {
		// Labels are compared here, so that both engines do it alike; a page is filled from
		// as many rows as it takes.
		var rows []Record
		if err := s.db.Select(ctx, &rows, query+" ORDER BY id LIMIT ?", append(args[:len(args):len(args)], f.Limit)...); err != nil {
			return nil, err
		}
		for _, r := range rows {
			if hasLabels(r.Labels.V, f.Labels) && len(found) < f.Limit {
				found = append(found, r)
			}
		}
		if len(rows) < f.Limit {
			break
		}
		args[0] = rows[len(rows)-1].ID
	}
	return found, nil
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Event is something that happened to a VM.
type Event struct {
	VM      string  `db:"vm_id"`
	Seq     int64   `db:"seq"`
	At      db.Time `db:"at"`
	Kind    string  `db:"kind"`
	Message string  `db:"message"`
	Actor   string  `db:"actor"` // empty: nobody
}

// maxEvents is how many events of a VM are kept.
const maxEvents = 1000

// The kinds of events.
const (
	eventState   = "state"
	eventBackend = "backend"
	eventAgent   = "agent"
	eventDisk    = "disk"
	eventNetwork = "network"
	eventConfine = "confinement"
)

// tell notes an event of a VM whose row is saved afterwards.
func (s *Service) tell(ctx context.Context, tx *db.Tx, r *Record, kind, message string) error {
	r.Events++
	const longest = 2000
	if len(message) > longest {
		message = message[:longest] + "…"
	}
	if err := tx.Insert(ctx, "events", Event{VM: r.ID, Seq: r.Events, At: db.At(s.now()), Kind: kind, Message: message, Actor: caller.From(ctx).Name}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM events WHERE vm_id = ? AND seq <= ?", r.ID, r.Events-maxEvents)
	return err
}

// Events lists what happened to a VM, newest first, before an event's number; 0: from the newest.
func (s *Service) Events(ctx context.Context, id string, before int64, limit int) ([]Event, error) {
	if _, err := s.record(ctx, s.db, id); err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1 << 62
	}
	var events []Event
	err := s.db.Select(ctx, &events, "SELECT * FROM events WHERE vm_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?", id, before, limit)
	return events, err
}

// untilTime is t as a stored time, zero if the duration is 0.
func after(now time.Time, d time.Duration) db.Time {
	if d == 0 {
		return db.Time{}
	}
	return db.At(now.Add(d))
}
