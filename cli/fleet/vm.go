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
	cmd := verb.Group(
		"vm", "VMs of all hosts: list, create, delete", "  mainstay fleet vm list\n  mainstay fleet vm create web --image demo",
	)
	cmd.AddCommand(s.vmList(), s.vmCreate(), s.vmDelete())
	return cmd
}

func (s commands) vmList() *cobra.Command {
	var node string
	var limit verb.Limit
	cmd := s.Command(verb.Verb{
		Use:     "list",
		Short:   "List the VMs of all hosts, or of one",
		Long:    "List the VMs of all hosts that answer in time, or of one. Hosts that do not answer are told of; the exit code is 1 then.",
		Example: "  mainstay fleet vm list\n  mainstay fleet vm list --node host-3 -o json",
		Check:   limit.Check,
	}, func(ctx context.Context, c *daemon.Call) error {
		if node != "" {
			items, err := daemon.Decode[[]json.RawMessage](c.Send(c.API.ListNodeVMs(ctx, node)))
			if err != nil {
				return err
			}
			return table(c, items, &limit)
		}
		return all(ctx, c, &limit)
	})
	cmd.Flags().StringVar(&node, "node", "", "only those of this host")
	limit.AddFlags(cmd)
	return cmd
}

// table prints a list, which the API does not split into pages.
func table(c *daemon.Call, items []json.RawMessage, limit *verb.Limit) error {
	l := output.NewList(c.Out, columns())
	some := limit.Of(items)
	if err := l.Page(some); err != nil {
		return err
	}
	if len(some) < len(items) {
		c.More()
	}
	return l.Close()
}

// all lists the VMs of all hosts. It reports unreachable hosts, so that their VMs are not mistaken
// for missing ones.
func all(ctx context.Context, c *daemon.Call, limit *verb.Limit) error {
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
	list := func() error { return table(c, v.Items, limit) }
	if c.Out.Short() {
		err = list() // the VMs, not the answer that holds them
	} else {
		err = c.Out.ObjectAs(a.Body, list)
	}
	if err != nil {
		return err
	}
	for _, u := range v.Unreachable {
		c.Note("The host %s does not answer: %s", u.Node, u.Reason)
	}
	if n := len(v.Unreachable); n > 0 {
		return exit.Hinted(
			fmt.Errorf("the list is not complete: %d of the hosts did not answer", n),
			"'mainstay fleet node list' shows when each was last heard of",
		)
	}
	return nil
}

func (s commands) vmCreate() *cobra.Command {
	var flags spec.Flags
	var on string
	var selector verb.Pairs
	cmd := s.Command(verb.Verb{
		Use:   "create NAME",
		Short: "Make a VM on the host with most room, or on one that is named",
		Long: `Make a VM on the host with most room among those that are healthy, are not cordoned and have the labels of --selector; or
with --on on that host, even if it is cordoned. It is stopped unless --start is given.`,
		Example: "  mainstay fleet vm create web --image debian-12 --vcpus 2 --memory 2G --start\n" +
			"  mainstay fleet vm create web --image debian-12 --selector disk=nvme --selector rack=a\n  mainstay fleet vm create web --file web.yaml --on host-3",
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

func (s commands) vmDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete NODE VM", Short: "Stop a VM of a host at once and remove it with its disks",
		Example: "  mainstay fleet vm delete host-3 web\n  mainstay fleet vm delete host-3 web --yes",
	}, "Delete the VM %s with its disks and snapshots?", "Deleted the VM %s.", func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		on := c.Args[0]
		vm, err := c.Find(ctx, &verb.Kind[*hypervisorapi.Client]{
			What: "VM on " + on, Listed: "mainstay fleet vm list",
			List: func(ctx context.Context, c *daemon.Call, _ verb.Page) (*http.Response, error) {
				return c.API.ListNodeVMs(ctx, on)
			},
			Object: verb.As(&daemon.Service, func(vm hypervisorapi.FleetVM) verb.Object {
				return verb.Object{ID: vm.Id, Name: vm.Name, Owner: fmt.Sprintf("tenant %q", vm.Tenant)}
			}),
		}, c.Args[1], true)
		if err != nil {
			return nil, err
		}
		return c.Slow.DeleteFleetVM(ctx, on, vm.ID)
	})
}
