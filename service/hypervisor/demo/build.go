package demo

import (
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

//go:embed init
var initScript []byte

//go:embed lease
var leaseScript []byte

// Options say what to build and where.
type Options struct {
	// Folder gets the kernel and the initial RAM disk, and keeps the kernel's package so
	// that it is fetched once.
	Folder string
	// Agent is the guest agent's program, static; empty: a guest without one.
	Agent string
	// Progress is told what is being done; nil: nobody is.
	Progress func(step string)
}

// Guest are the files to boot from.
type Guest struct {
	Kernel, Initrd string
}

// modules are what a VM's devices need, in an order in which each finds what it needs.
// They are below the kernel's folder of modules.
var modules = []string{
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "drivers/virtio/virtio_mmio",
	"drivers/block/virtio_blk", "drivers/char/virtio_console", "net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net", "drivers/cdrom/cdrom", "fs/isofs/isofs",
	"drivers/acpi/button", "drivers/input/evdev",
}

// commands are those of busybox that have a name of their own in the guest.
var commands = []string{
	"sh", "mount", "umount", "insmod", "mkdir", "cat", "echo", "ls", "ln", "cp", "mv", "rm", "chmod", "printf", "sleep", "hostname", "ip", "udhcpc", "ping", "acpid", "setsid", "poweroff", "reboot", "ps", "top", "dmesg",
	"df", "free", "grep", "sed", "awk", "head", "tail", "wc", "sha256sum", "dd", "vi", "wget", "nc", "sync", "uname", "kill", "env", "id", "date", "stat", "find", "mknod", "mkfs.ext2",
}

// Build makes the guest. What is there already of the same kernel is made anew.
func Build(ctx context.Context, o Options) (Guest, error) {
	b := &builder{Options: o}
	if b.Progress == nil {
		b.Progress = func(string) {}
	}
	if err := os.MkdirAll(o.Folder, 0o755); err != nil { //nolint:gosec // there is no secret in it
		return Guest{}, err
	}
	var err error
	if b.work, err = os.MkdirTemp(o.Folder, ".build-"); err != nil {
		return Guest{}, err
	}
	guest, err := b.build(ctx)
	return guest, errors.Join(err, os.RemoveAll(b.work))
}

type builder struct {
	Options
	work string // a folder that is removed at the end
}

func (b *builder) build(ctx context.Context) (Guest, error) {
	kernel, err := b.fetch(ctx)
	if err != nil {
		return Guest{}, err
	}
	b.Progress("unpacking the kernel")
	unpacked := filepath.Join(b.work, "kernel")
	if _, err := run(ctx, b.work, "dpkg-deb", "-x", kernel, unpacked); err != nil {
		return Guest{}, err
	}
	b.Progress("making the initial RAM disk")
	root := filepath.Join(b.work, "root")
	if err := b.fill(root, unpacked); err != nil {
		return Guest{}, err
	}
	initrd := filepath.Join(b.work, "initrd.gz")
	if err := pack(ctx, root, initrd); err != nil {
		return Guest{}, err
	}
	image, err := only(filepath.Join(unpacked, "boot", "vmlinuz-*"))
	if err != nil {
		return Guest{}, err
	}
	guest := Guest{Kernel: filepath.Join(b.Folder, "vmlinuz"), Initrd: filepath.Join(b.Folder, "initrd.gz")}
	return guest, errors.Join(os.Rename(image, guest.Kernel), os.Rename(initrd, guest.Initrd))
}

// fetch finds the package of the newest kernel, and downloads it unless it is there.
func (b *builder) fetch(ctx context.Context) (string, error) {
	out, err := run(ctx, b.work, "apt-cache", "depends", "linux-image-cloud-"+runtime.GOARCH)
	if err != nil {
		return "", err
	}
	name := ""
	for line := range strings.Lines(out) {
		if depends, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			name = "linux-image-" + depends
			break
		}
	}
	if name == "" {
		return "", fault.New(fault.Unavailable, "apt knows no kernel for clouds (linux-image-cloud-%s); run apt-get update", runtime.GOARCH)
	}
	if kept, err := only(filepath.Join(b.Folder, name+"_*.deb")); err == nil {
		return kept, nil
	}
	b.Progress("downloading " + name)
	if _, err := run(ctx, b.work, "apt-get", "-q", "download", name); err != nil {
		return "", err
	}
	fetched, err := only(filepath.Join(b.work, name+"_*.deb"))
	if err != nil {
		return "", err
	}
	kept := filepath.Join(b.Folder, filepath.Base(fetched))
	return kept, os.Rename(fetched, kept)
}

