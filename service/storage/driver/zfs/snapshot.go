package zfs

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// The user properties of snapshots, beside mark: the volume's native name, kind and size in bytes. ZFS does not keep
// the quota of a file system with its snapshots.
const (
	markSource = "mainstay:source"
	markKind   = "mainstay:kind"
	markSize   = "mainstay:size"
)

// snapshotColumns are the properties of snapshots that are read.
const snapshotColumns = "name,used,creation,defer_destroy," + mark + "," + markSource + "," + markKind + "," + markSize

// snapshot is one of the gateway.
type snapshot struct {
	driver.Snapshot
	path  string // the whole name
	going bool   // it was deleted, and goes with its last clone
}

// snapshots looks below a dataset for the snapshot of the gateway with a native name.
func (d *Driver) snapshotIn(ctx context.Context, at, depth, native string) (s snapshot, there bool, err error) {
	err = d.each(ctx, func(f []string) error {
		if len(f) != strings.Count(snapshotColumns, ",")+1 {
			return errOutput
		}
		if !strings.HasSuffix(f[0], "@"+native) || f[4] != native {
			return nil
		}
		s = snapshot{path: f[0], going: f[3] == "on", Snapshot: driver.Snapshot{
			Name: driver.Name{Pool: d.pool, Native: native}, Source: f[5], Kind: driver.Kind(f[6]), Size: number(f[7]),
			Used: number(f[1]), Consistency: driver.CrashConsistent, CreatedAt: time.Unix(number(f[2]), 0).UTC(),
		}}
		there = true
		return nil
	}, "zfs", "list", "-H", "-p", "-d", depth, "-t", "snapshot", "-o", snapshotColumns, at)
	if says(err, saysNone...) {
		return s, false, nil
	}
	return s, there, told(err)
}

// find returns a snapshot, also of a volume that was deleted, or a fault of kind NotFound.
func (d *Driver) find(ctx context.Context, n driver.Name) (snapshot, error) {
	if err := d.check("snapshot", driver.SnapshotName(""), n); err != nil {
		return snapshot{}, err
	}
	// The name does not tell the volume, which may have been renamed.
	s, there, err := d.snapshotIn(ctx, d.base, "2", n.Native)
	if err == nil && (!there || s.going) {
		err = errNone("snapshot", n.Native)
	}
	return s, err
}

// Snapshot returns a snapshot.
func (d *Driver) Snapshot(ctx context.Context, n driver.Name) (driver.Snapshot, error) {
	s, err := d.find(ctx, n)
	return s.Snapshot, err
}

// CreateSnapshot takes a snapshot. ZFS takes it at one moment, and at once.
func (d *Driver) CreateSnapshot(ctx context.Context, of, n driver.Name, _ func(float64)) (driver.Snapshot, error) {
	n.Pool = of.Pool
	if err := d.check("snapshot", driver.SnapshotName(""), n); err != nil {
		return driver.Snapshot{}, err
	}
	v, err := d.own(ctx, of)
	if err != nil {
		return driver.Snapshot{}, err
	}
	s, there, err := d.snapshotIn(ctx, d.path(v.name), "1", n.Native)
	if err == nil && !there {
		made := d.run(ctx, "zfs", "snapshot", "-o", mark+"="+n.Native, "-o", markSource+"="+v.Native,
			"-o", markKind+"="+string(v.Kind), "-o", markSize+"="+strconv.FormatInt(v.Size, 10), d.path(v.name)+"@"+n.Native)
		if s, there, err = d.snapshotIn(ctx, d.path(v.name), "1", n.Native); err == nil && !there {
			if err = told(made); err == nil || says(made, saysExists...) {
				err = fault.New(fault.Conflict, "the gateway did not make the snapshot %s", n.Native)
			}
		}
	}
	if err == nil && s.going {
		err = fault.New(fault.Conflict, "the snapshot %s was deleted, and is there until its clones are gone", n.Native)
	}
	return s.Snapshot, err
}

// DeleteSnapshot removes a snapshot, or marks it to go with the last volume that was cloned from it.
func (d *Driver) DeleteSnapshot(ctx context.Context, n driver.Name) error {
	s, err := d.find(ctx, n)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.run(ctx, "zfs", "destroy", "-d", s.path); err != nil && !says(err, saysNone...) {
		return told(err)
	}
	return d.forgetOrigin(ctx, &found{origin: s.path})
}

// CloneSnapshot makes a volume of a snapshot, with which it shares data.
func (d *Driver) CloneSnapshot(
	ctx context.Context, of driver.Name, spec driver.VolumeSpec, _ func(float64),
) (driver.Volume, error) {
	v, err := d.own(ctx, spec.Name)
	if err == nil {
		return v.Volume, d.mount(ctx, &v)
	}
	if !fault.Is(err, fault.NotFound) || d.checkVolume(spec.Name) != nil {
		return driver.Volume{}, err
	}
	s, err := d.find(ctx, of)
	if err != nil {
		return driver.Volume{}, err
	}
	if spec.Kind != s.Kind {
		return driver.Volume{}, fault.InvalidField("kind", "a clone is of the kind of its snapshot, %s", s.Kind)
	}
	size := max(spec.Size, s.Size)
	if err := checkSize("size_bytes", size); err != nil {
		return driver.Volume{}, err
	}
	if err := d.makeClone(ctx, &s, spec.Native, round(size)); err != nil {
		return driver.Volume{}, err
	}
	if v, err = d.own(ctx, spec.Name); err != nil {
		return driver.Volume{}, err
	}
	return v.Volume, d.mount(ctx, &v)
}
