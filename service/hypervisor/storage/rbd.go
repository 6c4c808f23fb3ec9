package storage

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// RBDPool stores disks as images of a Ceph pool, using Ceph's program rbd(8). QEMU accesses them by
// librbd, so a VM is not tied to a host.
type RBDPool struct {
	Pool string
	User string // without "client."
	Conf string // Ceph's configuration file
	// InPlace: a base is written once to the pool, as an image with a protected snapshot,
	// and disks are clones of that, made without copying. Otherwise each disk is a copy.
	InPlace bool
}

// Name is ceph-rbd or ceph-rbd-in-place.
func (p RBDPool) Name() string {
	if p.InPlace {
		return CephRBDInPlace
	}
	return CephRBD
}

func (p RBDPool) image(v Volume) string { return p.Pool + "/mainstay-" + v.VM }

// baseImage is where a base is in the pool. Its name is that of the base's folder, which
// is the sum of what it holds.
func (p RBDPool) baseImage(base *Base) string {
	parts := strings.Split(base.Path, "/")
	return p.Pool + "/mainstay-base-" + parts[len(parts)-2]
}

const baseSnapshot = "base"

func (p RBDPool) rbd(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "rbd", "ceph-common", append([]string{"--conf", p.Conf, "--id", p.User}, args...)...)
}

// url is an image as qemu-img is told it.
func (p RBDPool) url(image string) string {
	escape := strings.NewReplacer(`\`, `\\`, ":", `\:`, "=", `\=`, "@", `\@`).Replace
	return "rbd:" + image + ":id=" + escape(p.User) + ":conf=" + escape(p.Conf)
}

// Create makes the image.
func (p RBDPool) Create(ctx context.Context, v Volume, base *Base) error {
	if err := p.Remove(ctx, v); err != nil {
		return err
	}
	switch {
	case base == nil:
		return p.create(ctx, p.image(v), v.Size)
	case p.InPlace:
		if err := p.putBase(ctx, base); err != nil {
			return err
		}
		if _, err := p.rbd(ctx, "clone", p.baseImage(base)+"@"+baseSnapshot, p.image(v)); err != nil {
			return err
		}
	default:
		if _, err := run(
			ctx, "qemu-img", "qemu-utils", "convert", "-q", "-f", base.Format, "-O", "raw", base.Path,
			p.url(p.image(v)),
		); err != nil {
			return needsRBD(err)
		}
	}
	if v.Size > base.Size {
		return p.Resize(ctx, v, v.Size)
	}
	return nil
}

// create makes an empty image of a size in bytes.
func (p RBDPool) create(ctx context.Context, image string, size int64) error {
	_, err := p.rbd(ctx, "create", "--size", strconv.FormatInt(size, 10)+"B", image)
	return err
}

func needsRBD(err error) error {
	if strings.Contains(err.Error(), "Unknown protocol 'rbd'") {
		return fault.Wrap(fault.Unavailable, err, "qemu-img cannot reach Ceph: apt-get install qemu-block-extra")
	}
	return err
}

// putBase writes a base to the pool unless it exists. If a daemon is killed during that, it leaves
// an image without the snapshot, which is recreated.
func (p RBDPool) putBase(ctx context.Context, base *Base) error {
	image := p.baseImage(base)
	if out, err := p.rbd(ctx, "snap", "ls", "--format", "json", image); err == nil &&
		strings.Contains(out, `"name":"`+baseSnapshot+`"`) {
		return nil
	}
	if err := p.remove(ctx, image); err != nil {
		return err
	}
	if _, err := run(
		ctx, "qemu-img", "qemu-utils", "convert", "-q", "-f", base.Format, "-O", "raw", base.Path, p.url(image),
	); err != nil {
		return needsRBD(err)
	}
	if _, err := p.rbd(ctx, "snap", "create", "--no-progress", image+"@"+baseSnapshot); err != nil {
		return err
	}
	_, err := p.rbd(ctx, "snap", "protect", image+"@"+baseSnapshot)
	return err
}

// Disk is the image.
func (p RBDPool) Disk(v Volume) backend.Disk {
	q := url.Values{"user": {p.User}, "conf": {p.Conf}}
	return backend.Disk{ID: "system", Target: "rbd:" + p.image(v) + "?" + q.Encode(), Format: "raw"}
}

// Resize makes the image larger.
func (p RBDPool) Resize(ctx context.Context, v Volume, size int64) error {
	_, err := p.rbd(ctx, "resize", "--no-progress", "--size", strconv.FormatInt(size, 10)+"B", p.image(v))
	return err
}

// Remove removes the image.
func (p RBDPool) Remove(ctx context.Context, v Volume) error { return p.remove(ctx, p.image(v)) }

func (p RBDPool) remove(ctx context.Context, image string) error {
	_, err := p.rbd(ctx, "rm", "--no-progress", image)
	if err != nil && strings.Contains(err.Error(), "No such file or directory") {
		return nil
	}
	return err
}
