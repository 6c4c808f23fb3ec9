package plan

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
)

// findFirmware resolves the firmware field of a request to a file. If it is a path, the file and its
// variables are copied to the VM's folder under the given names.
func (p *Planner) findFirmware(files admission.Files, b *Sources, firmware, codeName, varsName string) error {
	switch firmware {
	case "", "bios":
		return nil
	case "uefi":
		if b.boot.Firmware = Firmware(); b.boot.Firmware == "" {
			return fault.New(fault.Unavailable, "this host has no UEFI firmware for VMs: apt-get install ovmf")
		}
		return nil
	}
	wrong := fault.InvalidField("firmware",
		"must be uefi, bios, or a path such as /dir/OVMF_CODE.fd with OVMF_VARS.fd beside it")
	folder, name := filepath.Split(firmware)
	if !strings.Contains(name, "_CODE") {
		return wrong
	}
	f, err := files.Image(firmware)
	if err != nil {
		return admission.About(err, "firmware")
	}
	b.copies = append(b.copies, host.Copy{File: f, Name: codeName})
	vars, err := files.Image(folder + strings.Replace(name, "_CODE", "_VARS", 1))
	if err != nil {
		return wrong
	}
	b.copies = append(b.copies, host.Copy{File: vars, Name: varsName})
	b.boot.Firmware = codeName
	return nil
}

// Firmware returns the path of this host's UEFI firmware, or "" if there is none.
func Firmware() string {
	for _, path := range []string{
		"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE.fd",
		"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/x64/OVMF_CODE.4m.fd",
	} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
