package plan

import (
	"context"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Sources are what a VM is made from.
type Sources struct {
	sha256 string
	disk   *storage.Base // nil: an empty disk, or none
	boot   record.Boot
	// copies are host files that are copied to the VM's folder.
	copies []host.Copy
	// files alternates between the names of fields that name host files, and their paths.
	files []string
	held  func() // allows contents to be cleaned again
	turn  func() // ends the turn to copy; nil: none
}

// Release releases what is held for the VM that is being created.
func (b *Sources) Release() {
	for _, c := range b.copies {
		_ = c.File.Close() // it was only read
	}
	b.held()
	if b.turn != nil {
		b.turn()
	}
}

// Parts returns what the host makes the VM from.
func (b *Sources) Parts(secret string) host.Parts {
	return host.Parts{Copies: b.copies, Disk: b.disk, Secret: secret}
}

// Again returns the sources of a VM that is made from the same content as another.
func Again(sha256 string, boot record.Boot) *Sources {
	return &Sources{sha256: sha256, boot: boot, held: func() {}}
}

// find resolves the images and files that a request names, in the catalog or on the host.
func (p *Planner) find(ctx context.Context, req *Request) (_ *Sources, err error) {
	b, spec := &Sources{held: p.catalog.Hold()}, &req.Spec
	defer func() {
		if err != nil {
			b.Release()
		}
	}()
	files := p.policy.Files(caller.From(ctx).NamesHostFiles(req.Tenant))
	for _, one := range []struct{ field, path string }{
		{"image", spec.Image}, {"kernel", spec.Kernel}, {"initrd", spec.Initrd}, {"firmware", spec.Firmware},
	} {
		if strings.Contains(one.path, "/") {
			b.files = append(b.files, one.field, one.path)
		}
	}
	if spec.Image != "" {
		content, args, err := p.catalog.Find(ctx, files, spec.Image)
		if err != nil {
			return nil, err
		}
		b.sha256 = content.SHA256
		switch content.Kind {
		case catalog.Disk:
			b.disk = &storage.Base{Path: content.DiskPath(), Format: "qcow2", Size: content.VirtualSize}
		case catalog.Kernel:
			b.boot = record.Boot{Kernel: content.KernelPath(), Initrd: content.InitrdPath(), KernelArgs: args}
		case catalog.RootFS:
			b.boot.RootFS = content.RootFSPath()
		}
	}
	for _, file := range []struct {
		field, path, name string
		into              *string
	}{{"kernel", spec.Kernel, "kernel", &b.boot.Kernel}, {"initrd", spec.Initrd, "initrd", &b.boot.Initrd}} {
		if file.path == "" {
			continue
		}
		f, err := files.Image(file.path)
		if err != nil {
			return nil, admission.About(err, file.field)
		}
		b.copies = append(b.copies, host.Copy{File: f, Name: file.name})
		*file.into = file.name // relative to the VM's folder, which is not known yet
	}
	if spec.KernelArgs != "" {
		b.boot.KernelArgs = spec.KernelArgs
	}
	b.boot.Disk = b.boot.RootFS == "" && (b.disk != nil || spec.DiskGiB > 0 || b.boot.Kernel == "" && !spec.ServedDisk)
	return b, p.findFirmware(files, b, spec.Firmware, host.FirmwareCode, host.FirmwareVars)
}
