package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Spec is what was requested for a VM, completed with what was decided when it was created. The size
// of its disk can change later, and what is Hardware.
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
	ServedDisk bool      `json:"served_disk,omitempty"` // it has a disk that a client serves

	DiskLimits    DiskLimits    `json:"disk_limits,omitzero"` // of its system disk
	NetworkLimits NetworkLimits `json:"network_limits,omitzero"`
}

// Network is how a VM is connected.
type Network struct {
	Mode   string `json:"mode"` // none, user, bridge or tap
	Bridge string `json:"bridge,omitempty"`
	IP     string `json:"ip,omitempty"`

	Forwards []Forward `json:"forwards,omitempty"` // with mode user
}

// NetworkLimits limit what a guest receives and sends through its device on the host, in bits a second. Zero
// values mean no limit.
type NetworkLimits struct {
	Receive int64 `json:"receive,omitempty"`
	Send    int64 `json:"send,omitempty"`
}

// Modes of a network.
const (
	NetworkNone   = "none"
	NetworkUser   = "user"
	NetworkBridge = "bridge"
	NetworkTap    = "tap"
)

// CloudInit holds the settings for the guest's cloud-init.
type CloudInit struct {
	UserData          string   `json:"user_data,omitempty"`
	SSHAuthorizedKeys []string `json:"ssh_authorized_keys,omitempty"`
	Hostname          string   `json:"hostname,omitempty"`
}

// Boot is what a VM boots from, as resolved when the VM was created.
type Boot struct {
	Kernel, Initrd, KernelArgs string
	Firmware                   string
	RootFS                     string
	Disk                       bool // the VM has its own disk
}

// VM is a VM as stored.
type VM struct {
	ID          string                     `db:"id"`
	Name        string                     `db:"name"`
	Tenant      string                     `db:"tenant"`
	Backend     string                     `db:"backend"`
	State       vm.State                   `db:"state"`
	Spec        db.JSON[Spec]              `db:"spec"`
	Base        string                     `db:"base"`      // the catalog content that it uses
	DiskBase    string                     `db:"disk_base"` // disk shared with linked clones
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
	Events      int64                      `db:"events"`       // number of events so far
	PauseReason string                     `db:"pause_reason"` // why it is paused although nobody asked
	Reverting   string                     `db:"reverting"`    // full snapshot of a revert in progress
	Restarting  bool                       `db:"restarting"`   // to be started again once it has stopped
	Search      string                     `db:"search"`       // what a search looks at (package search)
	// Running is what its process has, while that is not what is wanted; see AsRunning.
	Running db.JSON[*Hardware] `db:"running"`
	// StartedWith is what it was started with for this start only; nil: nothing.
	StartedWith db.JSON[*StartOptions] `db:"started_with"`
	// Disks are its disks beside the system disk, oldest first.
	Disks db.JSON[[]Disk] `db:"disks"`
	CD    db.JSON[*CD]    `db:"cd"` // the medium of its CD drive; nil: none
	// HandedOver is the migration that gave it to another host, which has not confirmed yet; nil: none.
	HandedOver db.JSON[*HandOver] `db:"handed_over"`
	// TakenBackAt is when it was last taken back from a migration.
	TakenBackAt db.Time `db:"taken_back_at"`
	// The larger of what its process has and of what is wanted, which counts against limits.
	CountedVCPUs     int `db:"counted_vcpus"`
	CountedMemoryMiB int `db:"counted_memory_mib"`
	// Instant is which templates its first start may use: empty: none, InstantAny, or the id of one.
	Instant  string `db:"instant"`
	Template string `db:"template"` // that its process began with; empty: it booted
	Booted   string `db:"booted"`   // why its process booted although it could have used a template
}

func (r *VM) searchText() string {
	words := []string{r.ID, r.Name, r.Spec.V.Image, r.Tenant}
	if r.State.HasProcess() {
		words = append(words, r.IPs.V...) // what it had before is nobody's, or another VM's
	}
	return search.Text(r.Labels.V, words...)
}

// described returns the ID, and the column search.
func (r *VM) described() (id, text string) { return r.ID, r.searchText() }

// GiB is one GiB in bytes.
const GiB = 1 << 30

// HasDisk reports whether a VM has its own disk. Sandboxes have none. VMs that boot a kernel have
// one only if they have an image or requested a disk.
func (r *VM) HasDisk() bool { return r.Spec.V.Boot.Disk }

// HasTap reports whether the VM has a network device on the host while it runs.
func (r *VM) HasTap() bool { return r.Spec.V.Network.HasTap() }

// HasTap reports whether this mode needs a network device on the host.
func (n *Network) HasTap() bool { return n.Mode == NetworkBridge || n.Mode == NetworkTap }

// VM returns a VM in the caller's scope.
func (s *Store) VM(ctx context.Context, id string) (VM, error) { return vmIn(ctx, s.db, id) }

