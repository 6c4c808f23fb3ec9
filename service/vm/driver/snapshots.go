package driver

import (
	"context"
	"net/http"
	"strconv"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Snapshot takes a snapshot of a VM under an id, or returns the one that an earlier call has taken.
// It returns the bytes of memory that a full one keeps.
func (d *Driver) Snapshot(ctx context.Context, at Place, id, description string, full bool) (int64, error) {
	all, err := call[[]hypervisorapi.Snapshot](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.ListSnapshots(ctx, at.ID)
		})
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Name == id {
			return s.MemoryBytes, nil
		}
	}
	kind := hypervisorapi.SnapshotKindDisk
	if full {
		kind = hypervisorapi.SnapshotKindFull
	}
	s, err := call[hypervisorapi.Snapshot](ctx, d, at, workTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.CreateSnapshot(ctx, at.ID, hypervisorapi.SnapshotSpec{Name: id, Kind: &kind, Description: &description})
		})
	return s.MemoryBytes, err
}

// DeleteSnapshot removes a snapshot. It succeeds if there is none.
func (d *Driver) DeleteSnapshot(ctx context.Context, at Place, id string) error {
	c, err := d.at(at.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(forTenant(ctx, at.Tenant), workTimeout)
	defer cancel()
	_, err = rest.Read(c.DeleteSnapshot(ctx, at.ID, id))
	if err = d.translate(ctx, at, err); fault.Is(err, fault.NotFound) && codeOf(err) != CodeUnknownNode {
		return nil
	}
	return err
}

// Revert returns a VM to a snapshot.
func (d *Driver) Revert(ctx context.Context, at Place, id string) error {
	_, err := call[hypervisorapi.VM](ctx, d, at, workTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.RevertSnapshot(ctx, at.ID, id, hypervisorapi.Nothing{})
		})
	return err
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
