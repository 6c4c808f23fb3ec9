package zfs

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

const mib = 1 << 20

// MaxSize is the largest size of a volume, in bytes.
const MaxSize = 1 << 60

// path returns the whole name of a dataset below the base.
func (d *Driver) path(name string) string { return d.base + "/" + name }

func errNone(noun, native string) error {
	return fault.New(fault.NotFound, "the storage has no %s %s", noun, native)
}

// check refuses names that the gateway does not make.
func (d *Driver) check(noun, prefix string, n driver.Name) error {
	switch {
	case n.Pool != d.pool:
		return fault.New(fault.NotFound, "the storage has no pool %s", n.Pool)
	case !driver.IsMade(n.Native) || !strings.HasPrefix(n.Native, prefix):
		return errNone(noun, n.Native)
	}
	return nil
}

func (d *Driver) checkVolume(n driver.Name) error { return d.check("volume", driver.VolumeName(""), n) }

// round rounds a size up to a whole number of MiB.
func round(size int64) int64 { return (size + mib - 1) / mib * mib }

func checkSize(field string, size int64) error {
	if size <= 0 || size > MaxSize {
		return fault.InvalidField(field, "must be between 1 and %d", int64(MaxSize))
	}
	return nil
}

// look returns a dataset below the base. there is false if there is none.
func (d *Driver) look(ctx context.Context, name string) (v found, there bool, err error) {
	err = d.each(ctx, func(f []string) (err error) {
		v, err = d.parse(f)
		there = err == nil
		return err
	}, "zfs", "list", "-H", "-p", "-d", "0", "-t", "filesystem,volume", "-o", columns, d.path(name))
	if says(err, saysNone...) {
		return v, false, nil
	}
	return v, there, told(err)
}

// own returns a volume of the gateway, a fault of kind NotFound if nothing has the name, or of kind Conflict if
// something has that the gateway did not make.
func (d *Driver) own(ctx context.Context, n driver.Name) (found, error) {
	if err := d.checkVolume(n); err != nil {
		return found{}, err
	}
	v, there, err := d.look(ctx, n.Native)
	switch {
	case err != nil:
		return v, err
	case !there:
		return v, errNone("volume", n.Native)
	case v.Foreign:
		return v, fault.New(fault.Conflict, "the gateway did not make the dataset %s", n.Native)
	}
	return v, nil
}

// Volume returns a volume.
func (d *Driver) Volume(ctx context.Context, n driver.Name) (driver.Volume, error) {
	v, err := d.own(ctx, n)
	return v.Volume, err
}

// CreateVolume makes a volume by one command. A file system that could not be mounted is mounted by the next call.
func (d *Driver) CreateVolume(ctx context.Context, spec driver.VolumeSpec) (driver.Volume, error) {
	if err := d.checkVolume(spec.Name); err != nil {
		return driver.Volume{}, err
	}
	if err := checkSize("size_bytes", spec.Size); err != nil {
		return driver.Volume{}, err
	}
	args := []string{"create", "-o", mark + "=" + spec.Native}
	size := strconv.FormatInt(round(spec.Size), 10)
	switch spec.Kind {
	case driver.Block:
		args = append(args, "-s", "-V", size)
	case driver.Filesystem:
		args = append(args, "-o", "refquota="+size)
	default:
		return driver.Volume{}, fault.InvalidField("kind", "ZFS has volumes of the kinds block and filesystem").WithCode(
			"unsupported",
		)
	}
	v, err := d.own(ctx, spec.Name)
	if fault.Is(err, fault.NotFound) {
		made := d.run(ctx, "zfs", append(args, d.path(spec.Native))...)
		// It may be there although the command failed: another process was faster, or it is not mounted yet.
		if v, err = d.own(ctx, spec.Name); fault.Is(err, fault.NotFound) && made != nil {
			err = told(made)
		}
	}
	if err != nil {
		return driver.Volume{}, err
	}
	return v.Volume, d.mount(ctx, &v)
}

// mount mounts a file system that belongs into the tree of files.
func (d *Driver) mount(ctx context.Context, v *found) error {
	if !v.unmounted {
		return nil
	}
	err := d.run(ctx, "zfs", "mount", d.path(v.name))
	if says(err, "already mounted") {
		return nil
	}
	return told(err)
}

// resize gives a dataset a size, in bytes.
func (d *Driver) resize(ctx context.Context, v *found, size int64) error {
	property := "refquota"
	if v.Kind == driver.Block {
		property = "volsize"
	}
	return d.run(ctx, "zfs", "set", property+"="+strconv.FormatInt(size, 10), d.path(v.name))
}

// ExpandVolume makes a volume larger.
func (d *Driver) ExpandVolume(ctx context.Context, n driver.Name, size int64) (driver.Volume, error) {
	if err := checkSize("new_size_bytes", size); err != nil {
		return driver.Volume{}, err
	}
	v, err := d.own(ctx, n)
	if err != nil || v.Size >= size {
		return v.Volume, err
	}
	if err := d.resize(ctx, &v, round(size)); err != nil {
		return driver.Volume{}, told(err)
	}
	return d.Volume(ctx, n)
}

