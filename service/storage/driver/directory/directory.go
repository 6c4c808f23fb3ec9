//go:build linux

package directory

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// PoolName is the name of a folder's only pool.
const PoolName = "default"

const (
	idFile          = "mainstay.json"
	volumesFolder   = "volumes"
	snapshotsFolder = "snapshots"
	incomingFolder  = "incoming"
	trashFolder     = "trash"
	deletedFolder   = "deleted"
)

// own are the names in the folder that are the gateway's.
var own = map[string]bool{
	idFile: true, volumesFolder: true, snapshotsFolder: true, incomingFolder: true, trashFolder: true, deletedFolder: true,
	"lost+found": true,
}

// Driver keeps volumes in a folder.
type Driver struct {
	root *os.Root
	id   string
	path string
}

// identity is the content of mainstay.json.
type identity struct {
	ID string `json:"id"`
}

// Open opens the folder that has an id. Without one, it prepares the folder, and makes it if its parent exists. A
// folder with another id or none is a fault of kind Conflict: the file system that it is on may not be mounted, and
// nothing must be written in its place. Open removes what killed processes have left half removed.
func Open(folder, id string) (*Driver, error) {
	d, err := open(folder, id)
	var path *fs.PathError
	if errors.As(err, &path) { // users do not see paths
		return nil, fault.Wrap(fault.Unavailable, err, "its folder cannot be opened: %s", path.Err)
	}
	return d, err
}

func open(folder, id string) (_ *Driver, err error) {
	if id != "" {
		if err := checkID(filepath.Join(folder, idFile), id); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(folder, 0o711); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // users of volumes pass
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	d := &Driver{root: root, path: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Close())
		}
	}()
	for _, sub := range []struct {
		name string
		mode fs.FileMode
	}{
		{volumesFolder, 0o711}, {snapshotsFolder, 0o700}, {incomingFolder, 0o700}, {trashFolder, 0o700},
		{deletedFolder, 0o700},
	} {
		// On a full file system, volumes can be deleted without those of its folders that earlier versions lack.
		err := root.Mkdir(sub.name, sub.mode)
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOSPC) {
			return nil, err
		}
	}
	if d.id, err = identify(filepath.Join(folder, idFile)); err != nil {
		return nil, err
	}
	return d, d.sweep()
}

// checkID fails unless a file holds an id.
func checkID(path, id string) error {
	found, err := readID(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		found, err = "none", nil
	case errors.Is(err, unix.ELOOP):
		return fault.Wrap(fault.Conflict, err, "%s in its folder is a symbolic link", idFile)
	}
	if err == nil && found != id {
		err = fault.New(fault.Conflict, "its folder is another storage system than before: its id is %s, not %s; check whether "+
			"its file system is mounted", found, id)
	}
	return err
}

// identify reads the id in a file, and creates the file if it does not exist. On a full file system, one that exists is
// read all the same.
func identify(path string) (string, error) {
	if id, err := readID(path); !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	raw, err := json.Marshal(identity{uuid.NewString()})
	if err != nil {
		return "", err
	}
	if err := durable.Create(path, append(raw, '\n'), 0o600); err != nil {
		return "", err
	}
	return readID(path)
}

// maxID is the most bytes of the file with the id.
const maxID = 4 << 10

func readID(path string) (string, error) {
	//nolint:gosec // the operator names the folder
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	var found identity
	if !info.Mode().IsRegular() || info.Size() > maxID || json.NewDecoder(f).Decode(&found) != nil ||
		uuid.Validate(found.ID) != nil {
		return "", fault.New(fault.Unavailable, "%s in its folder is damaged", idFile)
	}
	return found.ID, nil
}

// sweep removes what is in trash. What is in incoming may be another process's, and is removed by the
// attempt that needs its name.
func (d *Driver) sweep() error {
	return d.each(trashFolder, func(e fs.DirEntry) error { return d.root.RemoveAll(path.Join(trashFolder, e.Name())) })
}

// Close closes the folder.
func (d *Driver) Close() error { return d.root.Close() }

// Capabilities returns what folders can do.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Block: true, File: true, Snapshots: true, Clone: true, Expansion: true}
}

