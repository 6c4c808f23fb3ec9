package driver

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Label is the label of a VM at the daemon that holds the VM's id in this service.
const Label = "mainstay.vm"

// PlaceOf returns where a VM is that the daemon has made.
func PlaceOf(r *record.VM) Place { return Place{Node: r.Node, ID: r.DriverID, Tenant: r.Tenant} }

// Make returns a VM that the daemon makes, or has made in an earlier call.
func (d *Driver) Make(ctx context.Context, r *record.VM, init record.CloudInit) (record.Seen, error) {
	if seen, err := d.Find(ctx, r); err != nil || seen != nil {
		return deref(seen), err
	}
	spec := d.spec(r, init)
	at := Place{Tenant: r.Tenant}
	if !d.cfg.Fleet {
		vm, err := call[hypervisorapi.VM](ctx, d, at, workTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.CreateVM(ctx, spec)
			})
		if err != nil {
			return record.Seen{}, err
		}
		seen, err := seenOf(&vm, "")
		if err != nil {
			return seen, err
		}
		return d.Sized(ctx, at.Tenant, seen), nil
	}
	placed := hypervisorapi.FleetVMSpec{
		Name: spec.Name, Backend: spec.Backend, Vcpus: spec.Vcpus, MemoryMib: spec.MemoryMib, DiskGib: spec.DiskGib,
		Image: spec.Image, Network: spec.Network, Labels: spec.Labels, Autostart: spec.Autostart, CloudInit: spec.CloudInit,
		Tenant: spec.Tenant,
	}
	if r.Spec.V.Node != "" {
		placed.Node = &r.Spec.V.Node
	}
	vm, err := call[hypervisorapi.FleetVM](ctx, d, at, workTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.CreateFleetVM(ctx, placed)
		})
	if err != nil {
		return record.Seen{}, err
	}
	seen, err := seenOfFleet(&vm)
	if err != nil {
		return seen, err
	}
	return d.Sized(ctx, at.Tenant, seen), nil
}

// Sized completes what is seen of a VM whose disk has its image's size, which the daemon tells among the
// VM's disks only. If that cannot be known now, the size stays 0.
func (d *Driver) Sized(ctx context.Context, tenant string, seen record.Seen) record.Seen {
	if seen.Disk > 0 {
		return seen
	}
	disks, err := d.Disks(ctx, Place{Node: seen.Node, ID: seen.DriverID, Tenant: tenant})
	if err == nil && len(disks) > 0 && disks[0].Name == record.SystemDisk {
		seen.Disk = disks[0].Size
	}
	return seen
}

func (d *Driver) spec(r *record.VM, init record.CloudInit) hypervisorapi.VMSpec {
	backend := hypervisorapi.Backend(r.Spec.V.Backend)
	mode := hypervisorapi.NetworkMode(r.Spec.V.Network.Mode)
	spec := hypervisorapi.VMSpec{
		Name: r.Name, Backend: &backend, Vcpus: &r.CPUs, MemoryMib: &r.Memory,
		Labels: &hypervisorapi.Labels{Label: r.ID}, Autostart: &r.Autostart,
		Network: &hypervisorapi.Network{Mode: &mode},
	}
	if r.Spec.V.Image != "" {
		spec.Image = &r.Spec.V.Image
	}
	if r.Tenant != "" {
		spec.Tenant = &r.Tenant
	}
	if r.Spec.V.Network.Bridge != "" {
		spec.Network.Bridge = &r.Spec.V.Network.Bridge
	}
	if forwards := r.Spec.V.Network.Forwards; len(forwards) > 0 {
		spec.Network.Forwards = &[]hypervisorapi.Forward{}
		for _, f := range forwards {
			*spec.Network.Forwards = append(*spec.Network.Forwards, hypervisorapi.Forward{
				Protocol: new(hypervisorapi.ForwardProtocol(f.Protocol)), HostAddress: &f.HostAddress, HostPort: f.HostPort,
				GuestPort: f.GuestPort,
			})
		}
	}
	if r.Disk > 0 && !r.Spec.V.ImageSized {
		spec.DiskGib = &r.Disk
	}
	if init.UserData != "" || init.Hostname != "" || len(init.SSHAuthorizedKeys) > 0 {
		spec.CloudInit = &hypervisorapi.CloudInit{UserData: some(init.UserData), Hostname: some(init.Hostname)}
		if len(init.SSHAuthorizedKeys) > 0 { // null is not a list
			spec.CloudInit.SshAuthorizedKeys = &init.SSHAuthorizedKeys
		}
	}
	return spec
}

