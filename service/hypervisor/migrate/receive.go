package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Offer takes a VM that another host offers, if this host can run it, and returns the names of the files that
// it needs.
func (m *Manager) Offer(ctx context.Context, o *hypervisorapi.MigrationOffer) (record.Arrival, []string, error) {
	req, err := m.request(o)
	if err != nil {
		return record.Arrival{}, nil, err
	}
	// The host that offers it may be killed now. What it leaves is dropped later.
	ctx = context.WithoutCancel(ctx)
	if err := m.giveWay(ctx, o); err != nil {
		return record.Arrival{}, nil, err
	}
	defer m.catalog.Hold()() // until the row names the content
	a, content, err := m.layout(o, req)
	if err != nil {
		return record.Arrival{}, nil, err
	}
	r, err := m.plan.Arrive(ctx, req, content, req.Spec.Boot)
	if err != nil {
		return record.Arrival{}, nil, err
	}
	err = m.machines.With(ctx, r.ID, life.In(vm.Creating), func(context.Context, *machine.Machine, record.VM) error {
		return m.makeFiles(&r, a)
	})
	if err != nil {
		a.close()
		return record.Arrival{}, nil, errors.Join(err, m.abort(ctx, o.Id, fault.From(err).Message))
	}
	m.mu.Lock()
	m.arriving[a.id] = a
	m.mu.Unlock()
	needed := make([]string, len(a.files))
	for i, f := range a.files {
		needed[i] = f.name
	}
	stored, err := m.store.Arrival(ctx, o.Id)
	return stored, needed, err
}

// request returns the offered VM as a request for one.
func (m *Manager) request(o *hypervisorapi.MigrationOffer) (*plan.Request, error) {
	req := &plan.Request{
		Name: o.Vm.Name, Tenant: o.Vm.Tenant, Backend: string(o.Vm.Backend), MAC: o.Vm.Mac, Labels: o.Vm.Labels,
		Autostart: o.Vm.Autostart,
		Arrival:   &plan.Arrival{VM: o.Vm.Id, DiskBytes: o.DiskBytes, Generation: o.Vm.Generation, CreatedAt: o.Vm.CreatedAt},
	}
	from := req.Arrival
	from.ID, from.Node = o.Id, o.Node
	if o.Vm.ExpiresAt != nil {
		from.ExpiresAt = *o.Vm.ExpiresAt
	}
	if req.Backend != backend.QEMU {
		return nil, fault.InvalidField("vm.backend", "only VMs of the backend qemu can move")
	}
	if err := remarshal(o.Spec, &req.Spec); err != nil {
		return nil, fault.InvalidField("spec", "is not that of this host's version: %v", err)
	}
	if err := checkSpec(&req.Spec, o.DiskBytes); err != nil {
		return nil, err
	}
	var err error
	if from.Disks, err = disksOf(o); err != nil {
		return nil, err
	}
	if from.Secrets, err = secrets(o.Vm.AgentSecret, "vm.agent_secret"); err != nil {
		return nil, err
	}
	if req.Spec.Agent != (from.Secrets != "") {
		return nil, fault.InvalidField("vm.agent_secret", "belongs to a VM with an agent")
	}
	req.Secret, _, _ = strings.Cut(from.Secrets, "\n")
	if o.PolicyRevision != nil {
		from.Policy.Revision = *o.PolicyRevision
	}
	if o.NetworkPolicy != nil {
		from.Policy.Revision = max(1, from.Policy.Revision)
		if err := remarshal(*o.NetworkPolicy, &from.Policy.Policy.V); err != nil {
			return nil, fault.InvalidField("network_policy", "is not that of this host's version: %v", err)
		}
		if _, err := netpolicy.Compile(from.Policy.Policy.V); err != nil {
			return nil, err
		}
	}
	if o.Snapshots == nil {
		return req, nil
	}
	for i, s := range *o.Snapshots {
		snap := record.Snapshot{
			Name: s.Name, Kind: string(s.Kind), Description: s.Description, MemoryBytes: s.MemoryBytes,
			CreatedAt: db.At(s.CreatedAt),
		}
		if snap.Secret, err = secrets(s.AgentSecret, fmt.Sprintf("snapshots.%d.agent_secret", i)); err != nil {
			return nil, err
		}
		if s.Hardware != nil {
			if err := remarshal(*s.Hardware, &snap.Hardware.V); err != nil {
				field := fmt.Sprintf("snapshots.%d.hardware", i)
				return nil, fault.InvalidField(field, "is not that of this host's version: %v", err)
			}
		}
		if s.Disks != nil {
			snap.Disks.V = *s.Disks
		}
		from.Snapshots = append(from.Snapshots, snap)
	}
	return req, nil
}

