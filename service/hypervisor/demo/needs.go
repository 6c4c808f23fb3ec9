package demo

import (
	"debug/elf"
	"errors"
	"os/exec"
)

// busybox is its path on Debian.
const busybox = "/bin/busybox"

// Packages are the packages that the guest is built with, besides those on every Debian.
const Packages = "busybox-static cpio xz-utils"

// Missing returns what this host lacks to build the guest, or "" if it has everything except
// possibly a kernel.
func Missing() string {
	for _, program := range []string{"cpio", "dpkg-deb", "xz"} {
		if _, err := exec.LookPath(program); err != nil {
			return program
		}
	}
	if static(busybox) != nil {
		return "a static busybox"
	}
	return ""
}

// static fails if a program is missing or needs shared libraries, which the guest lacks.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New(path + " needs libraries")
		}
	}
	return nil
}
