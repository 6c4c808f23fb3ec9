package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Names of files in an offer. Boot files have the names that they have in a VM's folder.
const (
	diskName      = "disk"
	basePrefix    = "base-"
	kernelFile    = "kernel"
	initrdFile    = "initrd"
	contentDisk   = "content-disk"
	contentKernel = "content-kernel"
	contentInitrd = "content-initrd"
	// firmwareUEFI stands for the firmware of the host.
	firmwareUEFI = "uefi"
)

// isData reports whether a file is that of a disk beside the system disk.
func isData(name string) bool { return strings.HasPrefix(name, backend.DataPrefix) }

// isLayer reports whether a file is a layer of a disk.
func isLayer(name string) bool {
	return name == diskName || isData(name) || name == contentDisk || strings.HasPrefix(name, basePrefix)
}

// movable is a machine.Check: the VM can move as it is.
func (m *Manager) movable(ctx context.Context, r *record.VM) error {
	switch {
	case r.Backend != backend.QEMU || r.HasDisk() && m.host.Disk(r).Format != "qcow2":
		return fault.New(fault.Conflict, "VMs of the backend %s on the storage %s cannot move; backend qemu on storage dir can",
			r.Backend, r.Spec.V.Storage).WithCode("migration_unsupported")
	case r.CD.V != nil:
		return fault.New(fault.Conflict, "a VM moves without a CD; eject it first").WithCode("has_cd")
	case len(r.Unsettled()) > 0:
		return fault.New(fault.Conflict, "a disk of the VM is being removed; try again when that is over").
			WithCode("disks_pending")
	case r.State != vm.Stopped && r.State != vm.Failed:
		return fault.New(fault.Conflict, "the VM is %s; stop it first, or let it restart", r.State).WithCode("wrong_state")
	}
	// Remains of snapshots belong to this host's disk manager, which removes them when it opens the disk.
	ready, all, err := m.store.CountSnapshots(ctx, r.ID)
	if err == nil && ready != all {
		err = fault.New(fault.Conflict, "a snapshot of the VM is unfinished; list its snapshots, or start and stop it, and try again").
			WithCode("snapshot_unfinished")
	}
	return err
}

// source is a file of this host that is part of an offer.
type source struct {
	name, path string
	file       *os.File
	size       int64
	backing    string // of a layer, the file below it
}

// sources are the files of an offer.
type sources []source

func (all sources) close() {
	for _, s := range all {
		_ = s.file.Close() // it was only read
	}
}

// add opens a file. The process of a VM may have put a link in the place of one of its files.
func (all *sources) add(name, path, backing string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = fault.New(fault.Conflict, "the file %s of the VM is not a regular file", name).WithCode("disk_broken")
	}
	if err == nil && isLayer(name) {
		_, err = image.InspectLayer(f, stat.Size(), backing)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	*all = append(*all, source{name: name, path: path, file: f, size: stat.Size(), backing: backing})
	return nil
}