func vmIn(ctx context.Context, q db.Querier, id string) (VM, error) {
	var r VM
	err := q.Get(ctx, &r, "SELECT * FROM vms WHERE id = ?", id)
	if err == nil && !caller.From(ctx).Sees(r.Tenant) {
		err = db.ErrNoRows
	}
	return r, db.NotFound(err, "there is no such VM")
}

// AllVMs returns all VMs of the host, oldest first.
func (s *Store) AllVMs(ctx context.Context) (all []VM, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM vms ORDER BY id")
}

// Name says what a VM is called.
type Name struct {
	ID     string `db:"id"`
	Name   string `db:"name"`
	Tenant string `db:"tenant"`
}

// Named returns the names of all VMs of the host.
func (s *Store) Named(ctx context.Context) (all []Name, err error) {
	return all, s.db.Select(ctx, &all, "SELECT id, name, tenant FROM vms ORDER BY id")
}

// Due returns the VMs that have expired, and those in state deleting.
func (s *Store) Due(ctx context.Context) (due []VM, err error) {
	return due, s.db.Select(ctx, &due, "SELECT * FROM vms WHERE expires_at <= ? AND "+staying+
		" OR state = ? ORDER BY expires_at", db.At(s.now()), vm.Deleting)
}

// NextExpiry returns the time at which the next VM expires, or zero if none does.
func (s *Store) NextExpiry(ctx context.Context) (next db.Time, err error) {
	return next, s.db.Get(ctx, &next, "SELECT MIN(expires_at) FROM vms WHERE state <> ? AND "+staying, vm.Deleting)
}

// StartWithHost returns the ids of the VMs with autostart that are stopped or failed.
func (s *Store) StartWithHost(ctx context.Context) (ids []string, err error) {
	return ids, s.db.Select(ctx, &ids, "SELECT id FROM vms WHERE autostart = TRUE AND state IN (?, ?) AND "+staying+" ORDER BY id",
		vm.Stopped, vm.Failed)
}

// Given is the sum of resources allocated to VMs.
type Given struct {
	State     vm.State `db:"state"`
	VMs       int      `db:"vms"`
	VCPUs     int      `db:"vcpus"`
	MemoryMiB int      `db:"memory_mib"`
}

// Given returns what is allocated to all VMs.
func (s *Store) Given(ctx context.Context) (all Given, err error) {
	return all, s.db.Get(ctx, &all, `SELECT '' AS state, COUNT(*) AS vms, COALESCE(SUM(counted_vcpus), 0) AS vcpus,
		COALESCE(SUM(counted_memory_mib), 0) AS memory_mib FROM vms`)
}

// GivenByState returns what is allocated to the VMs in each state.
func (s *Store) GivenByState(ctx context.Context) (all []Given, err error) {
	return all, s.db.Select(ctx, &all, `SELECT state, COUNT(*) AS vms, SUM(counted_vcpus) AS vcpus,
		SUM(counted_memory_mib) AS memory_mib FROM vms GROUP BY state`)
}

// Filter selects VMs. Zero fields match all.
type Filter struct {
	Tenant string
	State  string
	Labels map[string]string
	Text   string // must be contained in the id, name, image, tenant, an address or a label (key=value), ignoring case
	Sort   string // as the contract has it; empty: oldest first
	After  string // the key of the last VM of the previous page
	Limit  int
}

// Ids sort by the time of creation.
var vmSorts = list.Sorts{List: "vms", Unique: "id", Usual: "created_at", By: map[string]list.Column{
	"created_at": {Name: "id"}, "name": {Name: "name"}, "state": {Name: "state"},
}}

// VMKey returns the key of a VM in a list.
func VMKey(order list.Order, r VM) string {
	value := ""
	switch order.Word() {
	case "name":
		value = r.Name
	case "state":
		value = string(r.State)
	}
	return order.Key(value, r.ID)
}

// VMs lists VMs in the caller's scope.
func (s *Store) VMs(ctx context.Context, f Filter) (found []VM, order list.Order, err error) {
	scope := caller.From(ctx).Scope().And(arrived)
	if f.Tenant != "" {
		scope = scope.And("tenant = ?", f.Tenant)
	}
	if f.State != "" {
		scope = scope.And("state = ?", f.State)
	}
	page := search.Page{
		Table: "vms", ID: "id", Sorts: vmSorts, Scope: scope, Text: f.Text, Sort: f.Sort, After: f.After, Limit: f.Limit,
	}
	for len(found) < f.Limit {
		// The column search holds not all labels, and in lower case. So they are compared here, and a page
		// may take several queries to fill.
		var rows []VM
		if order, err = page.Read(ctx, s.db, &rows); err != nil {
			return nil, order, err
		}
		for _, r := range rows {
			if hasLabels(r.Labels.V, f.Labels) && len(found) < f.Limit {
				found = append(found, r)
			}
		}
		if len(rows) < f.Limit {
			break
		}
		page.After = VMKey(order, rows[len(rows)-1])
	}
	return found, order, nil
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
