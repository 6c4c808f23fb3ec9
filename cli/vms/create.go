package vms

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

// maxUserData is the maximum size of a file of --user-data, maxKey that of --ssh-key, in bytes.
const (
	maxUserData = 64 << 10
	maxKey      = 8 << 10
)

func (s commands) create() *cobra.Command {
	var network, userData, hostname string
	memory, disk := input.MiB(), input.GiB()
	var publish spec.Ports
	var image, description, backend, node string
	var cpus int
	var labels verb.Pairs
	var tags, keys []string
	var autostart, protect bool
	cmd := s.Command(verb.Verb{
		Use: "create NAME", Short: "Make a VM, which is stopped",
		Long: `Make a VM. The answer comes as soon as the VM is recorded; the hypervisor daemon makes it in a job, which
'mainstay vms job list' shows. If that fails, 'mainstay vms show NAME' says why, and the next start tries again.`,
		Example: "  mainstay vms create web --image demo\n" +
			"  mainstay vms create web --image debian-12 --cpus 2 --memory 2G --disk 20G --ssh-key id_ed25519.pub --hostname web\n" +
			"  mainstay vms create db --image debian-12 --tenant acme --tag prod --label role=db --protected\n" +
			"  mainstay vms create site --image debian-12 --publish 30080:80",
		Required: []string{"image"},
	}, func(ctx context.Context, c *call) (err error) {
		request := vmapi.VMSpec{
			Name: c.Args[0], Image: image, Cpus: verb.Given(c, "cpus", cpus), Tenant: s.of(), Description: verb.Given(c, "description", description),
			Autostart: verb.Given(c, "autostart", autostart), Protected: verb.Given(c, "protected", protect),
			Node:    verb.Given(c, "node", node),
			Backend: verb.Given(c, "backend", vmapi.VMSpecBackend(backend)),
		}
		request.Memory, request.Disk = verb.Given(c, "memory", memory.Count), verb.Given(c, "disk", disk.Count)
		if len(labels) > 0 {
			request.Labels = new(vmapi.Labels(labels))
		}
		if len(tags) > 0 {
			request.Tags = &tags
		}
		if network != "" {
			mode, bridge, _ := strings.Cut(network, ":")
			request.Network = &vmapi.Network{Mode: new(vmapi.NetworkMode(mode))}
			if bridge != "" {
				request.Network.Bridge = &bridge
			}
		}
		if len(publish) > 0 {
			if request.Network == nil {
				request.Network = &vmapi.Network{}
			}
			request.Network.Forwards = forwards(publish)
		}
		if request.CloudInit, err = cloudInit(userData, hostname, keys); err != nil {
			return err
		}
		a, err := c.Send(c.API.CreateVM(ctx, request))
		vm, err := decode[vmapi.VM](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "Made the VM %s; 'mainstay vms start %s' starts it.", vm.Name, vm.Name)
	})
	f := cmd.Flags()
	f.StringVar(&image, "image", "", "image of the catalog; for admins also a path on the host")
	f.IntVar(&cpus, "cpus", 1, "number of processors")
	f.Var(&memory, "memory", "memory, in MiB or with a unit: 512, 2G (default 512)")
	f.Var(&disk, "disk", "size of the disk, in GiB or with a unit: 20, 20G (default: that of the image)")
	f.StringVar(&network, "network", "", "user, none, or bridge:NAME (default user)")
	f.Var(&publish, "publish", spec.Publish)
	f.StringVar(&backend, "backend", "auto", "what runs it: auto, qemu, sandbox, firecracker or cloud-hypervisor")
	f.StringVar(&node, "node", "", "host of the fleet to make it on")
	f.Var(&labels, "label", "label KEY=VALUE; may be repeated")
	f.StringSliceVar(&tags, "tag", nil, "tag; may be repeated")
	f.StringVar(&description, "description", "", "what it is for")
	f.BoolVar(&autostart, "autostart", false, "start it with its host")
	f.BoolVar(&protect, "protected", false, "it cannot be deleted until that is taken back")
	f.StringVar(&userData, "user-data", "", "file with user data for cloud-init; - is standard input")
	f.StringVar(&hostname, "hostname", "", "the guest's host name, set by cloud-init")
	f.StringArrayVar(&keys, "ssh-key", nil, "file with a public key that cloud-init lets log in; may be repeated")
	return cmd
}