// layers adds the layers of a VM's disk.
func (m *Manager) layers(ctx context.Context, r *record.VM, content *catalog.Content, all *sources) error {
	bases, err := m.store.Bases(ctx, r)
	if err != nil {
		return err
	}
	names, paths := []string{diskName}, []string{m.host.Disk(r).Target}
	for i, b := range bases {
		names, paths = append(names, fmt.Sprint(basePrefix, i)), append(paths, m.host.BasePath(b.ID))
	}
	if content != nil && content.Kind == catalog.Disk {
		names, paths = append(names, contentDisk), append(paths, content.DiskPath())
	}
	paths = append(paths, "") // nothing is below the last
	for i, name := range names {
		if err := all.add(name, paths[i], paths[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// boot adds the files that a VM boots from, and returns how it boots without paths of this host.
func (m *Manager) boot(r *record.VM, content *catalog.Content, all *sources) (record.Boot, error) {
	boot := r.Spec.V.Boot
	folder := m.host.Folder(r.ID)
	for _, name := range host.BootFiles(&boot) {
		err := all.add(name, filepath.Join(folder, name), "")
		if errors.Is(err, os.ErrNotExist) && name == backend.VarsFile {
			continue // the VM has never run
		}
		if err != nil {
			return boot, err
		}
	}
	if filepath.IsAbs(boot.Firmware) {
		boot.Firmware = firmwareUEFI
	}
	if !filepath.IsAbs(boot.Kernel) {
		return boot, nil
	}
	if content == nil || content.Kind != catalog.Kernel {
		return boot, fault.New(fault.Conflict, "the kernel that the VM boots from is not in the catalog any more").
			WithCode("migration_unsupported")
	}
	err := all.add(contentKernel, content.KernelPath(), "")
	boot.Kernel = contentKernel
	if err == nil && boot.Initrd != "" {
		err, boot.Initrd = all.add(contentInitrd, content.InitrdPath(), ""), contentInitrd
	}
	return boot, err
}

// offer returns what is offered of a VM that can move, and its files, which the caller closes.
func (m *Manager) offer(
	ctx context.Context, id string, r *record.VM,
) (o hypervisorapi.MigrationOffer, all sources, err error) {
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	var content *catalog.Content
	if r.Base != "" {
		c, err := m.catalog.Content(r.Base)
		if err != nil {
			return o, nil, err
		}
		content = &c
		o.Content = &c.SHA256
	}
	if r.HasDisk() {
		if err := m.layers(ctx, r, content, &all); err != nil {
			return o, all, err
		}
		if o.DiskBytes, err = image.VirtualSize(all[0].path); err != nil {
			return o, all, err
		}
	}
	if err := m.offerDisks(r, &o, &all); err != nil {
		return o, all, err
	}
	spec := r.Spec.V
	if spec.Boot, err = m.boot(r, content, &all); err != nil {
		return o, all, err
	}
	o.Id, o.Node, o.Files = id, m.peers.Self(), []hypervisorapi.MigrationFile{}
	for _, s := range all {
		f := hypervisorapi.MigrationFile{Name: s.name, SizeBytes: s.size}
		if s.backing != "" {
			f.Backing = &s.backing
		}
		o.Files = append(o.Files, f)
	}
	if err := remarshal(spec, &o.Spec); err != nil {
		return o, all, err
	}
	o.Vm = hypervisorapi.MovingVM{
		Id: r.ID, Name: r.Name, Tenant: r.Tenant, Backend: hypervisorapi.Backend(r.Backend), Mac: r.MAC,
		Labels: r.Labels.V, Autostart: r.Autostart, Generation: r.Generation, CreatedAt: r.CreatedAt.Time,
	}
	if !r.ExpiresAt.IsZero() {
		o.Vm.ExpiresAt = &r.ExpiresAt.Time
	}
	return o, all, m.offerStored(ctx, r, &o)
}

// offerDisks adds the disks beside the system disk, which stand on no other file.
func (m *Manager) offerDisks(r *record.VM, o *hypervisorapi.MigrationOffer, all *sources) error {
	if len(r.Disks.V) == 0 {
		return nil
	}
	for i := range r.Disks.V {
		d := m.host.DataDisk(r, &r.Disks.V[i])
		if err := all.add(d.ID, d.Target, ""); err != nil {
			return err
		}
	}
	return remarshal(r.Disks.V, &o.Disks)
}

// offerStored adds the secrets, snapshots and network policy of a VM.
func (m *Manager) offerStored(ctx context.Context, r *record.VM, o *hypervisorapi.MigrationOffer) error {
	if r.Spec.V.Agent {
		secrets, err := m.store.Secrets(ctx, r.ID)
		if err != nil {
			return err
		}
		text := strings.Join(secrets, "\n")
		o.Vm.AgentSecret = &text
	}
	snapshots, err := m.store.Snapshots(ctx, r.ID)
	if err != nil {
		return err
	}
	moving := make([]hypervisorapi.MovingSnapshot, len(snapshots))
	for i, s := range snapshots {
		moving[i] = hypervisorapi.MovingSnapshot{
			Name: s.Name, Kind: hypervisorapi.MovingSnapshotKind(s.Kind), Description: s.Description,
			MemoryBytes: s.MemoryBytes, CreatedAt: s.CreatedAt.Time,
		}
		secret, err := m.store.SecretOf(&s)
		if err != nil {
			return err
		}
		if secret != "" {
			moving[i].AgentSecret = &secret
		}
		if s.Hardware.V != nil {
			if err := remarshal(s.Hardware.V, &moving[i].Hardware); err != nil {
				return err
			}
		}
		if len(s.Disks.V) > 0 {
			moving[i].Disks = &s.Disks.V
		}
	}
	o.Snapshots = &moving
	policy, _, err := m.store.NetworkPolicy(ctx, r.ID)
	if err == nil && policy.Revision > 0 {
		o.PolicyRevision = &policy.Revision
	}
	if err == nil && policy.Policy.V != nil {
		err = remarshal(policy.Policy.V, &o.NetworkPolicy)
	}
	return err
}

// remarshal converts between values with the same form as JSON. Fields that the result does not know are an
// error: they would be lost.
func remarshal(from, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	d.UseNumber()
	return d.Decode(to)
}
