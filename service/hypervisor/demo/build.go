package demo

import (
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

//go:embed init
var initScript []byte

//go:embed lease
var leaseScript []byte

//go:embed addresses
var addressesScript []byte

// Options configures Build.
type Options struct {
	// Folder receives the kernel and the initial RAM disk, and caches the kernel's package so that
	// it is downloaded only once.
	Folder string
	// Host is the root folder of the system whose packages are used; default: /.
	Host string
	// Agent is the path of the guest agent's static program; empty: a guest without an agent.
	Agent string
	// Progress is called with each step; nil: not called.
	Progress func(step string)
}

// Guest holds the files to boot from.
type Guest struct {
	Kernel, Initrd string
}

// commands are the busybox commands that get their own name in the guest.
var commands = []string{
	"sh", "mount", "umount", "insmod", "mkdir", "cat", "echo", "ls", "ln", "cp", "mv", "rm", "chmod", "printf",
	"sleep", "hostname", "ip", "udhcpc", "ping", "acpid", "setsid", "poweroff", "reboot", "ps", "top", "dmesg",
	"df", "free", "grep", "sed", "awk", "head", "tail", "wc", "sha256sum", "dd", "vi", "wget", "nc", "sync",
	"uname", "kill", "env", "id", "date", "stat", "find", "mknod",
}

// Build builds the guest. Existing files for the same kernel are replaced.
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
	k, err := b.kernel(ctx)
	if err != nil {
		return Guest{}, err
	}
	b.Progress("making the initial RAM disk")
	root := filepath.Join(b.work, "root")
	if err := b.fill(ctx, root, k); err != nil {
		return Guest{}, err
	}
	initrd := filepath.Join(b.work, "initrd.gz")
	if err := pack(ctx, root, initrd); err != nil {
		return Guest{}, err
	}
	image := filepath.Join(b.work, "vmlinuz") // a copy, since the kernel may be the host's own
	if err := copyFile(k.image, image, 0o644); err != nil {
		return Guest{}, err
	}
	guest := Guest{Kernel: filepath.Join(b.Folder, "vmlinuz"), Initrd: filepath.Join(b.Folder, "initrd.gz")}
	return guest, errors.Join(os.Rename(image, guest.Kernel), os.Rename(initrd, guest.Initrd))
}

// fill creates the guest's root folder.
func (b *builder) fill(ctx context.Context, root string, k kernel) error {
	for _, dir := range []string{"bin", "dev", "proc", "sys", "etc/mainstay-guest", "lib/modules", "root", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // the guest's
			return err
		}
	}
	if err := static(busybox); err != nil {
		return fault.Wrap(
			fault.Unavailable, err,
			"the guest is made of a busybox that needs no libraries: apt-get install busybox-static",
		)
	}
	if err := copyFile(busybox, filepath.Join(root, "bin/busybox"), 0o755); err != nil {
		return err
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
	for name, content := range map[string][]byte{
		"init": initScript, "bin/lease": leaseScript, "etc/mainstay-guest/personalized": addressesScript,
		"etc/passwd":  []byte("root:x:0:0:root:/root:/bin/sh\n"),
		"etc/profile": []byte("export PATH=/bin HOME=/root PS1='demo# '\n"),
	} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o755); err != nil { //nolint:gosec // the guest's
			return err
		}
	}
	return errors.Join(k.copyModules(ctx, root), k.copyFileSystems(ctx, root))
}

// pack packs a folder into an archive that the kernel can unpack.
func pack(ctx context.Context, root, target string) error {
	out, err := os.Create(target) //nolint:gosec // a file of our own
	if err != nil {
		return err
	}
	archive := exec.CommandContext(
		ctx, "cpio", "--create", "--format=newc", "--quiet", "--reproducible", "--owner=0:0", "--null",
	)
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

// tree lists everything in a folder; each name ends with a zero byte.
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

// run runs a program and returns its output.
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
		return fault.Wrap(
			fault.Unavailable, err, "the guest is built with %s, as there is on Debian and Ubuntu", program,
		)
	}
	if said = lastLine(said); said != "" {
		said = ": " + said
	}
	return fault.Wrap(fault.Unavailable, err, "the guest could not be built: %s failed%s", program, said)
}

// lastLine returns the last line of a program's output, which usually has the reason.
func lastLine(said string) string {
	said = strings.TrimSpace(said)
	return strings.TrimSpace(said[strings.LastIndexByte(said, '\n')+1:])
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