// secrets checks the secrets of an agent, a line each.
func secrets(text *string, field string) (string, error) {
	if text == nil || *text == "" {
		return "", nil
	}
	for line := range strings.SplitSeq(*text, "\n") {
		if err := wire.ValidSecret(line); err != nil {
			return "", fault.InvalidField(field, "%v", err)
		}
	}
	return *text, nil
}

var (
	diskID     = regexp.MustCompile(`^[0-9a-f]{12}$`)
	nameOfDisk = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)
	serial     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)
)

// disksOf returns the offered disks beside the system disk, checked like new ones.
func disksOf(o *hypervisorapi.MigrationOffer) (all []record.Disk, err error) {
	if o.Disks == nil {
		return nil, nil
	}
	if err := remarshal(*o.Disks, &all); err != nil {
		return nil, fault.InvalidField("disks", "are not those of this host's version: %v", err)
	}
	taken := map[string]bool{record.SystemDisk: true}
	for i, d := range all {
		field := fmt.Sprintf("disks.%d", i)
		file, port, number := "id "+d.ID, fmt.Sprint("port ", d.Port), "serial "+d.Serial
		switch {
		case !diskID.MatchString(d.ID), !nameOfDisk.MatchString(d.Name), len(d.Name) > 20, !serial.MatchString(d.Serial):
			return nil, fault.InvalidField(field, "has an id, a name or a serial number that is not valid")
		case d.Port < 1 || d.Port > backend.MaxPorts || d.SizeGiB < 1 || d.SizeGiB > 1<<16 || !validLimits(d.Limits):
			return nil, fault.InvalidField(field, "has a port, a size or limits that are out of range")
		case d.State != record.DiskReady:
			return nil, fault.InvalidField(field, "is not ready")
		case taken[d.Name] || taken[file] || taken[port] || taken[number]:
			return nil, fault.InvalidField(field, "has what another disk of the VM has already")
		}
		taken[d.Name], taken[file], taken[port], taken[number] = true, true, true, true
	}
	return all, nil
}

func validLimits(l record.DiskLimits) bool {
	return l.IOPS >= 0 && l.IOPS <= 1e8 && l.BytesPerSecond >= 0 && l.BytesPerSecond <= 1e12
}

// checkSpec checks what the contract checks in a request for a new VM, and how it boots.
func checkSpec(s *record.Spec, diskBytes int64) error {
	modes := []string{record.NetworkNone, record.NetworkUser, record.NetworkBridge, record.NetworkTap}
	boot := &s.Boot
	switch {
	case s.VCPUs < 1 || s.VCPUs > 512:
		return fault.InvalidField("spec.vcpus", "must be 1 to 512")
	case s.MemoryMiB < 16 || s.MemoryMiB > 1<<24:
		return fault.InvalidField("spec.memory_mib", "must be 16 to %d", 1<<24)
	case s.DiskGiB < 0 || s.DiskGiB > 1<<20 || boot.Disk != (diskBytes > 0):
		return fault.InvalidField("spec.disk_gib", "is not that of the offered disk")
	case !validLimits(s.DiskLimits):
		return fault.InvalidField("spec.disk_limits", "are out of range")
	case s.NetworkLimits.Receive < 0, s.NetworkLimits.Receive > 1e11,
		s.NetworkLimits.Send < 0, s.NetworkLimits.Send > 1e11:
		return fault.InvalidField("spec.network_limits", "are out of range")
	case s.TTLSeconds < 0:
		return fault.InvalidField("spec.ttl_seconds", "must not be negative")
	case s.Storage != storage.Dir:
		return fault.InvalidField("spec.storage", "only disks on the storage dir can move")
	case !slices.Contains(modes, s.Network.Mode):
		return fault.InvalidField("spec.network.mode", "is not one of %s", strings.Join(modes, ", "))
	case !slices.Contains([]string{"", kernelFile, contentKernel}, boot.Kernel),
		!slices.Contains([]string{"", initrdFile, contentInitrd}, boot.Initrd),
		!slices.Contains([]string{"", host.FirmwareCode, firmwareUEFI}, boot.Firmware), boot.RootFS != "":
		return fault.InvalidField("spec.boot", "names a file of another host")
	case strings.ContainsAny(boot.KernelArgs, "\x00\n"):
		return fault.InvalidField("spec.boot", "the kernel's arguments must be one line")
	}
	return nil
}

