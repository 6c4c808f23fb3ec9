package record

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// State is a VM's state.
type State string

// The states.
const (
	Stopped  State = "stopped"
	Starting State = "starting"
	Running  State = "running"
	Paused   State = "paused"
	Stopping State = "stopping"
	Failed   State = "failed"
	Missing  State = "missing"
)

// Spec is what the daemon is asked for when it makes the VM, besides what is in columns.
type Spec struct {
	Image string `json:"image"`
	// AnyImage says that whoever chose the image sees those of all tenants.
	AnyImage bool    `json:"any_image,omitempty"`
	Backend  string  `json:"backend"`
	Network  Network `json:"network"`
	// ImageSized says that nobody asked for a size of the disk: it has the image's.
	ImageSized bool `json:"image_sized,omitempty"`
	// Source is the VM that this one is a clone of, by its id; Linked: it shares its disk.
	Source string `json:"source,omitempty"`
	Linked bool   `json:"linked,omitempty"`
	// Node is the host that was asked for; empty: any.
	Node string `json:"node,omitempty"`
}

// Network is how a VM is connected.
type Network struct {
	Mode   string `json:"mode"`
	Bridge string `json:"bridge,omitempty"`
	// Forwards are for the mode user.
	Forwards []Forward `json:"forwards,omitempty"`
}

// Forward leads a port of the host into the guest.
type Forward struct {
	Protocol    string `json:"protocol"` // tcp or udp
	HostAddress string `json:"host_address"`
	HostPort    int    `json:"host_port"`
	GuestPort   int    `json:"guest_port"`
}

// CloudInit holds the settings for the guest's cloud-init.
type CloudInit struct {
	UserData          string   `json:"user_data,omitempty"`
	SSHAuthorizedKeys []string `json:"ssh_authorized_keys,omitempty"`
	Hostname          string   `json:"hostname,omitempty"`
}

// Agent is what is known of the guest's agent.
type Agent struct {
	Connected bool   `json:"connected"`
	Version   string `json:"version"`
}

// VM is a VM as stored.
type VM struct {
	ID           string                     `db:"id"`
	Name         string                     `db:"name"`
	Tenant       string                     `db:"tenant"`
	Spec         db.JSON[Spec]              `db:"spec"`
	Labels       db.JSON[map[string]string] `db:"labels"`
	Tags         db.JSON[[]string]          `db:"tags"`
	Description  string                     `db:"description"`
	CPUs         int                        `db:"cpus"`
	Memory       int                        `db:"memory"` // MiB
	Disk         int                        `db:"disk"`   // GiB; 0: not known yet
	Disks        db.JSON[[]Disk]            `db:"disks"`  // beside the system disk
	Reservations db.JSON[[]Reservation]     `db:"disk_reservations"`
	DataDisk     int                        `db:"data_disk"` // GiB of Disks and Reservations; save computes it
	CD           string                     `db:"cd"`        // the image in its drive, as the daemon names it; empty: none
	Pending      db.JSON[[]string]          `db:"pending"`   // fields whose change waits for the next start
	State        State                      `db:"state"`
	Unreachable  bool                       `db:"unreachable"` // its host does not answer
	Autostart    bool                       `db:"autostart"`
	Protected    bool                       `db:"protected"`
	Node         string                     `db:"node"`
	DriverID     string                     `db:"driver_id"` // its id at the daemon; empty: not made
	DriverGen    int64                      `db:"driver_gen"`
	IPs          db.JSON[[]string]          `db:"ips"`
	MAC          string                     `db:"mac"`
	Agent        db.JSON[Agent]             `db:"agent"`
	LastError    string                     `db:"last_error"`
	SnapshotID   string                     `db:"snapshot_id"` // the snapshot that its disk stands on
	Secret       string                     `db:"secret"`      // sealed CloudInit
	Search       string                     `db:"search"`
	Events       int64                      `db:"events"` // number of events so far
	CreatedAt    db.Time                    `db:"created_at"`
	UpdatedAt    db.Time                    `db:"updated_at"`
	StartedAt    db.Time                    `db:"started_at"`
	DeletedAt    db.Time                    `db:"deleted_at"`

	// Job is the unfinished job that changes the VM. It is nil if there is none.
	Job *JobRef `db:"-"`
}

// Provisioned reports whether the daemon has made the VM.
func (r *VM) Provisioned() bool { return r.DriverID != "" }

