//go:build linux

package directory

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// DiscardVolume moves a volume to where those are that can be brought back. Nothing else removes what is there.
func (d *Driver) DiscardVolume(_ context.Context, n driver.Name, _ time.Duration) error {
	return d.put(n, volumes, deleted)
}

// UndeleteVolume brings a volume back.
func (d *Driver) UndeleteVolume(ctx context.Context, n driver.Name) (driver.Volume, error) {
	if err := d.put(n, deleted, volumes); err != nil {
		return driver.Volume{}, err
	}
	return d.Volume(ctx, n)
}

// put moves a volume from one shelf to another. If an earlier attempt has done so, it does nothing.
func (d *Driver) put(n driver.Name, from, to shelf) error {
	if err := errors.Join(from.check(n), d.same()); err != nil {
		return err
	}
	err := d.root.Rename(path.Join(from.folder, n.Native), path.Join(to.folder, n.Native))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := d.root.Lstat(path.Join(to.folder, n.Native)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return from.errNone(n.Native)
	case errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY):
		return errTwo(n)
	case err != nil:
		return full(err)
	}
	return errors.Join(syncFolder(d.root, to.folder), syncFolder(d.root, from.folder))
}

func errTwo(n driver.Name) error {
	return fault.New(fault.Conflict, "the storage has two volumes %s; move one of them away", n.Native)
}

// replacedBy returns a fault of kind Conflict if what others have made is in the place of a volume, which must not be
// removed with it.
func (d *Driver) replacedBy(n driver.Name) error {
	folder, _, err := d.open(volumes, n)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Conflict, "%s/%s is not a volume; move it away", volumes.folder, n.Native)
	case err != nil:
		return nil // a damaged volume may be removed
	}
	if err := folder.Close(); err != nil {
		return err
	}
	if _, err := d.root.Lstat(path.Join(deleted.folder, n.Native)); err == nil {
		return errTwo(n)
	}
	return nil
}

// ReplaceVolume removes a volume, and renames another one to it. A repeated call goes on.
func (d *Driver) ReplaceVolume(_ context.Context, n, by driver.Name) error {
	if err := errors.Join(volumes.check(n), volumes.check(by), d.same()); err != nil {
		return err
	}
	fresh := path.Join(volumes.folder, by.Native)
	if _, err := d.root.Lstat(fresh); errors.Is(err, fs.ErrNotExist) {
		folder, _, err := d.open(volumes, n) // an earlier call may have done this
		if err != nil {
			return err
		}
		return folder.Close()
	}
	if err := d.remove(volumes, n); err != nil {
		return err
	}
	if err := d.root.Rename(fresh, path.Join(volumes.folder, n.Native)); err != nil {
		return full(err)
	}
	return syncFolder(d.root, volumes.folder)
}