// Clone returns a VM that the daemon makes with a copy of another one's disk, or has made in an
// earlier call. The daemon's operation has the id of the new VM as its key, so it is begun once.
func (d *Driver) Clone(ctx context.Context, r, source *record.VM) (record.Seen, error) {
	at := PlaceOf(source)
	key := r.ID
	op, err := call[hypervisorapi.Operation](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.CloneVM(ctx, at.ID, &hypervisorapi.CloneVMParams{IdempotencyKey: &key},
				hypervisorapi.CloneSpec{Name: r.Name, Linked: &r.Spec.V.Linked})
		})
	if err != nil {
		return record.Seen{}, err
	}
	if op, err = d.await(ctx, at, op); err != nil {
		return record.Seen{}, err
	}
	if op.VmId == nil {
		return record.Seen{}, fault.New(fault.Internal, "the hypervisor daemon does not say which VM it made")
	}
	made := Place{Node: at.Node, ID: *op.VmId, Tenant: at.Tenant}
	return d.patch(ctx, made, hypervisorapi.VMPatch{
		Labels: &hypervisorapi.Labels{Label: r.ID}, Autostart: &r.Autostart, Vcpus: &r.CPUs, MemoryMib: &r.Memory,
	})
}

// await waits until an operation of the daemon has ended. If ctx ends first, it asks the daemon to
// cancel the operation.
func (d *Driver) await(ctx context.Context, at Place, op hypervisorapi.Operation) (hypervisorapi.Operation, error) {
	wait := 20
	for {
		switch op.State {
		case hypervisorapi.OperationStateSucceeded:
			return op, nil
		case hypervisorapi.OperationStateFailed:
			return op, fault.New(fault.Internal, "the hypervisor daemon failed: %s", op.Error)
		case hypervisorapi.OperationStateCancelled:
			return op, fault.New(fault.Conflict, "the operation of the hypervisor daemon was cancelled")
		}
		next, err := call[hypervisorapi.Operation](ctx, d, at, 2*time.Duration(wait)*time.Second,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.GetOperation(ctx, op.Id, &hypervisorapi.GetOperationParams{Wait: &wait})
			})
		if err != nil {
			if ctx.Err() != nil {
				_, _ = call[hypervisorapi.Operation](context.WithoutCancel(ctx), d, at, readTimeout,
					func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
						return c.CancelOperation(ctx, op.Id, hypervisorapi.Nothing{})
					})
			}
			return op, err
		}
		op = next
	}
}

// Find returns the VM that the daemon has made for a row, or nil if there is none.
func (d *Driver) Find(ctx context.Context, r *record.VM) (*record.Seen, error) {
	nodes := []string{""}
	if d.cfg.Fleet {
		list, err := d.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		nodes = nodes[:0]
		for _, n := range list {
			nodes = append(nodes, n.Name)
		}
	}
	labels := []string{Label + "=" + r.ID}
	for _, node := range nodes {
		found, err := call[[]hypervisorapi.VM](ctx, d, Place{Node: node, Tenant: r.Tenant}, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.ListVMs(ctx, &hypervisorapi.ListVMsParams{Label: &labels})
			})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			seen, err := seenOf(&found[0], node)
			return &seen, err
		}
	}
	return nil, nil
}

// Get returns a VM as the daemon has it.
func (d *Driver) Get(ctx context.Context, at Place) (record.Seen, error) {
	return d.vm(ctx, at, readTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.GetVM(ctx, at.ID)
	})
}

// StartOptions are options of one start. Kernel, Initrd and Firmware are paths on the host.
type StartOptions struct {
	Kernel    string   `json:"kernel,omitempty"`
	Initrd    string   `json:"initrd,omitempty"`
	Firmware  string   `json:"firmware,omitempty"`
	ExtraArgs []string `json:"extra_args,omitempty"`
	Mounts    []Mount  `json:"mounts,omitempty"`
}

// Mount is a folder of the host that a guest has. Start shares it, and MountShares mounts it.
type Mount struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	ReadOnly    bool   `json:"read_only,omitempty"`
}

// tag returns the name by which a guest mounts the share with a number.
func tag(n int) string { return fmt.Sprintf("mainstay-%d", n) }

// None reports whether there are no options.
func (o *StartOptions) None() bool {
	return o.Kernel == "" && o.Initrd == "" && o.Firmware == "" && len(o.ExtraArgs) == 0 &&
		len(o.Mounts) == 0
}