// LabelTenant is the label that holds a VM's tenant. It cannot be changed.
const LabelTenant = "tenant"

func (r *VM) searchText() string {
	words := append([]string{r.ID, r.Name, r.Spec.V.Image, r.Tenant}, r.Tags.V...)
	return search.Text(r.Labels.V, append(words, r.IPs.V...)...)
}

var errNoVM = fault.New(fault.NotFound, "there is no such VM")

// selectVMs reads VMs with their unfinished jobs in one statement: two could see a VM from before the
// end of its job, and no job.
const selectVMs = `SELECT vms.*, COALESCE((SELECT o.id || ' ' || o.kind FROM operations o JOIN jobs j ON j.id = o.id
	WHERE o.vm_id = vms.id AND o.kind LIKE 'vm.%' AND j.finished_at IS NULL ORDER BY o.id LIMIT 1), '') AS job FROM vms WHERE `

// vmRow is a row of selectVMs.
type vmRow struct {
	VM
	OpenJob string `db:"job"`
}

func (r *vmRow) vm() VM {
	if id, kind, ok := strings.Cut(r.OpenJob, " "); ok {
		r.Job = &JobRef{id, kind}
	}
	return r.VM
}

// VM returns a VM in the caller's scope by its id.
func (s *Store) VM(ctx context.Context, id string) (VM, error) {
	var r vmRow
	err := s.db.Get(ctx, &r, selectVMs+"id = ? AND deleted_at IS NULL", id)
	if err == nil && !caller.From(ctx).Sees(r.Tenant) {
		err = db.ErrNoRows
	}
	return r.vm(), db.NotFound(err, "there is no such VM")
}

// locked returns a VM in the caller's scope, whose row stays locked until the end of the transaction.
func locked(ctx context.Context, tx *db.Tx, id string) (VM, error) {
	var r VM
	err := tx.Get(ctx, &r, "SELECT * FROM vms WHERE id = ? AND deleted_at IS NULL"+tx.ForUpdate(), id)
	if err == nil && !caller.From(ctx).Sees(r.Tenant) {
		err = db.ErrNoRows
	}
	if err := db.NotFound(err, "there is no such VM"); err != nil {
		return r, err
	}
	// In a statement of its own, which sees what was committed while this one waited for the lock.
	var job JobRef
	err = tx.Get(ctx, &job, `SELECT o.id, o.kind FROM operations o JOIN jobs j ON j.id = o.id
		WHERE o.vm_id = ? AND o.kind LIKE 'vm.%' AND j.finished_at IS NULL ORDER BY o.id LIMIT 1`, id)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return r, nil
	case err != nil:
		return r, err
	}
	r.Job = &job
	return r, nil
}

// Named returns a VM in the caller's scope by its name. tenant narrows the search for callers who
// see several tenants; nil does not. If VMs of several tenants have the name, it fails with
// Conflict.
func (s *Store) Named(ctx context.Context, name string, tenant *string) (VM, error) {
	condition, args := caller.From(ctx).Scope().SQL()
	if tenant != nil {
		condition, args = condition+" AND tenant = ?", append(args, *tenant)
	}
	var found []vmRow
	err := s.db.Select(ctx, &found, selectVMs+condition+" AND name = ? AND deleted_at IS NULL LIMIT 2", append(args, name)...)
	switch {
	case err != nil:
		return VM{}, err
	case len(found) == 0:
		return VM{}, errNoVM
	case len(found) > 1:
		return VM{}, fault.New(fault.Conflict, "several tenants have a VM named %s; say which one's with ?tenant=NAME", name)
	}
	return found[0].vm(), nil
}

// Filter selects VMs. Empty fields select all.
type Filter struct {
	Tenant string // the label, or the tag tenant:NAME
	State  State
	Tag    string
	Node   string
	Text   string // see package search
	Sort   string // name, created or state, with a dash before it for descending; empty: name
	list.Offset
}

// orders are the ORDER BY clauses of Filter.Sort. Each ends with the primary key, so that pages do
// not overlap.
var orders = map[string]string{
	"": "name, id", "name": "name, id", "-name": "name DESC, id DESC", "created": "id", "-created": "id DESC",
	"state": "state, name, id", "-state": "state DESC, name, id",
}

