// Package image implements `mainstay image`: the catalog of VM images.
//
//	image.go   the command, list and show
//	add.go     new images: built, imported from the host, uploaded
//	change.go  names, locks, protection, removal, export
//
// Code shared with `mainstay vm` is in package daemon.
package image

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// commands builds the commands of the group.
type commands struct{ *daemon.Session }

// New returns the command `image` with all commands below it.
func New(env client.Environment) *cobra.Command {
	cmd := verb.Group(
		"image", "Images of virtual machines: build, create, import, export, protect",
		"  mainstay image build-demo\n  mainstay image import debian-12 debian-12-genericcloud-amd64.qcow2\n  mainstay image list",
		"images",
	)
	cmd.Long = `Images of virtual machines: disks, kernels with an initial RAM disk, and root file systems of sandboxes, on the host
whose hypervisor daemon answers at --server.

` + daemon.TokenHelp
	s := commands{daemon.NewHostSession(env, cmd)}
	cmd.AddCommand(
		s.buildDemo(), s.create(), s.upload(), s.list(), s.show(), s.update(), s.clone(), s.export(), s.resize(),
		s.lock(), s.unlock(), s.delete(), s.clean(),
		verb.Old("rename IMAGE NEW", s.rename()), verb.Old("read-only IMAGE on|off", s.readOnly()),
	)
	s.Complete(cmd)
	return cmd
}

func (s commands) list() *cobra.Command {
	var search, sort string
	cmd := verb.List(
		s.Session,
		verb.Verb{
			Use:     "list",
			Short:   "List images, by name",
			Example: "  mainstay image list --search debian --sort -added_at\n  mainstay image list --all -o json",
		},
		output.Columns[hypervisorapi.Image]{
			Heads: []string{"NAME", "KIND", "SIZE", "DISK", "SIGNATURE", "LOCKED", "READ-ONLY", "ADDED", "SOURCE"},
			Row: func(v hypervisorapi.Image) []any {
				disk := ""
				if v.VirtualSizeBytes > 0 {
					disk = verb.Bytes(v.VirtualSizeBytes)
				}
				return []any{
					v.Name, v.Kind, verb.Bytes(v.SizeBytes), disk, signature(v), v.Locked, v.ReadOnly, v.AddedAt,
					v.Source,
				}
			},
		},
		func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
			return c.API.ListImages(ctx, &hypervisorapi.ListImagesParams{
				Limit:  p.Limit,
				Cursor: p.Cursor,
				Q:      verb.Given(c, "search", search),
				Sort:   verb.Given(c, "sort", hypervisorapi.ListImagesParamsSort(sort)),
			})
		},
	)
	cmd.Flags().StringVar(&search, "search", "", "only images with this text in the name, the kind, the source or the SHA-256")
	cmd.Flags().StringVar(&sort, "sort", "", "name or added_at; a dash before it means descending")
	return cmd
}

func signature(v hypervisorapi.Image) string {
	switch {
	case v.SignatureValid == nil:
		return "none"
	case *v.SignatureValid:
		return "valid"
	}
	return "NOT VALID"
}

func (s commands) show() *cobra.Command {
	return s.Object(
		verb.Verb{
			Use:     "show IMAGE",
			Short:   "Show one image",
			Example: "  mainstay image show demo\n  mainstay image show demo -o yaml",
		},
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.GetImage(ctx, c.Args[0])
		},
	)
}