// giveWay aborts an earlier migration of the same VM, which the other host has given up.
func (m *Manager) giveWay(ctx context.Context, o *hypervisorapi.MigrationOffer) error {
	open, err := m.store.OpenArrivals(ctx, o.Vm.Id)
	if err != nil {
		return err
	}
	for _, a := range open {
		if a.Node != o.Node {
			return fault.New(fault.Conflict, "the host %s offers this VM, too; abort the migration %s first", a.Node, a.ID).
				WithCode("migration_exists")
		}
		if err := m.abort(ctx, a.ID, "the host offered the VM again"); err != nil {
			return err
		}
	}
	_, err = m.store.VM(ctx, o.Vm.Id)
	switch {
	case err == nil:
		return fault.New(fault.Conflict, "this host has a VM with this id").WithCode("vm_exists")
	case fault.Is(err, fault.NotFound):
		return nil
	}
	return err
}

// layout says where the files of an offer go, and completes the request. It returns the SHA-256 of the content
// of this host's catalog that the VM stands on, or "".
func (m *Manager) layout(o *hypervisorapi.MigrationOffer, req *plan.Request) (a *arrival, content string, err error) {
	a = &arrival{id: o.Id, vm: o.Vm.Id, diskBytes: o.DiskBytes, now: m.now, used: m.now()}
	boot, folder := &req.Spec.Boot, m.host.Folder(o.Vm.Id)
	var have *catalog.Content
	if o.Content != nil {
		if c, err := m.catalog.Content(*o.Content); err == nil {
			have, content = &c, c.SHA256
		} else if !fault.Is(err, fault.NotFound) {
			return nil, "", err
		}
	}
	if boot.Firmware == firmwareUEFI {
		if boot.Firmware = plan.Firmware(); boot.Firmware == "" {
			return nil, "", fault.New(fault.Unavailable, "this host has no UEFI firmware for VMs: apt-get install ovmf")
		}
	}
	if have != nil && have.Kind == catalog.Kernel && boot.Kernel == contentKernel {
		boot.Kernel = have.KernelPath()
		if boot.Initrd != "" {
			boot.Initrd = have.InitrdPath()
		}
	}
	seen := map[string]bool{}
	var layers []*incoming
	for i, f := range o.Files {
		if seen[f.Name] {
			return nil, "", fault.InvalidField(fmt.Sprintf("files.%d.name", i), "%s is there twice", f.Name)
		}
		seen[f.Name] = true
		in := &incoming{name: f.Name, path: filepath.Join(folder, f.Name), size: f.SizeBytes}
		switch {
		case isData(f.Name):
			d := slices.IndexFunc(req.Arrival.Disks, func(d record.Disk) bool { return backend.DataPrefix+d.ID == f.Name })
			if d < 0 || f.Backing != nil {
				return nil, "", fault.InvalidField(fmt.Sprintf("files.%d.name", i), "%s is not a disk of the VM", f.Name)
			}
			in.path = storage.DirPool{}.Path(storage.Volume{Folder: folder, Data: req.Arrival.Disks[d].ID})
			in.bytes = int64(req.Arrival.Disks[d].SizeGiB) * record.GiB
		case isLayer(f.Name):
			if f.Backing != nil {
				in.backing = *f.Backing
			}
			layers = append(layers, in)
			continue
		case have != nil && (f.Name == contentKernel || f.Name == contentInitrd):
			continue
		case f.SizeBytes > maxBootFile:
			return nil, "", fault.InvalidField(fmt.Sprintf("files.%d.size_bytes", i), "is more than %d", maxBootFile)
		}
		a.files = append(a.files, in)
	}
	for _, d := range req.Arrival.Disks {
		if name := backend.DataPrefix + d.ID; !seen[name] {
			return nil, "", fault.InvalidField("files", "%s is missing", name)
		}
	}
	for _, name := range host.BootFiles(boot) {
		if name != backend.VarsFile && !seen[name] {
			return nil, "", fault.InvalidField("files", "%s, from which the VM boots, is missing", name)
		}
	}
	return a, content, m.stack(a, req, layers, have)
}

