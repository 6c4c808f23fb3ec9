// Package inventory tells of storage systems that the gateway does not speak to, such as a SAN or the disks of a cloud:
// what they have is in a file on the gateway's host, which somebody keeps up to date.
//
//	inventory.go   Driver: what the file tells, as any storage system tells it
//	file.go        reads and checks the file
//
// # Invariants
//
//   - Nothing is ever changed: a Driver has no methods for it. All volumes are foreign.
//   - The file is read anew for each question, and believed whole or not at all.
//   - The id in the file says which storage system it is about. Another one is refused.
//
// It imports driver.
package inventory

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Driver tells what is in a file.
type Driver struct {
	path string
	id   string
}

// Open opens a file, which must be about the storage system with an id if one is given: another is a fault of kind
// Conflict. A file that cannot be read or is not valid is one of kind Unavailable, which names what is wrong with it.
func Open(path, id string) (*Driver, error) {
	d := &Driver{path: path, id: id}
	content, err := d.read()
	if err != nil {
		return nil, err
	}
	d.id = content.id
	return d, nil
}

// read reads the file.
func (d *Driver) read() (*content, error) {
	c, err := readFile(d.path)
	if err != nil {
		return nil, err
	}
	if d.id != "" && c.id != d.id {
		return nil, fault.New(fault.Conflict, "its file is about another storage system than before: its id is %q, not %q", c.id, d.id)
	}
	return c, nil
}

// Close does nothing: a Driver holds nothing.
func (d *Driver) Close() error { return nil }

// Capabilities returns none.
func (d *Driver) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// Inspect returns what the file tells about the storage system and its pools, which hold the room of all.
func (d *Driver) Inspect(ctx context.Context) (driver.Cluster, error) {
	c, err := d.read()
	if err != nil {
		return driver.Cluster{}, err
	}
	out := driver.Cluster{NativeID: c.id, Name: c.name, Health: c.health, Summary: c.summary, Pools: c.pools}
	for _, p := range c.pools {
		out.Raw += p.Max
		out.Used += p.Used
	}
	out.Available = out.Raw - out.Used
	return out, context.Cause(ctx)
}

// EachVolume calls do with the volumes in the file.
func (d *Driver) EachVolume(ctx context.Context, do func(driver.Volume) error) error {
	c, err := d.read()
	if err != nil {
		return err
	}
	for _, v := range c.volumes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := do(v); err != nil {
			return err
		}
	}
	return nil
}

var _ driver.Driver = (*Driver)(nil)
