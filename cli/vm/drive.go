package vm

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

func (s commands) diskAdd() *cobra.Command {
	size, image, serial, readOnly := input.GiB(), "", "", false
	var limit spec.DiskLimits
	cmd := s.Command(verb.Verb{
		Use:   "add VM NAME",
		Short: "Make a disk and attach it, also while the VM runs",
		Long: `Make a disk and attach it. A VM that boots firmware sees it at once; one that boots a kernel sees it with its next start. A
Linux guest has the disk at /dev/disk/by-id/virtio-NAME. With --image, the disk is a copy of an image of the catalog.`,
		Example: "  mainstay vm disk add web data --size 50G\n  mainstay vm disk add web tools --image tools --read-only\n" +
			"  mainstay vm disk add web scratch --size 100G --iops 500 --bytes-per-second 50000000",
		Check: func(cmd *cobra.Command, _ []string) error {
			if size.Count == 0 && image == "" {
				return exit.Usagef("give the disk a --size, or an --image that it is a copy of")
			}
			return nil
		},
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.Slow.CreateDisk(ctx, id, hypervisorapi.DiskSpec{
			Name: c.Args[1], SizeGib: verb.Given(c, "size", size.Count), Image: verb.Given(c, "image", image),
			ReadOnly: verb.Given(c, "read-only", readOnly), Serial: verb.Given(c, "serial", serial),
			Iops: verb.Given(c, "iops", limit.IOPS), BytesPerSecond: verb.Given(c, "bytes-per-second", limit.BytesPerSecond),
		}))
		d, err := daemon.Decode[hypervisorapi.Disk](a, err)
		if err != nil {
			return err
		}
		if d.State == hypervisorapi.DiskStatePending {
			return c.Done(a, "Made the disk %s of %d GiB; restart %s to attach it.", d.Name, d.SizeGib, c.Args[0])
		}
		return c.Done(a, "Attached the disk %s of %d GiB.", d.Name, d.SizeGib)
	})
	cmd.Flags().Var(&size, "size", "size, in GiB or with a unit; left out with --image: as large as the image")
	cmd.Flags().StringVar(&image, "image", "", "image of the catalog that the disk is a copy of")
	cmd.Flags().StringVar(&serial, "serial", "", "serial number that the guest sees, at most 20 characters; left out: the name")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "the guest cannot write to it")
	limit.Add(cmd)
	return cmd
}

func (s commands) diskList() *cobra.Command {
	return verb.List(
		s.Session,
		verb.Verb{Use: "list VM", Short: "List the disks of a VM, the system disk first", Example: "  mainstay vm disk list web"},
		output.Columns[hypervisorapi.Disk]{
			Heads: []string{"NAME", "GIB", "STATE", "SERIAL", "READ-ONLY", "IOPS", "BYTES/S", "IMAGE"},
			Row: func(d hypervisorapi.Disk) []any {
				image := ""
				if d.Image != nil {
					image = *d.Image
				}
				return []any{
					d.Name, d.SizeGib, d.State, d.Serial, d.ReadOnly, spec.Limit(d.Iops), spec.Limit(d.BytesPerSecond), image,
				}
			},
		},
		func(ctx context.Context, c *daemon.Call, _ verb.Page) (*http.Response, error) {
			id, err := daemon.VMID(ctx, c, c.Args[0])
			if err != nil {
				return nil, err
			}
			return c.API.ListDisks(ctx, id)
		},
	)
}

func (s commands) diskShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show VM NAME", Short: "Show a disk of a VM", Example: "  mainstay vm disk show web data",
	}, daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		return c.API.GetDisk(ctx, id, c.Args[1])
	}))
}

func (s commands) diskResize() *cobra.Command {
	size := input.GiB()
	return s.Command(verb.Verb{
		Use: "resize VM NAME SIZE", Short: "Make a disk larger, also while the VM runs",
		Long: "Make a disk larger, also while the VM runs. SIZE is in GiB, or has a unit: 40, 40G, 1T. " +
			"The system disk has the name system.",
		Example: "  mainstay vm disk resize web data 100\n  mainstay vm disk resize web system 40G",
	}, func(ctx context.Context, c *daemon.Call) error {
		if err := size.Set(c.Args[2]); err != nil {
			return exit.Usagef("SIZE %w", err)
		}
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.Slow.ChangeDisk(ctx, id, c.Args[1], hypervisorapi.DiskPatch{SizeGib: &size.Count}))
		if err != nil {
			return err
		}
		return c.Done(a, "The disk %s of %s has %d GiB.", c.Args[1], c.Args[0], size.Count)
	})
}

