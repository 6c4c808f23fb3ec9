package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

func columns() output.Columns[hypervisorapi.FleetVM] {
	return output.Columns[hypervisorapi.FleetVM]{
		Heads: []string{"NODE", "NAME", "STATE", "BACKEND", "VCPUS", "MEMORY", "IPS", "IMAGE", "TENANT", "ID"},
		Row: func(v hypervisorapi.FleetVM) []any {
			return []any{
				v.Node, v.Name, v.State, v.Backend, v.Vcpus, fmt.Sprintf("%d MiB", v.MemoryMib), v.Ips, v.Image,
				v.Tenant, v.Id,
			}
		},
	}
}

func (s commands) vms() *cobra.Command {
	var node string
	cmd := s.Command(verb.Verb{
		Use:     "vms",
		Short:   "List the VMs of all hosts, or of one",
		Long:    "List the VMs of all hosts that answer in time, or of one. Hosts that do not answer are told of; the exit code is 1 then.",
		Example: "  mainstay fleet vms\n  mainstay fleet vms --node host-3 -o json",
	}, func(ctx context.Context, c *daemon.Call) error {
		if node != "" {
			items, err := daemon.Decode[[]json.RawMessage](c.Send(c.API.ListNodeVMs(ctx, node)))
			if err != nil {
				return err
			}
			return table(c, items)
		}
		return all(ctx, c)
	})
	cmd.Flags().StringVar(&node, "node", "", "only those of this host")
	return cmd
}

func table(c *daemon.Call, items []json.RawMessage) error {
	l := output.NewList(c.Out, columns())
	if err := l.Page(items); err != nil {
		return err
	}
	return l.Close()
}

// all lists the VMs of all hosts. It reports unreachable hosts, so that their VMs are not mistaken
// for missing ones.
func all(ctx context.Context, c *daemon.Call) error {
	a, err := c.Send(c.API.ListFleetVMs(ctx))
	v, err := daemon.Decode[struct {
		Items       []json.RawMessage `json:"items"`
		Unreachable []struct {
			Node   string `json:"node"`
			Reason string `json:"reason"`
		} `json:"unreachable_nodes"`
	}](a, err)
	if err != nil {
		return err
	}
	if err := c.Out.ObjectAs(a.Body, func() error { return table(c, v.Items) }); err != nil {
		return err
	}
	for _, u := range v.Unreachable {
		c.Note("The host %s does not answer: %s", u.Node, u.Reason)
	}
	if n := len(v.Unreachable); n > 0 {
		return exit.Hinted(
			fmt.Errorf("the list is not complete: %d of the hosts did not answer", n),
			"'mainstay fleet nodes' shows when each was last heard of",
		)
	}
	return nil
}

func (s commands) create() *cobra.Command {
	var flags spec.Flags
	var on string
	var selector verb.Pairs
	cmd := s.Command(verb.Verb{
		Use:   "create NAME",
		Short: "Make a VM on the host with most room, or on one that is named",
		Long: `Make a VM on the host with most room among those that are healthy, are not cordoned and have the labels of --selector; or
with --on on that host, even if it is cordoned. It is stopped unless --start is given.`,
		Example: "  mainstay fleet create web --image debian-12 --vcpus 2 --memory 2G --start\n" +
			"  mainstay fleet create web --image debian-12 --selector disk=nvme --selector rack=a\n  mainstay fleet create web --file web.yaml --on host-3",
	}, func(ctx context.Context, c *daemon.Call) error {
		request, err := fleetSpec(c, &flags)
		if err != nil {
			return err
		}
		request.Node = verb.Given(c, "on", on)
		if len(selector) > 0 {
			request.NodeSelector = new(hypervisorapi.Labels(selector))
		}
		var a daemon.Answer
		if err := c.While(ctx, "Making "+request.Name, func() (err error) {
			a, err = c.Send(c.Slow.CreateFleetVM(ctx, request))
			return err
		}); err != nil {
			return err
		}
		v, err := daemon.Decode[hypervisorapi.FleetVM](a, nil)
		if err != nil {
			return err
		}
		return c.Done(a, "Made the VM %s (%s) on %s; it is %s.", v.Name, v.Id, v.Node, v.State)
	})
	flags.Add(cmd)
	cmd.Flags().StringVar(&on, "on", "", "make it on this host")
	cmd.Flags().Var(&selector, "selector", "label that the host must have; may be repeated")
	return cmd
}

// fleetSpec returns the request for a VM of the fleet, whose fields are those of a VM and some
// more.
func fleetSpec(c *daemon.Call, flags *spec.Flags) (request hypervisorapi.FleetVMSpec, err error) {
	vm, err := flags.Spec(c, c.Args[0])
	if err != nil {
		return request, err
	}
	raw, err := json.Marshal(vm)
	if err != nil {
		return request, err
	}
	return request, json.Unmarshal(raw, &request)
}

func (s commands) delete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete NODE ID", Short: "Stop a VM of a host at once and remove it with its disks",
		Example: "  mainstay fleet delete host-3 01a1ffb2-9bef-7321-a91e-62ae3461c2bb --yes",
	}, "Delete the VM %s with its disks and snapshots?", "Deleted the VM %s.", func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		return c.Slow.DeleteFleetVM(ctx, c.Args[0], c.Args[1])
	})
}