// VMs lists the VMs in the caller's scope that a filter selects, and counts them.
func (s *Store) VMs(ctx context.Context, f Filter) (page []VM, total int, err error) {
	scope := caller.From(ctx).Scope().And("deleted_at IS NULL")
	if f.Tenant != "" {
		scope = scope.And("(tenant = ? OR EXISTS (SELECT 1 FROM vm_tags t WHERE t.vm_id = vms.id AND t.tag = ?))",
			f.Tenant, "tenant:"+f.Tenant)
	}
	if f.State != "" {
		scope = scope.And("state = ?", f.State)
	}
	if f.Tag != "" {
		scope = scope.And("EXISTS (SELECT 1 FROM vm_tags t WHERE t.vm_id = vms.id AND t.tag = ?)", f.Tag)
	}
	if f.Node != "" {
		scope = scope.And("node = ?", f.Node)
	}
	condition, args := scope.SQL()
	if f.Text != "" {
		contains, arg := search.Contains(f.Text)
		condition, args = condition+" AND "+contains, append(args, arg)
	}
	if err := s.db.Get(ctx, &total, "SELECT COUNT(*) FROM vms WHERE "+condition, args...); err != nil {
		return nil, 0, err
	}
	order, ok := orders[f.Sort]
	if !ok {
		return nil, 0, fault.InvalidField("sort", "must be one of %v", slices.Sorted(maps.Keys(orders))[1:])
	}
	var rows []vmRow
	err = s.db.Select(ctx, &rows, selectVMs+condition+" ORDER BY "+order+" LIMIT ? OFFSET ?",
		append(args, f.Limit, f.Offset.Offset)...)
	for i := range rows {
		page = append(page, rows[i].vm())
	}
	return page, total, err
}

// save writes all columns of a VM that can change, and tells what has happened to it. All changes of a
// VM's state go through it, but that to unreachable.
func (s *Store) save(ctx context.Context, tx *db.Tx, r *VM) error {
	s.networkChange(tx)
	was, err := s.beforeSave(ctx, tx, r.ID)
	if err != nil {
		return err
	}
	r.UpdatedAt, r.Search = db.At(s.now()), r.searchText()
	r.DataDisk = r.dataSize() + r.reserved()
	if _, err := tx.Exec(ctx, `UPDATE vms SET name = ?, spec = ?, labels = ?, tags = ?, description = ?, cpus = ?, memory = ?,
		disk = ?, disks = ?, disk_reservations = ?, data_disk = ?, cd = ?, pending = ?, state = ?, unreachable = ?,
		autostart = ?, protected = ?, node = ?, driver_id = ?,
		driver_gen = ?, ips = ?, mac = ?, agent = ?, last_error = ?, snapshot_id = ?, secret = ?, search = ?,
		events = ?, updated_at = ?, started_at = ?, deleted_at = ? WHERE id = ?`,
		r.Name, r.Spec, r.Labels, r.Tags, r.Description, r.CPUs, r.Memory, r.Disk, r.Disks, r.Reservations, r.DataDisk,
		r.CD, r.Pending, r.State,
		r.Unreachable, r.Autostart, r.Protected, r.Node, r.DriverID, r.DriverGen, r.IPs, r.MAC, r.Agent, r.LastError,
		r.SnapshotID, r.Secret, r.Search, r.Events, r.UpdatedAt, r.StartedAt, r.DeletedAt, r.ID); err != nil {
		return err
	}
	return s.tellWorld(ctx, tx, Happening{Type: happening(was, r), VM: r, Was: was.State})
}

// setTags replaces the rows of a VM's tags.
func setTags(ctx context.Context, tx *db.Tx, id string, tags []string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM vm_tags WHERE vm_id = ?", id); err != nil {
		return err
	}
	for _, tag := range tags {
		if _, err := tx.Exec(ctx, "INSERT INTO vm_tags (vm_id, tag) VALUES (?, ?) ON CONFLICT DO NOTHING", id, tag); err != nil {
			return err
		}
	}
	return nil
}

// change locks a VM in the caller's scope, lets f change it, and saves it. f returns an event's kind
// and message; an empty message records none.
func (s *Store) change(
	ctx context.Context, tx *db.Tx, id string, f func(r *VM) (kind, message string, err error),
) (VM, error) {
	r, err := locked(ctx, tx, id)
	if err != nil {
		return r, err
	}
	kind, message, err := f(&r)
	if err != nil {
		return r, err
	}
	if message != "" {
		if err := s.tell(ctx, tx, &r, kind, message); err != nil {
			return r, err
		}
	}
	return r, s.save(ctx, tx, &r)
}
