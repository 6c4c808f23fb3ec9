package driver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Image is what the daemon tells about an image of its catalog.
type Image struct {
	SHA256      string
	Size        int64 // bytes that it takes
	VirtualSize int64 // bytes of the disk
}

// uploadTimeout bounds the upload of one image.
const uploadTimeout = 6 * time.Hour

// ImageURL returns where an image of the catalog can be fetched from, for admins.
func (d *Driver) ImageURL(name string) string {
	return d.cfg.URL + "/v1/images/catalog/" + url.PathEscape(name) + "/export"
}

// hosts returns the hosts whose catalogs hold images: the only one, or all healthy ones of the fleet.
func (d *Driver) hosts(ctx context.Context) ([]string, error) {
	if !d.cfg.Fleet {
		return []string{""}, nil
	}
	all, err := d.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range all {
		if n.Healthy {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Unavailable, "no host of the fleet is healthy")
	}
	return names, nil
}

// HasImage reports whether the catalog of any host has an image of a name.
func (d *Driver) HasImage(ctx context.Context, name string) (bool, error) {
	hosts, err := d.hosts(ctx)
	for _, node := range hosts {
		_, err = d.image(ctx, Place{Node: node}, name)
		if err == nil {
			return true, nil
		}
		if !fault.Is(err, fault.NotFound) || codeOf(err) == CodeUnknownNode {
			return false, err
		}
	}
	return false, errors.Join(ignoreNotFound(err))
}

func ignoreNotFound(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// BootsKernel reports whether an image is a kernel with an initial RAM disk. It is false if there is
// no such image.
func (d *Driver) BootsKernel(ctx context.Context, image string) (bool, error) {
	i, err := d.found(ctx, image)
	return i.Kind == hypervisorapi.ImageKindKernel, err
}

// DiskSize returns the size in GiB, rounded up, of the disk that a VM of an image gets. It is 0 if the image is not
// one of a disk, or there is none.
func (d *Driver) DiskSize(ctx context.Context, image string) (int, error) {
	i, err := d.found(ctx, image)
	if i.Kind != hypervisorapi.ImageKindDisk {
		return 0, err
	}
	return int((i.VirtualSizeBytes + 1<<30 - 1) >> 30), err
}

// found returns an image as the first host that has it describes it, or a zero value if none has.
func (d *Driver) found(ctx context.Context, image string) (hypervisorapi.Image, error) {
	if image == "" {
		return hypervisorapi.Image{}, nil
	}
	hosts, err := d.hosts(ctx)
	for i := 0; err == nil && i < len(hosts); i++ {
		found, err := call[hypervisorapi.Image](ctx, d, Place{Node: hosts[i]}, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.GetImage(ctx, image)
			})
		if err == nil || !fault.Is(err, fault.NotFound) {
			return found, err
		}
	}
	return hypervisorapi.Image{}, err
}

func (d *Driver) image(ctx context.Context, at Place, name string) (Image, error) {
	i, err := call[hypervisorapi.Image](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.GetImage(ctx, name)
		})
	return Image{SHA256: i.Sha256, Size: i.SizeBytes, VirtualSize: i.VirtualSizeBytes}, err
}

// PutImage adds an image to the catalogs of all hosts. open returns a reader of its bytes, once for each
// host. The daemon checks what it gets.
func (d *Driver) PutImage(ctx context.Context, name string, open func() (io.ReadCloser, error)) (out Image, err error) {
	hosts, err := d.hosts(ctx)
	if err != nil {
		return out, err
	}
	for _, node := range hosts {
		if out, err = d.putImage(ctx, Place{Node: node}, name, open); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (d *Driver) putImage(
	ctx context.Context, at Place, name string, open func() (io.ReadCloser, error),
) (Image, error) {
	body, err := open()
	if err != nil {
		return Image{}, err
	}
	defer func() { _ = body.Close() }() // it was only read
	op, err := call[hypervisorapi.Operation](ctx, d, at, uploadTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.UploadImageWithBody(ctx, name, &hypervisorapi.UploadImageParams{}, "application/octet-stream", body)
		})
	if err != nil {
		return Image{}, err
	}
	if err := d.awaitImage(ctx, at, op); err != nil {
		return Image{}, err
	}
	return d.image(ctx, at, name)
}

// awaitImage waits for the end of an operation about an image. Why it failed is what the daemon says.
func (d *Driver) awaitImage(ctx context.Context, at Place, op hypervisorapi.Operation) error {
	done, err := d.await(ctx, at, op)
	if err != nil && done.State == hypervisorapi.OperationStateFailed {
		return fault.Wrap(fault.Invalid, err, "the hypervisor daemon does not take the image: %s", done.Error)
	}
	return err
}

// RemoveImage removes an image from the catalogs of all hosts. VMs that were made of it keep their disks. It
// succeeds if there is none.
func (d *Driver) RemoveImage(ctx context.Context, name string) error {
	hosts, err := d.hosts(ctx)
	if err != nil {
		return err
	}
	for _, node := range hosts {
		at := Place{Node: node}
		c, err := d.at(node)
		if err != nil {
			return err
		}
		err = func() error {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			_, err := rest.Read(c.RemoveImage(ctx, name))
			return d.translate(ctx, at, err)
		}()
		if ignoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// CleanImages has all hosts free what images and VMs do not need any more. A host that is taking in an
// image does it another time.
func (d *Driver) CleanImages(ctx context.Context) error {
	hosts, err := d.hosts(ctx)
	for _, node := range hosts {
		_, failed := call[hypervisorapi.Cleaned](ctx, d, Place{Node: node}, workTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.CleanImages(ctx, hypervisorapi.Nothing{})
			})
		if !fault.Is(failed, fault.Conflict) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// ResizeImage makes the disk of an image larger on all hosts. VMs that were made of it keep theirs. It succeeds
// if the disk has the size already.
func (d *Driver) ResizeImage(ctx context.Context, name string, size int64) (out Image, err error) {
	hosts, err := d.hosts(ctx)
	if err != nil {
		return out, err
	}
	for _, node := range hosts {
		at := Place{Node: node}
		op, err := call[hypervisorapi.Operation](ctx, d, at, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.ResizeImage(ctx, name, hypervisorapi.ImageResize{SizeBytes: size})
			})
		if err != nil {
			return out, err
		}
		if err := d.awaitImage(ctx, at, op); err != nil {
			return out, err
		}
		if out, err = d.image(ctx, at, name); err != nil {
			return out, err
		}
	}
	return out, nil
}