// maxBootFile is the largest file that a VM boots from, in bytes.
const maxBootFile = 2 << 30

// stack puts the layers of a disk on each other, and on the content of this host's catalog.
func (m *Manager) stack(a *arrival, req *plan.Request, layers []*incoming, have *catalog.Content) error {
	below := ""
	if n := len(layers); have != nil && have.Kind == catalog.Disk && n > 0 && layers[n-1].name == contentDisk {
		layers, below = layers[:n-1], have.DiskPath()
	}
	if req.Spec.Boot.Disk != (len(layers) > 0) {
		return fault.InvalidField("files", "the disk is missing, or belongs to no VM")
	}
	from := req.Arrival
	for i := len(layers) - 1; i >= 0; i-- {
		f := layers[i]
		want := fmt.Sprint(basePrefix, i-1)
		switch {
		case i == 0:
			want = diskName
			f.path = filepath.Join(m.host.Folder(a.vm), storage.DiskFile)
		case i == len(layers)-1 && f.name == contentDisk:
			want = contentDisk
		}
		if f.name != want {
			return fault.InvalidField("files", "%s comes where %s should", f.name, want)
		}
		if (f.backing == "") != (below == "") {
			return fault.InvalidField("files", "%s stands on another file than was offered", f.name)
		}
		f.below = below
		if i > 0 {
			b := record.Base{ID: record.NewID(), Parent: from.DiskBase}
			if have != nil {
				b.Content = have.SHA256
			}
			f.path = m.host.BasePath(b.ID)
			from.Bases, from.DiskBase = append(from.Bases, b), b.ID
		}
		below = f.path
	}
	a.files = append(a.files, layers...)
	return nil
}

// makeFiles makes a VM's folder and empty files. The caller holds the VM's work lock.
func (m *Manager) makeFiles(r *record.VM, a *arrival) error {
	if err := m.host.MakeFolderAnew(r.ID); err != nil {
		return err
	}
	for _, f := range a.files {
		if err := f.create(); err != nil {
			return err
		}
	}
	return nil
}

// arrival returns an offer whose files are being written.
func (m *Manager) arrival(ctx context.Context, id string) (*arrival, error) {
	m.mu.Lock()
	a := m.arriving[id]
	m.mu.Unlock()
	if a != nil {
		return a, nil
	}
	stored, err := m.store.Arrival(ctx, id)
	if err != nil {
		return nil, err
	}
	return nil, stored.Over()
}

// Write writes a piece of a file, at most MaxPiece, after what was written before.
func (m *Manager) Write(ctx context.Context, id, file string, offset int64, piece []byte) error {
	a, err := m.arrival(ctx, id)
	if err != nil {
		return err
	}
	return a.write(file, offset, piece)
}