// same returns a fault of kind Conflict unless the folder is still the one that was opened: its file system may have
// been unmounted, or another one mounted over it, and what is done in the folder that is open would be lost.
func (d *Driver) same() error {
	now, err := os.Stat(d.path)
	held, heldErr := d.root.Stat(".")
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && heldErr == nil && !os.SameFile(now, held):
		return fault.New(fault.Conflict, "its folder was replaced by another one; check whether its file system is mounted")
	case err != nil || heldErr != nil:
		return fault.Wrap(fault.Unavailable, errors.Join(err, heldErr), "its folder does not answer")
	}
	return checkID(filepath.Join(d.path, idFile), d.id)
}

// Inspect returns the room of the file system that the folder is on.
func (d *Driver) Inspect(ctx context.Context) (driver.Cluster, error) {
	if err := d.same(); err != nil {
		return driver.Cluster{}, err
	}
	room, err := d.room()
	if err != nil {
		return driver.Cluster{}, fault.Wrap(fault.Unavailable, err, "the folder of the volumes does not answer")
	}
	c := driver.Cluster{
		NativeID: d.id, Name: filepath.Base(d.path), Health: driver.Healthy, Raw: room.total, Used: room.used,
		Available: room.free,
	}
	if room.readOnly {
		c.Health, c.Summary = driver.Critical, "the file system is mounted read-only"
	}
	c.Pools = []driver.Pool{{
		Name: PoolName, Kind: driver.PoolNFSExport, Replicas: 1, Used: c.Used, Max: c.Used + c.Available, Health: c.Health,
	}}
	return c, context.Cause(ctx)
}

// room is that of a file system, in bytes. It keeps some of it for root: total may be more than used and free.
type room struct {
	total, used, free int64
	readOnly          bool
}

func (d *Driver) room() (room, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return room{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil { //nolint:gosec // descriptors are small
		return room{}, err
	}
	size := stat.Bsize
	return room{
		total:    int64(stat.Blocks) * size,            //nolint:gosec // file systems are smaller
		used:     int64(stat.Blocks-stat.Bfree) * size, //nolint:gosec // file systems are smaller
		free:     int64(stat.Bavail) * size,            //nolint:gosec // file systems are smaller
		readOnly: stat.Flags&unix.ST_RDONLY != 0,
	}, nil
}

// EachVolume calls do with the volumes of the gateway, and with other files and folders that look like
// volumes.
func (d *Driver) EachVolume(ctx context.Context, do func(driver.Volume) error) error {
	if err := d.each(volumesFolder, func(e fs.DirEntry) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name := driver.Name{Pool: PoolName, Native: e.Name()}
		v, err := d.Volume(ctx, name)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil // it was deleted meanwhile, or is not the gateway's
		case err != nil:
			v = driver.Volume{Name: name, Used: -1, Damaged: true} // and the others are told all the same
		}
		return do(v)
	}); err != nil {
		return err
	}
	return d.each(".", func(e fs.DirEntry) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v, ok := d.foreign(e)
		if !ok {
			return nil
		}
		return do(v)
	})
}

// foreign returns what the gateway did not make as a volume, if it looks like one.
func (d *Driver) foreign(e fs.DirEntry) (v driver.Volume, ok bool) {
	name := e.Name()
	if own[name] || strings.HasPrefix(name, ".") {
		return v, false
	}
	info, err := d.root.Lstat(name)
	if err != nil {
		return v, false
	}
	v = driver.Volume{
		Name: driver.Name{Pool: PoolName, Native: name}, Kind: driver.Filesystem, Used: -1, Foreign: true,
	}
	switch ext := filepath.Ext(name); {
	case info.IsDir():
		return v, true
	case info.Mode().IsRegular() && (ext == ".img" || ext == ".raw"):
		v.Kind, v.Size, v.Used = driver.Block, info.Size(), allocated(info)
		return v, true
	}
	return v, false
}

// each calls do with the entries of one of the driver's folders.
func (d *Driver) each(name string, do func(fs.DirEntry) error) (err error) {
	folder, err := d.root.OpenRoot(name)
	if err != nil {
		return full(err)
	}
	return errors.Join(eachEntry(context.Background(), folder, do), folder.Close())
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Volumes   = (*Driver)(nil)
	_ driver.Snapshots = (*Driver)(nil)
	_ driver.Cloner    = (*Driver)(nil)
	_ driver.Copier    = (*Driver)(nil)
)