// DeleteVolume removes a volume, also one in the trash. One that has snapshots is renamed, and goes with the last of
// them.
func (d *Driver) DeleteVolume(ctx context.Context, n driver.Name) error {
	v, err := d.own(ctx, n)
	if fault.Is(err, fault.NotFound) {
		v, err = d.kept(ctx, n)
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.run(ctx, "zfs", "destroy", d.path(v.name))
	switch {
	case err == nil:
		return d.forgetOrigin(ctx, &v)
	case says(err, saysNone...):
		return nil
	case !says(err, saysParent...):
		return told(err)
	}
	return d.retire(ctx, &v)
}

// retire takes a volume with snapshots out of the way.
func (d *Driver) retire(ctx context.Context, v *found) error {
	if err := d.hide(ctx, v, goneName+uuid.NewString()); err != nil {
		return err
	}
	return d.forget(ctx, v) // its snapshots may have gone meanwhile
}

// hide gives a volume a name below the base under which callers do not see it.
func (d *Driver) hide(ctx context.Context, v *found, name string) error {
	children := 0
	if err := d.each(ctx, func([]string) error { children++; return nil },
		"zfs", "list", "-H", "-d", "1", "-t", "filesystem,volume", "-o", "name", d.path(v.name)); err != nil {
		return told(err)
	}
	if children > 1 { // the volume is one of them
		return fault.New(fault.Conflict, "something that the gateway did not make is below the dataset %s", v.Native)
	}
	if v.Kind == driver.Filesystem {
		// Nobody finds its files any more, also after a reboot.
		if err := d.run(ctx, "zfs", "unmount", d.path(v.name)); err != nil && !says(err, "not currently mounted") {
			return told(err)
		}
		if err := d.run(ctx, "zfs", "set", "canmount=noauto", d.path(v.name)); err != nil {
			return told(err)
		}
	}
	if err := d.run(ctx, "zfs", "rename", d.path(v.name), d.path(name)); err != nil {
		return told(err)
	}
	v.name = name
	return nil
}

// forget removes a deleted volume if it has no snapshots, and then what it was cloned from, if that only waited for it.
func (d *Driver) forget(ctx context.Context, v *found) error {
	err := d.run(ctx, "zfs", "destroy", d.path(v.name))
	switch {
	case err == nil:
		return d.forgetOrigin(ctx, v)
	case says(err, saysNone...), says(err, saysParent...), says(err, saysBusy...):
		return nil
	}
	return told(err)
}

func (d *Driver) forgetOrigin(ctx context.Context, v *found) error {
	of, _, _ := strings.Cut(v.origin, "@")
	name, ok := strings.CutPrefix(of, d.base+"/"+goneName)
	if !ok || uuid.Validate(name) != nil {
		return nil
	}
	parent, there, err := d.look(ctx, goneName+name)
	if err != nil || !there || !parent.passing() {
		return err
	}
	return d.forget(ctx, &parent)
}

// makeClone makes a volume by a clone of a snapshot, of at least a size.
func (d *Driver) makeClone(ctx context.Context, of *snapshot, native string, size int64) error {
	attempt := newName + strings.TrimPrefix(native, driver.VolumeName("")) + "-"
	if err := d.forgetAttempts(ctx, attempt); err != nil {
		return err
	}
	v := found{name: attempt + uuid.NewString()[:8], Volume: driver.Volume{Kind: of.Kind}}
	if err := d.run(ctx, "zfs", "clone", "-o", mark+"="+native, of.path, d.path(v.name)); err != nil {
		return told(err)
	}
	var err error
	if of.Kind == driver.Filesystem || size > of.Size {
		err = d.resize(ctx, &v, size)
	}
	if err == nil {
		err = d.run(ctx, "zfs", "rename", d.path(v.name), d.path(native))
	}
	if err == nil {
		return nil
	}
	undo := d.run(context.WithoutCancel(ctx), "zfs", "destroy", d.path(v.name))
	if says(undo, saysNone...) {
		undo = nil
	}
	if says(err, saysExists...) {
		err = nil // another process has made it
	}
	return errors.Join(told(err), told(undo))
}

// forgetAttempts removes what other attempts to make a volume have left. One that is still under way fails by that.
func (d *Driver) forgetAttempts(ctx context.Context, attempt string) error {
	var left []string
	if err := d.below(ctx, func(v found) error {
		if v.passing() && strings.HasPrefix(v.name, attempt) {
			left = append(left, v.name)
		}
		return nil
	}); err != nil {
		return told(err)
	}
	for _, name := range left {
		if err := d.run(ctx, "zfs", "destroy", d.path(name)); err != nil && !says(err, saysNone...) {
			return told(err)
		}
	}
	return nil
}