// Prepare makes an offered VM durable whose files have arrived. If that fails, the migration is aborted.
func (m *Manager) Prepare(ctx context.Context, id string, sums hypervisorapi.MigrationSums) (record.Arrival, error) {
	a, err := m.arrival(ctx, id)
	if err != nil {
		return record.Arrival{}, err
	}
	ctx = context.WithoutCancel(ctx)
	creating := life.In(vm.Creating)
	err = m.machines.With(ctx, a.vm, creating, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.over {
			return record.ErrUnknownMigration
		}
		return m.prepare(ctx, a, &r, sums)
	})
	if err != nil {
		return record.Arrival{}, errors.Join(err, m.abort(ctx, id, fault.From(err).Message))
	}
	m.forget(id)
	return m.store.Arrival(ctx, id)
}

func (m *Manager) prepare(ctx context.Context, a *arrival, r *record.VM, sums hypervisorapi.MigrationSums) error {
	if err := a.complete(ctx, m.host.Volume(r), sums); err != nil {
		return err
	}
	secret := ""
	if r.Spec.V.Agent {
		all, err := m.store.Secrets(ctx, r.ID)
		if err != nil {
			return err
		}
		secret = all[0]
	}
	if err := m.host.WriteSeed(r, secret); err != nil {
		return err
	}
	policy, _, err := m.store.NetworkPolicy(ctx, r.ID)
	if err != nil {
		return err
	}
	if policy.Policy.V != nil {
		compiled, err := netpolicy.Compile(policy.Policy.V)
		if err != nil {
			return err
		}
		if err := m.host.SetPolicy(ctx, r.ID, compiled); err != nil {
			return err
		}
	}
	if err := durable.SyncFolder(m.host.Folder(r.ID)); err != nil {
		return err
	}
	return m.store.PrepareArrival(ctx, a.id)
}

// forget ends the writing of an arrival's files.
func (m *Manager) forget(id string) {
	m.mu.Lock()
	a := m.arriving[id]
	delete(m.arriving, id)
	m.mu.Unlock()
	if a != nil {
		a.close()
	}
}

// Commit makes a prepared VM this host's, and starts it if start is set. It may be repeated.
func (m *Manager) Commit(ctx context.Context, id string, start bool) (record.Arrival, error) {
	ctx = context.WithoutCancel(ctx)
	a, changed, err := m.store.CommitArrival(ctx, id, start)
	if err != nil || !changed {
		return a, err
	}
	m.life.Timed()
	if start {
		m.life.GoOnStarting(ctx, a.VM)
	}
	return a, nil
}

// Abort aborts a migration to this host. It fails with a fault.Conflict if it was committed.
func (m *Manager) Abort(ctx context.Context, id string) error {
	return m.abort(ctx, id, "it was aborted")
}

func (m *Manager) abort(ctx context.Context, id, why string) error {
	ctx = context.WithoutCancel(ctx)
	a, err := m.store.AbortArrival(ctx, id, why)
	if err != nil {
		return err
	}
	m.forget(id)
	err = m.machines.With(ctx, a.VM, machine.Any, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		if r.State != vm.Creating {
			return nil // it is removed already
		}
		open, err := m.store.OpenArrivals(ctx, r.ID)
		if err != nil || len(open) > 0 {
			return err // it was offered again since
		}
		return m.life.Undo(ctx, r, "the migration from the host "+a.Node+" was aborted: "+why)
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// dropSilent aborts the migrations whose files do not arrive any more.
func (m *Manager) dropSilent(ctx context.Context) {
	m.mu.Lock()
	var silent []string
	for id, a := range m.arriving {
		if a.silent() {
			silent = append(silent, id)
		}
	}
	m.mu.Unlock()
	for _, id := range silent {
		if err := m.abort(ctx, id, fmt.Sprintf("nothing has arrived for %v", silence)); err != nil {
			m.log.Error("a migration that was given up is not removed; the next start of the daemon does", "migration", id,
				"error", err)
		}
	}
}

// Arrivals returns the migrations to this host that are not over, oldest first.
func (m *Manager) Arrivals(ctx context.Context) ([]record.Arrival, error) {
	return m.store.OpenArrivals(ctx, "")
}

// Restore drops the arrivals whose files were being written when the daemon ended. Call it before VMs are
// restored, which removes what they left.
func (m *Manager) Restore(ctx context.Context) error { return m.store.DropReceiving(ctx) }
