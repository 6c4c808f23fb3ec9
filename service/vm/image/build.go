package image

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,99}$`)

// maxPackages is how many packages may be asked for.
const maxPackages = 100

// checkBuild checks what is to be built, and completes it.
func (m *Manager) checkBuild(spec *record.ImageSpec) error {
	if len(spec.Packages) > maxPackages {
		return fault.InvalidField("packages", "must be at most %d", maxPackages)
	}
	for i, p := range spec.Packages {
		if !packageName.MatchString(p) {
			return fault.InvalidField("packages."+strconv.Itoa(i), "%q is not a valid name of a package", p)
		}
	}
	b, err := bootstrapOf(spec, "", "", nil)
	spec.Version, spec.Format, spec.Agent = b.version, "qcow2", m.cfg.Agent() != ""
	return err
}

// build makes a bootable disk of packages, and returns its path.
func (m *Manager) build(ctx context.Context, w *work) (string, error) {
	if runtime.GOARCH != "amd64" {
		return "", fault.New(fault.Unavailable, "images are built on amd64 hosts only, and this one is %s", runtime.GOARCH)
	}
	guest := filepath.Join(w.folder, "guest")
	if err := give(guest); err != nil {
		return "", err
	}
	b, err := bootstrapOf(&w.image.Spec.V, filepath.Join(guest, "root"), w.folder, m.cfg.PackageMirrors)
	if err != nil {
		return "", err
	}
	args, files := b.command(b)
	if err := writeConfig(w.folder, files); err != nil {
		return "", err
	}
	w.log.say("Building %s %s with %s: %s", b.name, b.version, b.tool, strings.Join(b.packages, " "))
	w.log.watchSteps(w.progress)
	if err := w.run(ctx, tool{name: b.tool, args: args, dir: guest, hint: b.hint}); err != nil {
		return "", err
	}
	id := uuid.NewString()
	if err := m.finishGuest(ctx, w, b.root, id); err != nil {
		return "", err
	}
	w.progress(0.75)
	return m.pack(ctx, w, guest, id)
}

func writeConfig(folder string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // tools read it
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // tools read it
			return err
		}
	}
	return nil
}

// finishGuest puts the guest's files into its folder. All of that runs within it, so that no link of a package
// leads elsewhere.
func (m *Manager) finishGuest(ctx context.Context, w *work, root, id string) error {
	w.log.say("Adding the files of a guest")
	archive, err := overlay(guestFiles(&w.image.Spec.V, hostname(w.image.Name), id), m.cfg.Agent())
	if err != nil {
		return err
	}
	if err := w.run(ctx, tool{
		name: "chroot", dir: filepath.Dir(root), stdin: archive, args: []string{
			root, "tar", "--extract", "--file=-", "--directory=/", "--keep-directory-symlink", "--no-overwrite-dir",
		},
	}); err != nil {
		return err
	}
	return w.run(ctx, tool{
		name: "chroot", args: []string{root, "/bin/sh", "-s"}, dir: filepath.Dir(root), stdin: strings.NewReader(cleanScript),
	})
}

var notInHostname = regexp.MustCompile(`[^a-z0-9]+`)

// hostname returns a host name for guests of an image; cloud-init and people change it.
func hostname(image string) string {
	const longest = 63
	name := strings.Trim(notInHostname.ReplaceAllString(strings.ToLower(image), "-"), "-")
	return strings.Trim(name[:min(len(name), longest)], "-")
}

// pack makes a disk of the guest's folder.
func (m *Manager) pack(ctx context.Context, w *work, guest, id string) (string, error) {
	root, raw, result := filepath.Join(guest, "root"), filepath.Join(guest, "disk.raw"), filepath.Join(guest, "disk.qcow2")
	size := diskSize(usage(root))
	if size > m.cfg.MaxSize {
		return "", fault.New(fault.Invalid, "the image would have %d GiB, and the setting image-max-gib allows %d", size/gib,
			m.cfg.MaxSize/gib).WithCode("image_too_large")
	}
	w.log.say("Making a disk of %d GiB", size/gib)
	// Older boot loaders do not read file systems with these features.
	if err := w.run(ctx, tool{name: "mke2fs", hint: usePackage + "e2fsprogs", dir: guest, args: []string{
		"-q", "-F", "-t", "ext4", "-L", "root", "-U", id, "-O", "^metadata_csum_seed,^orphan_file",
		"-E", "offset=" + strconv.Itoa(partitionStart), "-d", root, raw, strconv.FormatInt((size-partitionStart)/1024, 10) + "k",
	}}); err != nil {
		return "", err
	}
	if err := writeConfig(w.folder, map[string]string{"boot.cfg": bootMenu(id)}); err != nil {
		return "", err
	}
	loader := filepath.Join(guest, "loader")
	if err := w.run(ctx, tool{name: "grub-mkimage", hint: bootHint, dir: guest, args: append([]string{
		"--format=i386-pc", "--prefix=/boot/grub", "--config=" + filepath.Join(w.folder, "boot.cfg"), "--output=" + loader,
	}, bootModules...)}); err != nil {
		return "", err
	}
	if err := installBoot(raw, loader, size); err != nil {
		return "", err
	}
	w.progress(0.85)
	err := w.run(ctx, tool{name: "qemu-img", hint: usePackage + "qemu-utils", dir: guest, args: []string{
		"convert", "-f", "raw", "-O", "qcow2", raw, result,
	}})
	w.progress(0.9)
	return result, err
}

func installBoot(raw, loader string, size int64) (err error) {
	from, err := owned(loader, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	code, err := io.ReadAll(io.LimitReader(from, partitionStart))
	if err != nil {
		return err
	}
	disk, err := owned(raw, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { _ = disk.Close() }()
	if err := disk.Truncate(size); err != nil {
		return err
	}
	return writeBoot(disk, code, size)
}

// steps are what the tools print when a part of a build begins, and how much of the job is done then.
var steps = []struct {
	text string
	done float64
}{
	{"running apt-get update", 0.02}, {"downloading packages with apt", 0.05}, {"extracting archives", 0.15},
	{"installing essential packages", 0.18}, {"installing remaining packages", 0.25}, {"Unpacking linux-image", 0.4},
	{"Generating /boot/initrd", 0.55}, {"cleaning package lists", 0.7},
}

// watchSteps reports progress by what is printed.
func (l *logger) watchSteps(progress func(float64)) {
	next := 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = func(line string) {
		for k := next; k < len(steps); k++ {
			if strings.Contains(line, steps[k].text) {
				next = k + 1
				progress(steps[k].done)
				return
			}
		}
	}
}