// Start starts a VM, and returns when its processors run. Options are for admins of everything, so a
// request with options does not act for the VM's tenant.
func (d *Driver) Start(ctx context.Context, at Place, o StartOptions) (record.Seen, error) {
	var body hypervisorapi.StartOptions
	if !o.None() {
		at.Tenant = ""
		body.Kernel, body.Initrd, body.Firmware = some(o.Kernel), some(o.Initrd), some(o.Firmware)
		if len(o.ExtraArgs) > 0 {
			body.ExtraArgs = &o.ExtraArgs
		}
		if len(o.Mounts) > 0 {
			body.Shares = &[]hypervisorapi.Share{}
			for n, m := range o.Mounts {
				*body.Shares = append(*body.Shares, hypervisorapi.Share{Source: m.Source, Tag: tag(n), ReadOnly: &m.ReadOnly})
			}
		}
	}
	seen, err := d.vm(ctx, at, workTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.StartVM(ctx, at.ID, body)
	})
	if fault.Is(err, fault.Invalid) { // in the words of this service's contract
		f := *fault.From(err)
		f.Message = strings.Replace(f.Message, "shares.", "bind_mounts.", 1)
		err = &f
	}
	return seen, err
}

// The limits of MountShares: of the guest's boot, and of each mount.
const (
	mountBootLimit = 5 * time.Minute
	mountLimit     = 30 * time.Second
)

// MountShares has the agent of a guest that boots mount what Start has shared.
func (d *Driver) MountShares(ctx context.Context, at Place, mounts []Mount) error {
	if err := d.AwaitAgent(ctx, at, mountBootLimit); err != nil {
		return fault.Wrap(fault.KindOf(err), err, "the VM runs, and nothing was mounted: %s", fault.From(err).Message)
	}
	for n, m := range mounts {
		options := "trans=virtio,version=9p2000.L,msize=131072"
		if m.ReadOnly {
			options += ",ro"
		}
		for _, argv := range [][]string{
			{"mkdir", "-p", "--", m.Destination}, {"mount", "-t", "9p", "-o", options, tag(n), m.Destination},
		} {
			ended, err := d.Exec(ctx, at, argv, mountLimit)
			if err == nil && ended.ExitCode != 0 {
				why, _, _ := strings.Cut(strings.TrimSpace(ended.Stderr), "\n")
				err = fault.New(fault.Conflict, "%s", strings.TrimPrefix(why, argv[0]+": "))
			}
			if err != nil {
				return fault.Wrap(fault.KindOf(err), err, "the VM runs, and %s was not mounted at %s: %s", m.Source,
					m.Destination, fault.From(err).Message)
			}
		}
	}
	return nil
}

// Stop asks the guest to shut down, switches it off after grace, and returns when it has stopped.
func (d *Driver) Stop(ctx context.Context, at Place, grace time.Duration, force bool) (record.Seen, error) {
	seconds := int(grace / time.Second)
	return d.vm(ctx, at, grace+time.Minute, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.StopVM(ctx, at.ID, hypervisorapi.Stop{GraceSeconds: &seconds, Force: &force})
	})
}

// Restart reboots a VM.
func (d *Driver) Restart(ctx context.Context, at Place) (record.Seen, error) {
	return d.vm(ctx, at, workTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.RestartVM(ctx, at.ID, hypervisorapi.Stop{})
	})
}

// Pause halts the processors of a VM.
func (d *Driver) Pause(ctx context.Context, at Place) (record.Seen, error) {
	return d.vm(ctx, at, readTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.PauseVM(ctx, at.ID, hypervisorapi.Nothing{})
	})
}

// Resume lets a paused VM continue.
func (d *Driver) Resume(ctx context.Context, at Place) (record.Seen, error) {
	return d.vm(ctx, at, readTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.ResumeVM(ctx, at.ID, hypervisorapi.Nothing{})
	})
}

// Change changes a VM: its name, autostart, processors and memory. What a running VM cannot take at once
// waits for its next start.
func (d *Driver) Change(ctx context.Context, at Place, c record.Change) (record.Seen, error) {
	return d.patch(ctx, at, hypervisorapi.VMPatch{
		Name: c.Name, Autostart: c.Autostart, Vcpus: c.CPUs, MemoryMib: c.Memory,
	})
}

func (d *Driver) patch(ctx context.Context, at Place, body hypervisorapi.VMPatch) (record.Seen, error) {
	return d.vm(ctx, at, readTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.PatchVM(ctx, at.ID, body)
	})
}

// InsertCD puts an image of the daemon's catalog into a VM's CD drive.
func (d *Driver) InsertCD(ctx context.Context, at Place, image string) (record.Seen, error) {
	return d.vm(ctx, at, workTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.InsertCD(ctx, at.ID, hypervisorapi.CDSpec{Image: image})
	})
}

// EjectCD empties a VM's CD drive.
func (d *Driver) EjectCD(ctx context.Context, at Place) (record.Seen, error) {
	return d.vm(ctx, at, workTimeout, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.EjectCD(ctx, at.ID)
	})
}