func forwards(ports spec.Ports) *[]vmapi.Forward {
	out := make([]vmapi.Forward, len(ports))
	for i, p := range ports {
		out[i] = vmapi.Forward{
			Protocol: new(vmapi.ForwardProtocol(p.Protocol)), HostPort: p.Host, GuestPort: p.Guest,
		}
		if p.HostAddress != "" {
			out[i].HostAddress = &p.HostAddress
		}
	}
	return &out
}

func cloudInit(userData, hostname string, keys []string) (*vmapi.CloudInit, error) {
	if userData == "" && hostname == "" && len(keys) == 0 {
		return nil, nil
	}
	var out vmapi.CloudInit
	if userData != "" {
		text, err := verb.ReadText("user-data", userData, maxUserData)
		if err != nil {
			return nil, err
		}
		out.UserData = &text
	}
	if hostname != "" {
		out.Hostname = &hostname
	}
	for _, file := range keys {
		text, err := verb.ReadText("ssh-key", file, maxKey)
		if err != nil {
			return nil, err
		}
		if out.SshAuthorizedKeys == nil {
			out.SshAuthorizedKeys = &[]string{}
		}
		*out.SshAuthorizedKeys = append(*out.SshAuthorizedKeys, strings.TrimSpace(text))
	}
	return &out, nil
}

func (s commands) set() *cobra.Command {
	var labels verb.Pairs
	var tags []string
	var name, description string
	var cpus int
	var autostart, protect bool
	memory := input.MiB()
	cmd := s.Change(verb.Verb{
		Use: "set VM", Short: "Change a VM: its name, size, labels, tags, description, autostart or protection",
		Long: `Change a VM. Processors and memory of a VM that runs change with its next start; 'mainstay vms show VM' says under
PENDING which wait for that.`,
		Example: "  mainstay vms set web --cpus 4 --memory 8G\n  mainstay vms set web --name www\n  mainstay vms set web --tag prod --tag web\n  mainstay vms set web --protected=false\n  mainstay vms set web --label role=web --label stage=prod",
		Check: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{
				"name", "cpus", "memory", "label", "tag", "description", "autostart", "protected",
			} {
				if cmd.Flags().Changed(flag) {
					return nil
				}
			}
			return exit.Usagef("nothing to change: give at least one of --name, --cpus, --memory, --label, --tag, " +
				"--description, --autostart, --protected")
		},
	}, "Changed the VM %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		change := vmapi.VMChange{
			Name: verb.Given(c, "name", name), Cpus: verb.Given(c, "cpus", cpus),
			Memory:      verb.Given(c, "memory", memory.Count),
			Description: verb.Given(c, "description", description), Autostart: verb.Given(c, "autostart", autostart),
			Protected: verb.Given(c, "protected", protect), Tags: verb.Given(c, "tag", tags),
		}
		if len(labels) > 0 {
			change.Labels = new(vmapi.Labels(labels))
		}
		return c.API.UpdateVM(ctx, c.Args[0], &vmapi.UpdateVMParams{Tenant: s.of()}, change)
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "new name; the guest keeps its host name")
	f.IntVar(&cpus, "cpus", 0, "number of processors")
	f.Var(&memory, "memory", "memory, in MiB or with a unit: 512, 2G")
	f.Var(&labels, "label", "label KEY=VALUE, in place of all labels; may be repeated")
	f.StringSliceVar(&tags, "tag", nil, "tag, in place of all tags; may be repeated")
	f.StringVar(&description, "description", "", "what it is for")
	f.BoolVar(&autostart, "autostart", false, "start it with its host")
	f.BoolVar(&protect, "protected", false, "it cannot be deleted until that is taken back")
	return cmd
}

func (s commands) clone() *cobra.Command {
	var linked bool
	cmd := s.Change(verb.Verb{
		Use: "clone VM NAME", Short: "Make a VM with a copy of another one's disk",
		Example: "  mainstay vms clone web web-2\n  mainstay vms clone template web-3 --linked",
	}, "Made the VM %s; a job copies the disk.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CloneVM(ctx, c.Args[0], &vmapi.CloneVMParams{Tenant: s.of()},
			vmapi.CloneSpec{TargetName: c.Args[1], LinkedClone: &linked})
	})
	cmd.Flags().BoolVar(&linked, "linked", false, "share what neither changes; takes a stopped VM")
	return cmd
}

func (s commands) delete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete VM", Short: "Remove a VM with its disks and snapshots",
		Example: "  mainstay vms delete web\n  mainstay vms delete web --tenant acme --yes",
	}, "Delete the VM %s with its disks and snapshots?", "Deleted the VM %s.",
		func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DeleteVM(ctx, c.Args[0], &vmapi.DeleteVMParams{Tenant: s.of()})
		})
}
