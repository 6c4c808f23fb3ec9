package kubernetes

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Labels of what the gateway makes. By the first one, people find all of it.
const (
	labelManager = "app.kubernetes.io/managed-by"
	labelNative  = "mainstay/native" // the native name, which is also the object's
)

// ours returns the metadata of a new object.
func ours(native string) kube.Meta {
	return kube.Meta{Name: native, Labels: map[string]string{labelManager: userAgent, labelNative: native}}
}

// own reports whether the gateway has made an object.
func own(m *kube.Meta) bool { return driver.IsMade(m.Name) && m.Labels[labelNative] == m.Name }

// Phases of claims.
const (
	bound = "Bound"
	lost  = "Lost"
)

// complete reports whether a claim has, or had, a volume.
func (c *claim) complete() bool { return c.Status.Phase == bound || c.Status.Phase == lost }

// volume returns the volume of a claim.
func (c *claim) volume() driver.Volume {
	v := driver.Volume{
		Name: driver.Name{Pool: c.Spec.StorageClassName, Native: c.Meta.Name}, Kind: driver.Filesystem, Size: c.size(),
		Used: -1, Enforced: true, Foreign: !own(&c.Meta), Damaged: c.Status.Phase == lost,
		CreatedAt: c.Meta.CreationTimestamp,
	}
	if c.Spec.VolumeMode == modeBlock {
		v.Kind = driver.Block
	}
	return v
}

// size returns that of a volume. A file system that has grown below shows it only once a pod mounts it.
func (c *claim) size() int64 {
	size := kube.Bytes(c.Status.Capacity.Storage)
	if slices.Contains(c.Status.Conditions, condition{"FileSystemResizePending", "True"}) {
		size = max(size, kube.Bytes(c.Spec.Resources.Requests.Storage))
	}
	return size
}

// modeBlock and modeFilesystem are modes of volumes.
const (
	modeBlock      = "Block"
	modeFilesystem = "Filesystem"
)

func errNone(noun, native string) error {
	return fault.New(fault.NotFound, "the storage has no %s %s", noun, native)
}

func errForeign(r kube.Resource, native string) error {
	return fault.New(fault.Conflict, "the gateway did not make the %s %s", r.Kind, native)
}

func check(noun, prefix, native string) error {
	if !driver.IsMade(native) || !strings.HasPrefix(native, prefix) {
		return errNone(noun, native)
	}
	return nil
}

// find returns a claim of the gateway, complete or not. It is a fault of kind NotFound if the pool has no such claim,
// and of kind Conflict if the gateway did not make it.
func (d *Driver) find(ctx context.Context, n driver.Name) (*claim, error) {
	if err := check("volume", driver.VolumeName(""), n.Native); err != nil {
		return nil, err
	}
	c, err := kube.Get[claim](ctx, d.client, kube.PersistentVolumeClaims, d.namespace, n.Native)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, errNone("volume", n.Native)
	case err != nil:
		return nil, err
	case !own(&c.Meta):
		return nil, errForeign(kube.PersistentVolumeClaims, n.Native)
	case c.Spec.StorageClassName != n.Pool:
		return nil, errNone("volume", n.Native)
	}
	return c, nil
}

// Volume returns a volume.
func (d *Driver) Volume(ctx context.Context, n driver.Name) (driver.Volume, error) {
	c, err := d.find(ctx, n)
	if err == nil && !c.complete() {
		err = errNone("volume", n.Native)
	}
	if err != nil {
		return driver.Volume{}, err
	}
	return c.volume(), nil
}

// class returns the storage class of a pool, in which volumes can be made.
func (d *Driver) class(ctx context.Context, pool string) (*storageClass, error) {
	c, err := kube.Get[storageClass](ctx, d.client, kube.StorageClasses, "", pool)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.Wrap(fault.NotFound, err, "the storage has no pool %s", pool)
	}
	if err != nil {
		return nil, err
	}
	if why := c.unfit(); why != "" {
		return nil, fault.New(fault.Invalid, "the storage class %s %s; use another one", pool, why).WithCode("unsupported")
	}
	return c, nil
}

// CreateVolume makes a claim, and waits until the cluster has made its volume.
func (d *Driver) CreateVolume(ctx context.Context, spec driver.VolumeSpec) (driver.Volume, error) {
	return d.claim(ctx, spec, nil)
}

// claim makes a claim with a content, unless there is one, and waits until it has its volume.
func (d *Driver) claim(ctx context.Context, spec driver.VolumeSpec, from *dataSource) (driver.Volume, error) {
	c, err := d.find(ctx, spec.Name)
	if fault.Is(err, fault.NotFound) {
		c, err = d.make(ctx, spec, from)
	}
	if err != nil {
		return driver.Volume{}, err
	}
	return d.await(ctx, c, (*claim).complete)
}