// Delete removes a VM with its disks. It succeeds if there is none.
func (d *Driver) Delete(ctx context.Context, at Place) error {
	c, err := d.at(at.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(forTenant(ctx, at.Tenant), workTimeout)
	defer cancel()
	_, err = rest.Read(c.DeleteVM(ctx, at.ID))
	if err = d.translate(ctx, at, err); fault.Is(err, fault.NotFound) && codeOf(err) != CodeUnknownNode {
		return nil
	}
	return err
}

// CodeUnknownNode is the code of an answer about a host that the registry does not know. It is not
// an answer about a VM.
const CodeUnknownNode = "node_not_found"

func codeOf(err error) string { return fault.From(err).Code }

// Metrics is what a VM uses.
type Metrics struct {
	CPUSeconds                      float64 // since the start
	MemoryBytes                     int64
	DiskReadBytes, DiskWrittenBytes int64 // since the start
	NetReceivedBytes, NetSentBytes  int64 // since the start
	At                              time.Time
}

// Metrics returns what a running VM uses.
func (d *Driver) Metrics(ctx context.Context, at Place) (Metrics, error) {
	m, err := call[hypervisorapi.VMMetrics](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.GetVMMetrics(ctx, at.ID)
		})
	cpu := m.CpuSeconds
	if math.IsNaN(cpu) || cpu < 0 {
		cpu = 0
	}
	return Metrics{
		cpu, max(0, m.MemoryBytes), max(0, m.DiskReadBytes), max(0, m.DiskWrittenBytes), max(0, m.NetReceivedBytes),
		max(0, m.NetSentBytes), m.At,
	}, err
}

// vm sends a request that answers with a VM.
func (d *Driver) vm(
	ctx context.Context, at Place, limit time.Duration,
	send func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error),
) (record.Seen, error) {
	vm, err := call[hypervisorapi.VM](ctx, d, at, limit, send)
	if err != nil {
		return record.Seen{}, err
	}
	if vm.Id != at.ID {
		return record.Seen{}, fault.New(fault.Internal, "the hypervisor daemon answers with another VM than was asked for")
	}
	return seenOf(&vm, at.Node)
}

// seenOf translates the daemon's VM.
func seenOf(vm *hypervisorapi.VM, node string) (record.Seen, error) {
	const longestID = 64
	if vm.Id == "" || len(vm.Id) > longestID || !vm.State.Valid() {
		return record.Seen{}, fault.New(fault.Unavailable,
			"the hypervisor daemon's answer is not in the form of a daemon's")
	}
	seen := record.Seen{
		Node: node, DriverID: vm.Id, Generation: vm.Generation, State: stateOf(vm.State), Disk: vm.DiskGib, IPs: vm.Ips,
		CPUs: vm.Vcpus, Memory: vm.MemoryMib, Pending: pendingOf(vm.Pending),
		MAC: vm.Mac, Agent: record.Agent{Connected: vm.Agent.Connected, Version: vm.Agent.Version},
		Autostart: vm.Autostart, LastError: vm.LastError,
	}
	for i := range vm.Disks {
		seen.Disks = append(seen.Disks, diskOf(&vm.Disks[i]))
	}
	if vm.Cd != nil {
		seen.CD = vm.Cd.Image
	}
	if vm.StartedAt != nil {
		seen.StartedAt = db.At(*vm.StartedAt)
	}
	return seen, nil
}

func seenOfFleet(vm *hypervisorapi.FleetVM) (record.Seen, error) {
	return seenOf(&hypervisorapi.VM{
		Id: vm.Id, State: vm.State, Generation: vm.Generation, DiskGib: vm.DiskGib, Ips: vm.Ips, Mac: vm.Mac, Agent: vm.Agent,
		Autostart: vm.Autostart, LastError: vm.LastError, StartedAt: vm.StartedAt, Vcpus: vm.Vcpus, MemoryMib: vm.MemoryMib,
		Pending: vm.Pending, Cd: vm.Cd, Disks: vm.Disks,
	}, vm.Node)
}

// pendingOf translates the daemon's names of fields.
func pendingOf(fields []string) (out []string) {
	for _, f := range fields {
		switch f {
		case "vcpus":
			f = "cpus"
		case "memory_mib":
			f = "memory"
		}
		out = append(out, f)
	}
	return out
}

// stateOf translates the daemon's state. A VM that is being made is stopped for its owner, and one
// that is being deleted below this service is about to be missing.
func stateOf(s hypervisorapi.State) record.State {
	switch s {
	case hypervisorapi.StateStarting:
		return record.Starting
	case hypervisorapi.StateRunning:
		return record.Running
	case hypervisorapi.StatePaused:
		return record.Paused
	case hypervisorapi.StateStopping:
		return record.Stopping
	case hypervisorapi.StateFailed:
		return record.Failed
	}
	return record.Stopped
}

func some(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
