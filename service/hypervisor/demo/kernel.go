package demo

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// kernel is a kernel that a guest can boot, with its modules.
type kernel struct {
	image   string // its file
	modules string // its folder below lib/modules
}

// module is a kernel module that a VM's devices need.
type module struct {
	path   string // below the folder kernel in that of the modules, without an extension
	spared bool   // there are kernels without it that do as well
}

// modules are ordered by their dependencies.
var modules = []module{
	{
		"drivers/virtio/virtio_ring",
		false,
	},
	{"drivers/virtio/virtio", false},
	{"drivers/virtio/virtio_pci_legacy_dev", true},
	{"drivers/virtio/virtio_pci_modern_dev", true},
	{
		"drivers/virtio/virtio_pci",
		false,
	},
	{"drivers/virtio/virtio_mmio", false},
	{"drivers/block/virtio_blk", false},
	{"drivers/char/virtio_console", false},
	{
		"net/core/failover",
		true,
	},
	{"drivers/net/net_failover", true},
	{"drivers/net/virtio_net", false},
	{"drivers/cdrom/cdrom", true},
	{"fs/isofs/isofs", false},
	{"drivers/acpi/button", true},
	{"drivers/input/evdev", true},
}

// kernel finds a kernel: in a package that was downloaded before, otherwise in a newly downloaded
// package, otherwise among the host's installed kernels.
func (b *builder) kernel(ctx context.Context) (kernel, error) {
	if kept := b.kept(); kept != "" {
		return b.unpack(ctx, kept)
	}
	fetched, fetchErr := b.fetch(ctx)
	if fetchErr == nil {
		return b.unpack(ctx, fetched)
	}
	if ctx.Err() != nil {
		return kernel{}, ctx.Err()
	}
	k, why := b.installed()
	if why == "" {
		return k, nil
	}
	return kernel{}, fault.Wrap(
		fault.Unavailable,
		fetchErr,
		"the demo guest needs a kernel, and there is none: %s; and of the host's own, %s. "+
			"Let apt reach its mirror and try again, or put the package linux-image-*-cloud-%s_*.deb into %s",
		fault.From(fetchErr).Message,
		why,
		runtime.GOARCH,
		b.Folder,
	).WithCode("no_kernel")
}

