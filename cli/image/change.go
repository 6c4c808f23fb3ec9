package image

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// exportMode is the permissions of an exported image.
const exportMode = 0o644

func (s commands) clone() *cobra.Command {
	return s.Change(
		verb.Verb{
			Use:     "clone IMAGE NEW",
			Short:   "Give an image a second name, with switches of its own",
			Example: "  mainstay image clone debian-12 web-base",
		},
		"Added the image %s.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.CloneImage(ctx, c.Args[0], hypervisorapi.NewName{Name: c.Args[1]})
		},
	)
}

func (s commands) rename() *cobra.Command {
	return s.Change(
		verb.Verb{
			Use:     "rename IMAGE NEW",
			Short:   "Change an image's name",
			Example: "  mainstay image update debian-12 --name debian-12.5",
		},
		"The image is %s now.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.RenameImage(ctx, c.Args[0], hypervisorapi.NewName{Name: c.Args[1]})
		},
	)
}

func (s commands) update() *cobra.Command {
	var name string
	var readOnly bool
	cmd := s.Command(verb.Verb{
		Use: "update IMAGE", Short: "Change an image's name, or protect it against change and removal",
		Example: "  mainstay image update debian-12 --name debian-12.5\n  mainstay image update debian-12 --read-only\n" +
			"  mainstay image update debian-12 --read-only=false",
		Check: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("name") && !cmd.Flags().Changed("read-only") {
				return exit.Usagef("nothing is to be changed: give --name or --read-only")
			}
			return nil
		},
	}, func(ctx context.Context, c *daemon.Call) error {
		image := c.Args[0]
		var a daemon.Answer
		rename := func() (err error) {
			if !c.Cmd.Flags().Changed("name") {
				return nil
			}
			if a, err = c.Send(c.API.RenameImage(ctx, image, hypervisorapi.NewName{Name: name})); err == nil {
				image = name
			}
			return err
		}
		protect := func() (err error) {
			if c.Cmd.Flags().Changed("read-only") {
				a, err = c.Send(c.API.SetImageReadOnly(ctx, image, hypervisorapi.ReadOnly{ReadOnly: readOnly}))
			}
			return err
		}
		// An image that is read-only cannot be renamed.
		steps := []func() error{protect, rename}
		if readOnly {
			steps = []func() error{rename, protect}
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return c.Done(a, "Changed the image %s.", image)
	})
	cmd.Flags().StringVar(&name, "name", "", "another name")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "protect it against change and removal; with =false, lift that")
	return cmd
}

func (s commands) lock() *cobra.Command {
	return s.Change(
		verb.Verb{
			Use:     "lock IMAGE",
			Short:   "Let no new VM be made of an image",
			Example: "  mainstay image lock debian-11",
		},
		"The image %s is locked.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.LockImage(ctx, c.Args[0], hypervisorapi.Nothing{})
		},
	)
}

func (s commands) resize() *cobra.Command {
	return daemon.Operation(s.Session, verb.Verb{
		Use: "resize IMAGE GIB", Short: "Make the disk of an image larger; VMs that were made of it keep theirs",
		Example: "  mainstay image resize debian-12 10",
	}, func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		gib, err := strconv.ParseInt(c.Args[1], 10, 32)
		if err != nil || gib < 1 {
			return nil, exit.Usagef("GIB must be a number from 1, not %q", c.Args[1])
		}
		return c.API.ResizeImage(ctx, c.Args[0], hypervisorapi.ImageResize{SizeBytes: gib << 30})
	}, func(*daemon.Call, hypervisorapi.Operation) string { return "The disk of the image is larger." })
}

func (s commands) unlock() *cobra.Command {
	return s.Change(
		verb.Verb{
			Use:     "unlock IMAGE",
			Short:   "Let VMs be made of an image again",
			Example: "  mainstay image unlock debian-11",
		},
		"The image %s is unlocked.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.UnlockImage(ctx, c.Args[0], hypervisorapi.Nothing{})
		},
	)
}

func (s commands) readOnly() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "read-only IMAGE on|off", Short: "Protect an image against change and removal, or lift that",
		Example: "  mainstay image update debian-12 --read-only",
	}, func(ctx context.Context, c *daemon.Call) error {
		on, known := map[string]bool{"on": true, "off": false}[c.Args[1]]
		if !known {
			return exit.Usagef("the second argument must be on or off, not %q", c.Args[1])
		}
		a, err := c.Send(c.API.SetImageReadOnly(ctx, c.Args[0], hypervisorapi.ReadOnly{ReadOnly: on}))
		if err != nil {
			return err
		}
		if on {
			return c.Done(a, "The image %s is read-only.", c.Args[0])
		}
		return c.Done(a, "The image %s can be changed and removed.", c.Args[0])
	})
}

func (s commands) delete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete IMAGE", Short: "Delete an image; one that VMs are made of stays on disk until they are gone",
		Example: "  mainstay image delete debian-11\n  mainstay image delete debian-11 --yes",
	}, "Delete the image %s?", "Deleted the image %s.", func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		return c.API.RemoveImage(ctx, c.Args[0])
	})
}

func (s commands) clean() *cobra.Command {
	return s.Command(
		verb.Verb{
			Use:     "clean",
			Short:   "Remove from disk what no image and no VM needs any more",
			Example: "  mainstay image clean",
		},
		func(ctx context.Context, c *daemon.Call) error {
			a, err := c.Send(c.Slow.CleanImages(ctx, hypervisorapi.Nothing{}))
			v, err := daemon.Decode[hypervisorapi.Cleaned](a, err)
			if err != nil {
				return err
			}
			return c.Done(a, "Removed %s.", fmt.Sprintf("%d files with %s", v.Files, verb.Bytes(v.Bytes)))
		},
	)
}

func (s commands) export() *cobra.Command {
	var force bool
	cmd := s.Command(verb.Verb{
		Use:     "export IMAGE FILE",
		Short:   "Fetch the disk of an image as qcow2",
		Example: "  mainstay image export debian-12 debian-12.qcow2\n  mainstay image export debian-12 - | zstd > debian-12.qcow2.zst",
	}, func(ctx context.Context, c *daemon.Call) error {
		return c.Export(
			c.Args[1], exportMode, force, func() (*http.Response, error) { return c.Slow.ExportImage(ctx, c.Args[0]) },
		)
	})
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}
