package driver

import (
	"context"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Node is a host of a fleet.
type Node struct {
	Name    string
	Healthy bool
}

// Nodes lists the hosts of the fleet.
func (d *Driver) Nodes(ctx context.Context) ([]Node, error) {
	list, err := call[[]hypervisorapi.Node](ctx, d, Place{}, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) { return c.ListNodes(ctx) })
	nodes := make([]Node, len(list))
	for i, n := range list {
		nodes[i] = Node{n.Name, n.Healthy}
	}
	return nodes, err
}

// List is what the daemon, or the daemons of a fleet, tell about all VMs.
type List struct {
	VMs         map[string]record.Seen // by the id in this service; those that it did not make are left out
	Unreachable map[string]string      // why hosts of a fleet did not answer, by name
}

// List lists all VMs that this service has made.
func (d *Driver) List(ctx context.Context) (List, error) {
	out := List{VMs: map[string]record.Seen{}, Unreachable: map[string]string{}}
	if d.cfg.Fleet {
		return out, d.listFleet(ctx, out)
	}
	const page = 500
	limit := page
	for cursor := ""; ; {
		c, err := d.at("")
		if err != nil {
			return out, err
		}
		params := hypervisorapi.ListVMsParams{Limit: &limit}
		if cursor != "" {
			params.Cursor = &cursor
		}
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		response, err := c.ListVMs(ctx, &params)
		if response != nil {
			cursor = rest.NextCursor(response.Header)
		}
		vms, err := rest.Do[[]hypervisorapi.VM](response, err)
		err = d.translate(ctx, Place{}, err)
		cancel()
		if err != nil {
			return out, err
		}
		for i := range vms {
			if id := vms[i].Labels[Label]; id != "" {
				if out.VMs[id], err = seenOf(&vms[i], ""); err != nil {
					return out, err
				}
			}
		}
		if cursor == "" || len(vms) == 0 {
			return out, nil
		}
	}
}

func (d *Driver) listFleet(ctx context.Context, out List) error {
	all, err := call[hypervisorapi.FleetVMs](ctx, d, Place{}, 2*readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) { return c.ListFleetVMs(ctx) })
	if err != nil {
		return err
	}
	for _, n := range all.UnreachableNodes {
		out.Unreachable[n.Node] = n.Reason
	}
	for i := range all.Items {
		if id := all.Items[i].Labels[Label]; id != "" {
			if out.VMs[id], err = seenOfFleet(&all.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Ready fails if the daemon does not answer this service's token. It returns what it answers as, for
// people.
func (d *Driver) Ready(ctx context.Context) (string, error) {
	if d.cfg.Fleet {
		nodes, err := d.Nodes(ctx)
		if err != nil {
			return "", err
		}
		return "a fleet of " + plural(len(nodes), "host"), nil
	}
	host, err := call[hypervisorapi.Host](ctx, d, Place{}, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) { return c.GetHost(ctx) })
	return "host " + host.Name, err
}
