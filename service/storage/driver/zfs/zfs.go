package zfs

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Config says where volumes are.
type Config struct {
	Dataset string // a file system that exists: POOL or POOL/NAME...
	GUID    string // which the dataset must have; empty: any
	Zfs     string // path of the program zfs; empty: it is in PATH
	Zpool   string // the same of zpool
}

// Driver keeps volumes in a dataset.
type Driver struct {
	base, pool, guid string
	programs         map[string]string // paths, by name
	slots            chan struct{}     // one for each command that is under way
}

// dataset matches the names of datasets that backends may have.
var dataset = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]*(/[A-Za-z0-9][A-Za-z0-9_.:-]*)*$`)

// maxDataset is the most bytes of a dataset's name: ZFS takes 255, and the names of volumes and snapshots are added.
const maxDataset = 120

// CheckDataset reports whether a backend may have a dataset of that name.
func CheckDataset(name string) bool { return len(name) <= maxDataset && dataset.MatchString(name) }

// Open opens a dataset. One with another guid, or that is no file system, is a fault of kind Conflict. Open removes
// what killed processes have left half removed.
func Open(ctx context.Context, cfg Config) (*Driver, error) {
	if !CheckDataset(cfg.Dataset) {
		return nil, fault.InvalidField("dataset", "%q is not the name of a dataset", cfg.Dataset)
	}
	d := &Driver{base: cfg.Dataset, programs: map[string]string{}, slots: make(chan struct{}, maxCommands)}
	d.pool, _, _ = strings.Cut(d.base, "/")
	for name, path := range map[string]string{"zfs": cfg.Zfs, "zpool": cfg.Zpool} {
		if path == "" {
			var err error
			if path, err = exec.LookPath(name); err != nil {
				return nil, fault.Wrap(fault.Unavailable, err, "the program %s is not installed on the host of the gateway", name)
			}
		}
		d.programs[name] = path
	}
	room, err := d.room(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.GUID != "" && room.guid != cfg.GUID {
		return nil, fault.New(fault.Conflict, "its dataset is another one than before: its guid is %s, not %s; check whether "+
			"the right pool is imported", room.guid, cfg.GUID)
	}
	d.guid = room.guid
	return d, d.sweep(ctx)
}

// Close does nothing: a Driver holds nothing.
func (d *Driver) Close() error { return nil }

// Capabilities returns what ZFS can do.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Block: true, File: true, Snapshots: true, Clone: true, Expansion: true}
}

// room is that of the dataset, in bytes.
type room struct {
	guid       string
	used, free int64
}

func (d *Driver) room(ctx context.Context) (r room, err error) {
	kind := ""
	err = d.each(ctx, func(f []string) error {
		if len(f) != 4 {
			return errOutput
		}
		kind, r.guid, r.used, r.free = f[0], f[1], number(f[2]), number(f[3])
		return nil
	}, "zfs", "list", "-H", "-p", "-d", "0", "-o", "type,guid,used,available", d.base)
	switch {
	case says(err, saysNone...):
		return r, fault.Wrap(fault.Unavailable, err, "its dataset does not exist; check whether its pool is imported")
	case err != nil:
		return r, told(err)
	case kind != "filesystem" || r.guid == "":
		return r, fault.New(fault.Conflict, "its dataset is not a file system")
	}
	return r, nil
}

// errOutput is the error for lines that no version of ZFS prints.
var errOutput = fault.New(fault.Unavailable, "ZFS prints something that is not understood")

// number reads a number that ZFS prints, where "-" or "none" is 0.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Inspect returns the room of the dataset, and the condition of its pool.
func (d *Driver) Inspect(ctx context.Context) (driver.Cluster, error) {
	r, err := d.room(ctx)
	if err != nil {
		return driver.Cluster{}, err
	}
	if r.guid != d.guid {
		return driver.Cluster{}, fault.New(fault.Conflict, "its dataset was replaced by another one")
	}
	c := driver.Cluster{NativeID: d.guid, Name: d.base}
	state := ""
	if err := d.each(ctx, func(f []string) error {
		if len(f) != 3 {
			return errOutput
		}
		c.Raw, c.Used, state = number(f[0]), number(f[1]), f[2]
		return nil
	}, "zpool", "list", "-H", "-p", "-o", "size,allocated,health", d.pool); err != nil {
		return driver.Cluster{}, told(err)
	}
	switch state {
	case "ONLINE":
		c.Health = driver.Healthy
	case "DEGRADED":
		c.Health = driver.Warning
	default:
		c.Health = driver.Critical
	}
	if c.Health != driver.Healthy {
		c.Summary = "the pool " + d.pool + " is " + state
	}
	c.Available = min(r.free, c.Raw)
	c.Pools = []driver.Pool{{
		Name: d.pool, Kind: driver.PoolZFS, Replicas: 1, Used: r.used, Max: r.used + r.free, Health: c.Health,
	}}
	return c, nil
}

// mark is the user property with the native name of what the gateway made.
const mark = "mainstay:name"

// columns are the properties of datasets that are read.
const columns = "name,type,volsize,refquota,quota,referenced,creation,origin,mounted,mountpoint,canmount," + mark

// found is a dataset directly below the base.
type found struct {
	driver.Volume
	name   string // without the base
	mark   string
	origin string // the whole name of the snapshot that it was cloned from
	// unmounted: it is a file system that belongs into the tree of files, and is not there.
	unmounted bool
}

// parse reads a line of columns.
func (d *Driver) parse(f []string) (found, error) {
	if len(f) != strings.Count(columns, ",")+1 {
		return found{}, errOutput
	}
	name, _ := strings.CutPrefix(f[0], d.base+"/")
	v := found{name: name, mark: f[11]}
	v.Volume = driver.Volume{
		Name: driver.Name{Pool: d.pool, Native: name}, Used: number(f[5]), CreatedAt: time.Unix(number(f[6]), 0).UTC(),
		Foreign: !driver.IsMade(name) || v.mark != name,
	}
	if f[7] != "-" {
		v.origin, v.Parent = f[7], f[7]
	}
	switch f[1] {
	case "volume":
		v.Kind, v.Size, v.Enforced = driver.Block, number(f[2]), true
	case "filesystem":
		v.Kind, v.Size = driver.Filesystem, number(f[3])
		if v.Size == 0 {
			v.Size = number(f[4])
		}
		v.Enforced = v.Size > 0
		v.unmounted = f[8] == "no" && strings.HasPrefix(f[9], "/") && f[10] == "on"
	default:
		return found{}, errOutput
	}
	return v, nil
}

// kinds of names that the driver gives to what is not a volume.
const (
	goneName = "gone-"
	newName  = "new-"
	keptName = "kept-"
)

// passing reports whether it is a volume that comes or goes, or is in the trash.
func (v *found) passing() bool {
	return driver.IsMade(v.mark) && (strings.HasPrefix(v.name, goneName) || strings.HasPrefix(v.name, newName) ||
		strings.HasPrefix(v.name, keptName))
}

// below calls do with what is directly below the base.
func (d *Driver) below(ctx context.Context, do func(found) error) error {
	return d.each(ctx, func(f []string) error {
		if f[0] == d.base {
			return nil
		}
		v, err := d.parse(f)
		if err != nil {
			return err
		}
		return do(v)
	}, "zfs", "list", "-H", "-p", "-d", "1", "-t", "filesystem,volume", "-o", columns, d.base)
}

// EachVolume calls do with the volumes of the gateway, and with what else is directly below the dataset.
func (d *Driver) EachVolume(ctx context.Context, do func(driver.Volume) error) error {
	return told(d.below(ctx, func(v found) error {
		if v.passing() {
			return nil
		}
		return do(v.Volume)
	}))
}

// sweep removes deleted volumes whose snapshots are gone.
func (d *Driver) sweep(ctx context.Context) error {
	var all []found
	if err := d.below(ctx, func(v found) error {
		if v.passing() && strings.HasPrefix(v.name, goneName) {
			all = append(all, v)
		}
		return nil
	}); err != nil {
		return told(err)
	}
	var err error
	for i := range all {
		err = errors.Join(err, d.forget(ctx, &all[i]))
	}
	return err
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Volumes   = (*Driver)(nil)
	_ driver.Trash     = (*Driver)(nil)
	_ driver.Snapshots = (*Driver)(nil)
	_ driver.Cloner    = (*Driver)(nil)
)
