package plan

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// StartRequest is what a caller wants a VM to be started with, for this start only.
type StartRequest struct {
	Kernel, Initrd, KernelArgs, Firmware string // as in a request for a VM
	Shares                               []record.Share
	ExtraArgs                            []string
}

func (r *StartRequest) empty() bool {
	return r.Kernel == "" && r.Initrd == "" && r.KernelArgs == "" && r.Firmware == "" && len(r.Shares) == 0 &&
		len(r.ExtraArgs) == 0
}

// Start is a checked StartRequest. Release it.
type Start struct {
	Options *record.StartOptions // nil: none
	Copies  []host.Copy
	Message string // for the event
}

// Release closes the files that are to be copied.
func (s *Start) Release() {
	for _, c := range s.Copies {
		_ = c.File.Close() // it was only read
	}
}

// Start checks what a VM is to be started with. The rules are those for a new VM; shares and extra
// arguments are for admins, and for QEMU.
func (p *Planner) Start(ctx context.Context, r *record.VM, req StartRequest) (_ *Start, err error) {
	out := &Start{}
	if req.empty() {
		return out, nil
	}
	admin := caller.From(ctx).NamesHostFiles(r.Tenant)
	if err := checkStart(r, &req, admin); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			out.Release()
		}
	}()
	boot, named, err := p.startBoot(r, &req, admin, out)
	if err != nil {
		return nil, err
	}
	for i, share := range req.Shares {
		folder, err := p.policy.Share(share.Source)
		if err != nil {
			return nil, aboutShare(err, i)
		}
		_ = folder.Close() // it is opened again, and checked again, when the process is started
		named = append(named, "share "+share.Tag, share.Source)
	}
	out.Options = &record.StartOptions{
		Kernel: req.Kernel, Initrd: req.Initrd, KernelArgs: req.KernelArgs, Firmware: req.Firmware,
		Shares: req.Shares, ExtraArgs: req.ExtraArgs, Boot: boot,
	}
	as := *r
	as.StartedWith.V = out.Options
	b, err := p.host.Backend(r)
	if err != nil {
		return nil, err
	}
	if err := b.Check(p.host.Spec(&as)); err != nil {
		return nil, err
	}
	if req.KernelArgs != "" {
		named = append(named, "kernel_args", req.KernelArgs)
	}
	named = append(named, "extra_args", strings.Join(req.ExtraArgs, " "))
	out.Message = record.WithFiles("with options of this start", named...)
	return out, nil
}

// maxShares is the maximum number of folders that a guest sees.
const maxShares = 8

// shareTag matches valid tags of shares. virtio-9p takes at most 31 bytes.
var shareTag = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,30}$`)

func checkStart(r *record.VM, req *StartRequest, admin bool) error {
	boot := &r.Spec.V.Boot
	for _, path := range []struct{ field, value string }{{"kernel", req.Kernel}, {"initrd", req.Initrd}} {
		if path.value != "" && !filepath.IsAbs(path.value) {
			return fault.InvalidField(path.field, "must be an absolute path")
		}
	}
	switch {
	case boot.RootFS != "" && (req.Kernel != "" || req.Initrd != "" || req.KernelArgs != ""):
		return fault.InvalidField("kernel", "is not for a sandbox, which has a kernel of its own")
	case req.Initrd != "" && req.Kernel == "" && boot.Kernel == "":
		return fault.InvalidField("initrd", "needs a kernel")
	case req.KernelArgs != "" && req.Kernel == "" && boot.Kernel == "":
		return fault.InvalidField("kernel_args", "needs a kernel")
	case strings.ContainsFunc(req.KernelArgs, unicode.IsControl):
		return fault.InvalidField("kernel_args", "must not contain control characters")
	}
	for _, only := range []struct {
		field        string
		given, admin bool
	}{
		{"firmware", req.Firmware != "", false},
		{"shares", len(req.Shares) > 0, true},
		{"extra_args", len(req.ExtraArgs) > 0, true},
	} {
		switch {
		case !only.given:
		case r.Backend != backend.QEMU:
			return fault.InvalidField(only.field, "is for VMs of the backend qemu, and this one has %s", r.Backend)
		case only.admin && !admin:
			return fault.InvalidField(only.field, "takes an admin's credentials")
		}
	}
	if len(req.Shares) > maxShares {
		return fault.InvalidField("shares", "must have at most %d items", maxShares)
	}
	seen := map[string]bool{}
	for i, share := range req.Shares {
		if !shareTag.MatchString(share.Tag) || seen[share.Tag] {
			return fault.InvalidField(fmt.Sprintf("shares.%d.tag", i),
				"must be 1 to 31 letters, digits, dots, dashes and underscores, and unique")
		}
		seen[share.Tag] = true
	}
	return nil
}

// startBoot returns what a VM boots from for this start. It opens the files that are to be copied, and
// returns their fields and paths by turns.
func (p *Planner) startBoot(
	r *record.VM, req *StartRequest, admin bool, out *Start,
) (boot record.Boot, named []string, err error) {
	boot = r.Spec.V.Boot
	if req.Kernel != "" {
		boot.Kernel, boot.Initrd, boot.KernelArgs = host.StartKernel, "", "" // those belong to the other kernel
	}
	if req.Initrd != "" {
		boot.Initrd = host.StartInitrd
	}
	if req.KernelArgs != "" {
		boot.KernelArgs = req.KernelArgs
	}
	files := p.policy.Files(admin)
	for _, one := range []struct{ field, path, name string }{
		{"kernel", req.Kernel, host.StartKernel}, {"initrd", req.Initrd, host.StartInitrd},
	} {
		if one.path == "" {
			continue
		}
		f, err := files.Image(one.path)
		if err != nil {
			return boot, nil, admission.About(err, one.field)
		}
		out.Copies, named = append(out.Copies, host.Copy{File: f, Name: one.name}), append(named, one.field, one.path)
	}
	if req.Firmware == "" {
		return boot, named, nil
	}
	found := &Sources{}
	err = p.findFirmware(files, found, req.Firmware, host.StartFirmwareCode, host.StartFirmwareVars)
	out.Copies = append(out.Copies, found.copies...)
	boot.Firmware = found.boot.Firmware
	return boot, append(named, "firmware", req.Firmware), err
}

// aboutShare turns a fault about a share's source into one that says which share.
func aboutShare(err error, i int) error {
	f := fault.From(err)
	if f.Field != "source" {
		return err
	}
	named := fault.InvalidField(
		fmt.Sprintf("shares.%d.source", i), "%s", strings.TrimPrefix(f.Message, "source: "),
	).WithLimit(f.Limit)
	named.Code = f.Code
	return named
}