func (s commands) diskLimit() *cobra.Command {
	var limit spec.DiskLimits
	cmd := s.Command(verb.Verb{
		Use: "limit VM NAME", Short: "Limit what a VM does with a disk, at once",
		Long: "Limit what a VM does with a disk, at once, also while it runs. What is not given stays as it is. " +
			"The system disk has the name system.",
		Example: "  mainstay vm disk limit web data --iops 500\n  mainstay vm disk limit web system --iops 0 --bytes-per-second 50000000",
		Check: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("iops") && !cmd.Flags().Changed("bytes-per-second") {
				return exit.Usagef("give --iops, --bytes-per-second, or both")
			}
			return nil
		},
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.Slow.ChangeDisk(ctx, id, c.Args[1], hypervisorapi.DiskPatch{
			Iops: verb.Given(c, "iops", limit.IOPS), BytesPerSecond: verb.Given(c, "bytes-per-second", limit.BytesPerSecond),
		}))
		if err != nil {
			return err
		}
		return c.Done(a, "Changed the limits of the disk %s of %s.", c.Args[1], c.Args[0])
	})
	limit.Add(cmd)
	return cmd
}

func (s commands) diskRemove() *cobra.Command {
	var yes bool
	cmd := s.Command(verb.Verb{
		Use: "remove VM NAME", Short: "Detach a disk and remove it with what it holds",
		Long: `Detach a disk and remove it with what it holds. Unmount it in the guest first. A VM that boots a kernel keeps the disk until
it stops.`,
		Example: "  mainstay vm disk remove web data\n  mainstay vm disk remove web data --yes",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.ExactVMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		if err := c.Confirm("Remove the disk "+c.Args[1]+" of "+c.Args[0]+"? What it holds is lost.", yes); err != nil {
			return err
		}
		a, err := c.Send(c.Slow.RemoveDisk(ctx, id, c.Args[1]))
		vm, err := daemon.Decode[hypervisorapi.VM](a, err)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(vm.Disks, func(d hypervisorapi.Disk) bool { return d.Name == c.Args[1] }) {
			return c.Done(a, "The disk %s is removed when %s stops.", c.Args[1], c.Args[0])
		}
		return c.Done(a, "Removed the disk %s.", c.Args[1])
	})
	verb.YesFlag(cmd, &yes)
	return cmd
}

func (s commands) cd() *cobra.Command {
	cmd := verb.Group("cd", "The CD drive of a VM: insert an ISO image, eject it",
		"  mainstay vm cd insert web debian-12-iso\n  mainstay vm cd eject web")
	cmd.AddCommand(s.cdInsert(), s.cdEject())
	return cmd
}

func (s commands) cdInsert() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "insert VM IMAGE", Short: "Put an image of the catalog into the CD drive",
		Long: `Put an image of the catalog, such as an ISO image, into the CD drive, in place of what is there. A VM that boots firmware sees
it at once, and boots it if the system disk does not boot. One that boots a kernel sees it with its next start.`,
		Example: "  mainstay image add debian-12-iso /srv/debian-12.iso\n  mainstay vm cd insert web debian-12-iso",
	}, s.medium(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		return c.API.InsertCD(ctx, id, hypervisorapi.CDSpec{Image: c.Args[1]})
	}, "The CD of %s is %s", func(c *daemon.Call) []any { return []any{c.Args[0], c.Args[1]} }))
}

func (s commands) cdEject() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "eject VM", Short: "Take the CD out of the drive", Example: "  mainstay vm cd eject web",
	}, s.medium(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		return c.API.EjectCD(ctx, id)
	}, "The CD drive of %s is empty", func(c *daemon.Call) []any { return []any{c.Args[0]} }))
}

// medium changes what is in the CD drive, and says whether that waits for the next start.
func (commands) medium(
	send func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error),
	sentence string, words func(c *daemon.Call) []any,
) func(ctx context.Context, c *daemon.Call) error {
	return func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(send(ctx, c, id))
		vm, err := daemon.Decode[hypervisorapi.VM](a, err)
		if err != nil {
			return err
		}
		say := sentence
		if slices.Contains(vm.Pending, "cd") {
			say = strings.Replace(say, " is ", " will be ", 1) + " with its next start"
		}
		return c.Done(a, say+".", words(c)...)
	}
}