// fill makes the guest's root folder.
func (b *builder) fill(root, kernel string) error {
	for _, dir := range []string{"bin", "dev", "proc", "sys", "etc", "lib/modules", "root", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // the guest's
			return err
		}
	}
	if err := copyFile("/bin/busybox", filepath.Join(root, "bin/busybox"), 0o755); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the guest is made of busybox: apt-get install busybox-static")
	}
	for _, name := range commands {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			return err
		}
	}
	if b.Agent != "" {
		if err := copyFile(b.Agent, filepath.Join(root, "bin/mainstay-guest"), 0o755); err != nil {
			return err
		}
	}
	for name, content := range map[string][]byte{"init": initScript, "bin/lease": leaseScript, "etc/passwd": []byte("root:x:0:0:root:/root:/bin/sh\n"), "etc/profile": []byte("export PATH=/bin HOME=/root PS1='demo# '\n")} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o755); err != nil { //nolint:gosec // the guest's
			return err
		}
	}
	return addModules(root, kernel)
}

func addModules(root, kernel string) error {
	from, err := only(filepath.Join(kernel, "lib", "modules", "*", "kernel"))
	if err != nil {
		return err
	}
	var order []string
	for _, path := range modules {
		name := filepath.Base(path)
		err := copyFile(filepath.Join(from, path+".ko"), filepath.Join(root, "lib/modules", name+".ko"), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is a part of this kernel itself
		}
		if err != nil {
			return err
		}
		order = append(order, name)
	}
	return os.WriteFile(filepath.Join(root, "lib/modules.order"), []byte(strings.Join(order, "\n")+"\n"), 0o644) //nolint:gosec // the guest's
}

// pack makes an archive of a folder, as the kernel unpacks it.
func pack(ctx context.Context, root, target string) error {
	out, err := os.Create(target) //nolint:gosec // a file of our own
	if err != nil {
		return err
	}
	archive := exec.CommandContext(ctx, "cpio", "--create", "--format=newc", "--quiet", "--reproducible", "--owner=0:0", "--null")
	archive.Dir = root
	names, err := tree(root)
	if err != nil {
		return errors.Join(err, out.Close())
	}
	archive.Stdin = strings.NewReader(names)
	compressed, said := gzip.NewWriter(out), &strings.Builder{}
	archive.Stdout, archive.Stderr = compressed, said
	if err := archive.Run(); err != nil {
		return errors.Join(failed("cpio", said.String(), err), out.Close())
	}
	return errors.Join(compressed.Close(), out.Close())
}

// tree lists all that is in a folder, each name ended by a zero byte.
func tree(root string) (string, error) {
	var names strings.Builder
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		names.WriteString(name + "\x00")
		return err
	})
	return names.String(), err
}

// run runs a program and returns what it prints.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", failed(name, said.String(), err)
	}
	return out.String(), nil
}

func failed(program, said string, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fault.Wrap(fault.Unavailable, err, "the guest is built with %s, as there is on Debian and Ubuntu", program)
	}
	return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(said))
}

// only is the one file that matches.
func only(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: %w", pattern, fs.ErrNotExist)
	}
	if err != nil {
		return "", err
	}
	return found[len(found)-1], nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from) //nolint:gosec // of the operator's choice
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()                                    // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // of our own
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
