package vm

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// startFlags holds the flags for what a VM has for one start only.
type startFlags struct {
	kernel, initrd, kernelArgs, firmware string
	shares, extra                        []string
}

func (f *startFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kernel, "kernel", "", "path on the host of a kernel to boot, in place of the VM's with its initrd and arguments")
	fs.StringVar(&f.initrd, "initrd", "", "path on the host of the kernel's initial RAM disk")
	fs.StringVar(&f.kernelArgs, "kernel-args", "", "arguments of the kernel")
	fs.StringVar(&f.firmware, "firmware", "", "uefi, bios, or a path on the host")
	fs.StringArrayVar(
		&f.shares, "share", nil, "folder of the host that the guest mounts by 9p, as SOURCE:TAG or SOURCE:TAG:ro; may be repeated",
	)
	fs.StringArrayVar(&f.extra, "extra-arg", nil, "option of QEMU, or its value, that the API allows; may be repeated")
}

// options returns the options that the flags give.
func (f *startFlags) options(c *daemon.Call) (hypervisorapi.StartOptions, error) {
	out := hypervisorapi.StartOptions{
		Kernel: verb.Given(c, "kernel", f.kernel), Initrd: verb.Given(c, "initrd", f.initrd),
		KernelArgs: verb.Given(c, "kernel-args", f.kernelArgs), Firmware: verb.Given(c, "firmware", f.firmware),
		ExtraArgs: verb.Given(c, "extra-arg", f.extra),
	}
	if len(f.shares) == 0 {
		return out, nil
	}
	shares := []hypervisorapi.Share{}
	for _, text := range f.shares {
		rest, readOnly := strings.CutSuffix(text, ":ro")
		at := strings.LastIndexByte(rest, ':')
		if at < 1 || at == len(rest)-1 {
			return out, exit.Usagef("--share must have the form SOURCE:TAG or SOURCE:TAG:ro, not %q", text)
		}
		share := hypervisorapi.Share{Source: rest[:at], Tag: rest[at+1:]}
		if readOnly {
			share.ReadOnly = &readOnly
		}
		shares = append(shares, share)
	}
	out.Shares = &shares
	return out, nil
}
