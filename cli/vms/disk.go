package vms

import (
	"context"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

func (s commands) disks() *cobra.Command {
	cmd := verb.Group("disk", "The disks of a VM: add, list, resize, limit, remove",
		"  mainstay vms disk add web data --size 50G\n  mainstay vms disk list web", "disks")
	cmd.AddCommand(s.diskAdd(), s.diskList(), s.diskResize(), s.diskLimit(), s.diskRemove())
	return cmd
}

func (s commands) diskAdd() *cobra.Command {
	size, image, readOnly := input.GiB(), "", false
	var limit spec.DiskLimits
	cmd := s.Command(verb.Verb{
		Use:   "add VM NAME",
		Short: "Make a disk and attach it, also while the VM runs",
		Long: `Make a disk and attach it. It counts for the tenant's quota. A VM that boots its disk sees the new one at once,
one that boots a kernel from the catalog from its next start on. A Linux guest has the disk at
/dev/disk/by-id/virtio-NAME. With --image, the disk is a copy of an image. Backups hold the system disk only.
Admins without a tenant may limit it.`,
		Example: "  mainstay vms disk add web data --size 50G\n  mainstay vms disk add web tools --size 2G --image tools --read-only",
		Check: func(*cobra.Command, []string) error {
			if size.Count == 0 {
				return exit.Usagef("give the disk a --size")
			}
			return nil
		},
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.Slow.AddDisk(ctx, c.Args[0], &vmapi.AddDiskParams{Tenant: s.of()}, vmapi.DiskSpec{
			Name: c.Args[1], Size: size.Count, Image: verb.Given(c, "image", image),
			ReadOnly: verb.Given(c, "read-only", readOnly), Iops: verb.Given(c, "iops", limit.IOPS),
			BytesPerSecond: verb.Given(c, "bytes-per-second", limit.BytesPerSecond),
		}))
		d, err := decode[vmapi.Disk](a, err)
		if err != nil {
			return err
		}
		if d.State == vmapi.DiskStatePending {
			return c.Done(a, "Made the disk %s of %d GiB; restart %s to attach it.", d.Name, d.Size, c.Args[0])
		}
		return c.Done(a, "Attached the disk %s of %d GiB.", d.Name, d.Size)
	})
	cmd.Flags().Var(&size, "size", "size, in GiB or with a unit: 20, 20G, 1T")
	cmd.Flags().StringVar(&image, "image", "", "image that the disk is a copy of")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "the guest cannot write to it")
	limit.Add(cmd)
	return cmd
}

func (s commands) diskList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list VM", Short: "List the disks of a VM, the system disk first", Example: "  mainstay vms disk list web",
	}, output.Columns[vmapi.Disk]{
		Heads: []string{"NAME", "GIB", "STATE", "SERIAL", "READ-ONLY", "IOPS", "BYTES/S", "IMAGE"},
		Row: func(d vmapi.Disk) []any {
			return []any{
				d.Name, d.Size, d.State, d.Serial, d.ReadOnly, spec.Limit(d.Iops), spec.Limit(d.BytesPerSecond), d.Image,
			}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.API.ListDisks(ctx, c.Args[0], &vmapi.ListDisksParams{Tenant: s.of()})
	})
}

func (s commands) diskResize() *cobra.Command {
	size := input.GiB()
	return s.Command(verb.Verb{
		Use: "resize VM NAME SIZE", Short: "Make a disk larger, also while the VM runs",
		Long: "Make a disk larger, also while the VM runs. SIZE is in GiB, or has a unit: 40, 40G, 1T. " +
			"The system disk has the name system. The guest still has to grow its file system.",
		Example: "  mainstay vms disk resize web data 100\n  mainstay vms disk resize web system 40G",
	}, func(ctx context.Context, c *call) error {
		if err := size.Set(c.Args[2]); err != nil {
			return exit.Usagef("SIZE %w", err)
		}
		return s.changeDisk(ctx, c, vmapi.DiskChange{Size: &size.Count})
	})
}

func (s commands) diskLimit() *cobra.Command {
	var limit spec.DiskLimits
	cmd := s.Command(verb.Verb{
		Use: "limit VM NAME", Short: "Limit what a VM does with a disk, at once",
		Long: "Limit what a VM does with a disk, at once, also while it runs. What is not given stays as it is. " +
			"The system disk has the name system. Limits are set by admins without a tenant.",
		Example: "  mainstay vms disk limit web data --iops 500\n" +
			"  mainstay vms disk limit web system --iops 0 --bytes-per-second 50000000",
		Check: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("iops") && !cmd.Flags().Changed("bytes-per-second") {
				return exit.Usagef("give --iops, --bytes-per-second, or both")
			}
			return nil
		},
	}, func(ctx context.Context, c *call) error {
		return s.changeDisk(ctx, c, vmapi.DiskChange{
			Iops: verb.Given(c, "iops", limit.IOPS), BytesPerSecond: verb.Given(c, "bytes-per-second", limit.BytesPerSecond),
		})
	})
	limit.Add(cmd)
	return cmd
}

func (s commands) changeDisk(ctx context.Context, c *call, change vmapi.DiskChange) error {
	a, err := c.Send(c.Slow.ChangeDisk(ctx, c.Args[0], c.Args[1], &vmapi.ChangeDiskParams{Tenant: s.of()}, change))
	d, err := decode[vmapi.Disk](a, err)
	if err != nil {
		return err
	}
	if change.Size != nil {
		return c.Done(a, "The disk %s of %s has %d GiB.", d.Name, c.Args[0], d.Size)
	}
	return c.Done(a, "Changed the limits of the disk %s of %s.", d.Name, c.Args[0])
}

func (s commands) diskRemove() *cobra.Command {
	var yes bool
	cmd := s.Command(verb.Verb{
		Use: "remove VM NAME", Short: "Detach a disk and remove it with what it holds",
		Long: `Detach a disk and remove it with what it holds. Unmount it in the guest first. A VM that boots a kernel from the catalog keeps
the disk until it stops. Only admins remove disks.`,
		Example: "  mainstay vms disk remove web data\n  mainstay vms disk remove web data --yes",
	}, func(ctx context.Context, c *call) error {
		if err := c.Confirm("Remove the disk "+c.Args[1]+" of "+c.Args[0]+"? What it holds is lost.", yes); err != nil {
			return err
		}
		a, err := c.Send(c.Slow.RemoveDisk(ctx, c.Args[0], c.Args[1], &vmapi.RemoveDiskParams{Tenant: s.of()}))
		vm, err := decode[vmapi.VM](a, err)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(vm.Disks, func(d vmapi.Disk) bool { return d.Name == c.Args[1] }) {
			return c.Done(a, "The disk %s is removed when %s stops.", c.Args[1], c.Args[0])
		}
		return c.Done(a, "Removed the disk %s.", c.Args[1])
	})
	verb.YesFlag(cmd, &yes)
	return cmd
}