// kept returns the package of a kernel that was downloaded before, by this package, by
// scripts/run-deps.sh or by apt; empty: none.
func (b *builder) kept() string {
	for _, folder := range []string{b.Folder, filepath.Join(b.Host, "/var/cache/apt/archives")} {
		if found := newest(filepath.Join(folder, "linux-image-[0-9]*-cloud-"+runtime.GOARCH+"_*.deb")); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// fetch downloads the package of the newest cloud kernel.
func (b *builder) fetch(ctx context.Context) (string, error) {
	meta := "linux-image-cloud-" + runtime.GOARCH
	out, err := run(ctx, b.work, "apt-cache", "depends", meta)
	name := ""
	for line := range strings.Lines(out) {
		if depends, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			name = "linux-image-" + depends
			break
		}
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", err
	case name == "":
		return "", fault.Wrap(
			fault.Unavailable, err, "apt knows no package %s (on Debian, apt-get update has it learn of it)", meta,
		)
	}
	b.Progress("downloading " + name)
	// apt should fail fast without a network, and its own user may not write here.
	if _, err := run(
		ctx, b.work, "apt-get", "-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o",
		"APT::Sandbox::User=root", "download", name,
	); err != nil {
		return "", err
	}
	fetched := newest(filepath.Join(b.work, name+"_*.deb"))
	if len(fetched) == 0 {
		return "", fault.New(fault.Unavailable, "apt-get download %s left no package", name)
	}
	kept := filepath.Join(b.Folder, filepath.Base(fetched[0]))
	return kept, os.Rename(fetched[0], kept)
}

// unpack extracts a kernel from its package.
func (b *builder) unpack(ctx context.Context, pkg string) (kernel, error) {
	b.Progress("unpacking the kernel")
	root := filepath.Join(b.work, "kernel")
	if _, err := run(ctx, b.work, "dpkg-deb", "-x", pkg, root); err != nil {
		return kernel{}, fault.Wrap(
			fault.Unavailable, err, "%s; remove %s to have it fetched again", fault.From(err).Message, pkg,
		)
	}
	k, why := look(root)
	if why != "" {
		return kernel{}, fault.New(
			fault.Unavailable, "the kernel in %s cannot be used: %s", pkg, why,
		).WithCode("no_kernel")
	}
	return k, nil
}

// installed finds an installed kernel of the host that is readable and has what a VM needs.
func (b *builder) installed() (k kernel, why string) {
	b.Progress("looking at the installed kernels")
	return look(b.Host + "/")
}

// look finds the newest usable kernel below a root folder, or returns why there is none.
func look(root string) (k kernel, why string) {
	images := newest(filepath.Join(root, "boot", "vmlinuz-*"))
	if len(images) == 0 {
		return k, "there is no boot/vmlinuz-*"
	}
	for _, image := range images {
		if why = unreadable(image); why != "" {
			continue
		}
		release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
		for _, folder := range []string{"lib/modules", "usr/lib/modules"} { // Debian moved them
			k = kernel{image: image, modules: filepath.Join(root, folder, release)}
			if why = k.lacks(); why == "" {
				return k, ""
			}
			if _, err := os.Stat(k.modules); err == nil {
				break
			}
		}
	}
	return kernel{}, why
}

func unreadable(path string) string {
	f, err := os.Open(path) //nolint:gosec // a kernel
	if err != nil {
		return err.Error()
	}
	_ = f.Close() // it was not even read
	return ""
}

// lacks returns the name of a missing module, or "" if all are present.
func (k kernel) lacks() string {
	builtin := k.builtin()
	for _, m := range modules {
		if !m.spared && !builtin[m.path] && k.file(m) == "" {
			return fmt.Sprintf("%s has no %s.ko", k.modules, m.path)
		}
	}
	return ""
}

// builtin returns the modules that are built into the kernel.
func (k kernel) builtin() map[string]bool {
	names := map[string]bool{}
	f, err := os.Open(filepath.Join(k.modules, "modules.builtin")) //nolint:gosec // a kernel's
	if err != nil {
		return names
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		names[strings.TrimSuffix(strings.TrimPrefix(lines.Text(), "kernel/"), ".ko")] = true
	}
	return names
}

// unpackers are the programs that decompress modules, by file extension.
var unpackers = map[string][]string{".ko": nil, ".ko.gz": nil, ".ko.xz": {"xz", "-dc"}, ".ko.zst": {"zstd", "-dcq"}}

// file returns the file of a module, or "" if there is none.
func (k kernel) file(m module) string {
	for extension := range unpackers {
		path := filepath.Join(k.modules, "kernel", m.path+extension)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// copyModules copies the modules to the guest's root folder, decompressed, since the guest has no
// program for that.
func (k kernel) copyModules(ctx context.Context, root string) error {
	var order []string
	for _, m := range modules {
		from := k.file(m)
		if from == "" {
			continue
		}
		name := filepath.Base(m.path)
		if err := unpackModule(ctx, from, filepath.Join(root, "lib/modules", name+".ko")); err != nil {
			return err
		}
		order = append(order, name)
	}
	return os.WriteFile(
		filepath.Join(root, "lib/modules.order"), []byte(strings.Join(order, "\n")+"\n"), 0o644,
	) //nolint:gosec // the guest's
}

func unpackModule(ctx context.Context, from, to string) error {
	_, extension, _ := strings.Cut(filepath.Base(from), ".")
	program := unpackers["."+extension]
	switch {
	case program != nil:
		text, err := run(ctx, filepath.Dir(to), program[0], append(slices.Clone(program[1:]), from)...)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(text), 0o644) //nolint:gosec // the guest's
	case extension == "ko.gz":
		return unzip(from, to)
	}
	return copyFile(from, to, 0o644)
}

func unzip(from, to string) error {
	f, err := os.Open(from) //nolint:gosec // a kernel's
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	r, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return os.WriteFile(to, raw, 0o644) //nolint:gosec // the guest's
}

// newest returns the files that match, highest version first. Versions are compared number by
// number: 6.1.0-9 is older than 6.1.0-56.
func newest(pattern string) []string {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil // the pattern is our own, and good
	}
	slices.SortFunc(found, func(a, b string) int { return -compareVersions(filepath.Base(a), filepath.Base(b)) })
	return found
}

func compareVersions(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			one, other := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if c := len(one) - len(other); c != 0 {
				return c
			}
			if c := strings.Compare(one, other); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits returns the number of digits at the start of a text.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