// make makes a claim.
func (d *Driver) make(ctx context.Context, spec driver.VolumeSpec, from *dataSource) (*claim, error) {
	if err := check("volume", driver.VolumeName(""), spec.Native); err != nil {
		return nil, err
	}
	if spec.Size <= 0 {
		return nil, fault.InvalidField("size_bytes", "must be positive")
	}
	modes := map[driver.Kind]string{driver.Block: modeBlock, driver.Filesystem: modeFilesystem}
	if modes[spec.Kind] == "" {
		return nil, fault.InvalidField("kind", "claims have volumes of the kinds block and filesystem").WithCode("unsupported")
	}
	if _, err := d.class(ctx, spec.Pool); err != nil {
		return nil, err
	}
	c, err := kube.Create(ctx, d.client, kube.PersistentVolumeClaims, d.namespace, &claim{
		Meta: ours(spec.Native),
		Spec: claimSpec{
			AccessModes: []string{"ReadWriteOnce"}, StorageClassName: spec.Pool, VolumeMode: modes[spec.Kind],
			Resources: resources{storage{strconv.FormatInt(spec.Size, 10)}}, DataSource: from,
		},
	})
	if fault.Is(err, fault.Conflict) { // another process was faster
		return d.find(ctx, spec.Name)
	}
	return c, err
}

// await waits until a claim is as it should be. One that goes meanwhile, or is made again, is a fault of kind Conflict.
func (d *Driver) await(ctx context.Context, c *claim, so func(*claim) bool) (driver.Volume, error) {
	ctx, cancel := d.patient(ctx)
	defer cancel()
	fits := func(now *claim) (bool, error) {
		if now == nil || now.Meta.UID != c.Meta.UID || !now.Meta.DeletionTimestamp.IsZero() {
			return false, fault.New(fault.Conflict, "the claim %s was deleted in the cluster", c.Meta.Name)
		}
		c = now
		return so(now), nil
	}
	if err := kube.Await(ctx, d.client, kube.PersistentVolumeClaims, d.namespace, c.Meta.Name, fits); err != nil {
		return driver.Volume{}, d.told(ctx, kube.PersistentVolumeClaims, &c.Meta, err)
	}
	return c.volume(), nil
}

// ExpandVolume has a claim ask for more, and waits until it has it.
func (d *Driver) ExpandVolume(ctx context.Context, n driver.Name, size int64) (driver.Volume, error) {
	c, err := d.find(ctx, n)
	switch {
	case err != nil:
		return driver.Volume{}, err
	case !c.complete():
		return driver.Volume{}, errNone("volume", n.Native)
	case c.size() >= size:
		return c.volume(), nil
	}
	class, err := d.class(ctx, n.Pool)
	if err != nil {
		return driver.Volume{}, err
	}
	if !class.AllowVolumeExpansion {
		return driver.Volume{}, fault.New(fault.Invalid, "the storage class %s does not let its volumes grow "+
			"(allowVolumeExpansion)", n.Pool).WithCode("unsupported")
	}
	if kube.Bytes(c.Spec.Resources.Requests.Storage) < size {
		if c, err = kube.Apply(ctx, d.client, kube.PersistentVolumeClaims, d.namespace, n.Native, &claim{
			Meta: kube.Meta{Name: n.Native, UID: c.Meta.UID},
			Spec: claimSpec{Resources: resources{storage{strconv.FormatInt(size, 10)}}},
		}); err != nil {
			return driver.Volume{}, err
		}
	}
	return d.await(ctx, c, func(now *claim) bool { return now.size() >= size })
}

// maxNamed is how many pods a message names.
const maxNamed = 3

// users returns the names of pods that use a claim, at most maxNamed of them.
func (d *Driver) users(ctx context.Context, native string) (names []string, err error) {
	enough := errors.New("enough")
	err = kube.Each(ctx, d.client, kube.Pods, d.namespace, kube.Query{}, func(p *pod) error {
		for _, v := range p.Spec.Volumes {
			if v.Claim.Name == native && !slices.Contains(names, p.Meta.Name) {
				names = append(names, p.Meta.Name)
			}
		}
		if len(names) == maxNamed {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return names, err
}

// DeleteVolume deletes a claim that no pod uses, and waits until it is gone. The cluster removes its volume then, if
// the storage class says so (reclaimPolicy Delete).
func (d *Driver) DeleteVolume(ctx context.Context, n driver.Name) error {
	c, err := d.find(ctx, n)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.unused(ctx, n.Native); err != nil {
		return err
	}
	if err := d.remove(ctx, kube.PersistentVolumeClaims, &c.Meta); err != nil {
		// A pod that has come between keeps it until it ends.
		if used := d.unused(context.WithoutCancel(ctx), n.Native); fault.Is(used, fault.Conflict) {
			return fault.Wrap(fault.Unavailable, used, "%s", fault.From(used).Message)
		}
		return err
	}
	return nil
}

// unused returns a fault of kind Conflict if pods use a claim.
func (d *Driver) unused(ctx context.Context, native string) error {
	names, err := d.users(ctx, native)
	if err == nil && len(names) > 0 {
		err = fault.New(fault.Conflict, "pods of the namespace %s use the claim %s: %s; delete them first",
			d.namespace, native, strings.Join(names, ", "))
	}
	return err
}

// remove deletes an object, and waits until it is gone.
func (d *Driver) remove(ctx context.Context, r kube.Resource, m *kube.Meta) error {
	ctx, cancel := d.patient(ctx)
	defer cancel()
	if m.DeletionTimestamp.IsZero() {
		switch err := kube.Delete(ctx, d.client, r, d.namespace, m.Name, m.UID); {
		case fault.Is(err, fault.NotFound), fault.Is(err, fault.Conflict): // it is gone, and another one may be there
			return nil
		case err != nil:
			return err
		}
	}
	err := kube.Await(ctx, d.client, r, d.namespace, m.Name, func(now *object) (bool, error) {
		return now == nil || now.Meta.UID != m.UID, nil
	})
	return d.told(ctx, r, m, err)
}
