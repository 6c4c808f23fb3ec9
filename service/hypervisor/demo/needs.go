package demo

import (
	"debug/elf"
	"errors"
	"os/exec"
)

// busybox is where Debian has it.
const busybox = "/bin/busybox"

// Packages are what the guest is built with, beside what every Debian has.
const Packages = "busybox-static cpio xz-utils"

// Missing is the first thing that this host lacks to build the guest; empty: it has all but,
// it may be, a kernel.
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

// static fails for a program that is not there or needs libraries, which the guest has not.
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
