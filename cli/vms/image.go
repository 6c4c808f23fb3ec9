package vms

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) images() *cobra.Command {
	cmd := verb.Group("image", "Images that VMs are made of: build, download, import, resize",
		"  mainstay vms image build web --distribution debian --package nginx\n"+
			"  mainstay vms image download debian 12 && mainstay vms create web --image debian-12", "images")
	cmd.AddCommand(
		s.imageBuild(), s.imageList(), s.imageISO(), s.imageShow(), s.imageDownloads(), s.imageDownload(), s.imageImport(),
		s.imageResize(), s.imageDelete(), s.imageLog(),
	)
	return cmd
}

// imageMade waits until an image that was begun is made, unless told otherwise.
func (s commands) imageMade(ctx context.Context, c *call, doing string, r *http.Response, err error) error {
	a, err := c.Send(r, err)
	i, err := decode[vmapi.Image](a, err)
	if err != nil {
		return err
	}
	if c.NoWait() || i.JobId == nil {
		return c.Done(a, "The image %s is being made; its id is %s.", i.Name, i.Id)
	}
	if err := follow(ctx, c, doing+" "+i.Name, *i.JobId); err != nil {
		return fmt.Errorf("%w; 'mainstay vms image log %s' shows what the tools print", err, i.Id)
	}
	a, err = c.Send(c.API.GetImage(ctx, i.Id.String()))
	if i, err = decode[vmapi.Image](a, err); err != nil {
		return err
	}
	return c.Done(a, "Made the image %s (%s of disk); 'mainstay vms create NAME --image %s' makes a VM of it.",
		i.Name, verb.Bytes(i.VirtualSizeBytes), i.Image)
}

func (s commands) imageBuild() *cobra.Command {
	var distribution, release string
	var packages []string
	var autologin, cloudInit bool
	cmd := s.Command(verb.Verb{
		Use: "build NAME", Short: "Build an image of a distribution's packages",
		Long: `Build an image of a distribution's packages: debian and ubuntu, and others where the service's host has their tools.
It boots to a login on the serial console, takes its address by DHCP, and has the guest agent. Nobody can log in with
a password until cloud-init or you set one.`,
		Example: "  mainstay vms image build web --package nginx --cloud-init\n" +
			"  mainstay vms image build old --distribution debian --release 12 --autologin",
	}, func(ctx context.Context, c *call) error {
		spec := vmapi.ImageBuildSpec{
			Name: c.Args[0], Distribution: vmapi.Distribution(distribution), Version: verb.Given(c, "release", release),
			Autologin: &autologin, CloudInit: &cloudInit, Tenant: s.of(),
		}
		if len(packages) > 0 {
			spec.Packages = &packages
		}
		r, err := c.API.BuildImage(ctx, spec)
		return s.imageMade(ctx, c, "Building", r, err)
	})
	cmd.Flags().StringVar(&distribution, "distribution", "debian", "fedora, ubuntu, debian, centos, arch, opensuse, alma or rocky")
	cmd.Flags().StringVar(&release, "release", "", "release of the distribution; the newest that is known when absent")
	cmd.Flags().StringSliceVar(&packages, "package", nil, "package to install; can be given more than once")
	cmd.Flags().BoolVar(&autologin, "autologin", false, "log root in on the serial console without a password")
	cmd.Flags().BoolVar(&cloudInit, "cloud-init", false, "install cloud-init, with an SSH server")
	verb.NoWaitFlag(cmd)
	return cmd
}

func (s commands) imageDownload() *cobra.Command {
	var name, format string
	cmd := s.Command(verb.Verb{
		Use: "download DISTRIBUTION RELEASE", Short: "Download a distribution's own image, with its checksum",
		Example: "  mainstay vms image download debian 12\n  mainstay vms image download ubuntu 24.04 --format iso",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.DownloadImage(ctx, vmapi.ImageDownloadSpec{
			Distribution: vmapi.Distribution(c.Args[0]), Version: c.Args[1], Name: verb.Given(c, "name", name),
			Format: new(vmapi.ImageDownloadSpecFormat(format)), Tenant: s.of(),
		})
		return s.imageMade(ctx, c, "Downloading", r, err)
	})
	cmd.Flags().StringVar(&name, "name", "", "name of the image; DISTRIBUTION-RELEASE when absent")
	cmd.Flags().StringVar(&format, "format", "qcow2", "qcow2, or iso for an installer")
	verb.NoWaitFlag(cmd)
	return cmd
}

func (s commands) imageDownloads() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "downloads", Short: "List what can be downloaded", Example: "  mainstay vms image downloads",
	}, output.Columns[vmapi.ImageDownload]{
		Heads: []string{"DISTRIBUTION", "RELEASE", "FORMAT", "TITLE", "URL"},
		Row: func(d vmapi.ImageDownload) []any {
			return []any{d.Distribution, d.Version, d.Format, d.Title, d.Url}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.API.ListImageDownloads(ctx)
	})
}

func (s commands) imageImport() *cobra.Command {
	var format string
	cmd := s.Command(verb.Verb{
		Use: "import NAME PATH", Short: "Take in an image that lies on the service's host",
		Long: `Take in an image that lies on the host that runs the service, below a folder of its setting image-import-folders. The
hypervisor daemon refuses images that lead to other files.`,
		Example: "  mainstay vms image import router /srv/images/router.qcow2",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.ImportImage(ctx, vmapi.ImageImportSpec{
			Name: c.Args[0], Path: c.Args[1], Format: new(vmapi.ImageImportSpecFormat(format)), Tenant: s.of(),
		})
		return s.imageMade(ctx, c, "Importing", r, err)
	})
	cmd.Flags().StringVar(&format, "format", "qcow2", "qcow2, raw or iso")
	verb.NoWaitFlag(cmd)
	return cmd
}

var imageColumns = output.Columns[vmapi.Image]{
	Heads: []string{
		"ID", "NAME", "IMAGE", "STATE", "DISTRIBUTION", "RELEASE", "DISK", "SIZE", "TENANT", "CREATED", "ERROR",
	},
	Row: func(i vmapi.Image) []any {
		return []any{
			i.Id, i.Name, i.Image, i.State, i.Distribution, i.Version, verb.Bytes(i.VirtualSizeBytes), verb.Bytes(i.SizeBytes),
			text(i.Tenant), i.Created, text(i.Error),
		}
	},
}

// counted is a part of a list that is paged by offset.
type counted struct {
	Items []json.RawMessage `json:"items"`
	Total int               `json:"total"`
}

// imageListing is a command that lists images; get reads a part of them.
func (s commands) imageListing(
	v verb.Verb, get func(ctx context.Context, c *call, offset, limit *int) (*http.Response, error),
) *cobra.Command {
	var limit verb.Limit
	v.Check = limit.Filtered
	cmd := s.Command(v, func(ctx context.Context, c *call) error {
		l := output.NewList(c.Out, imageColumns)
		for got := 0; ; {
			size := limit.Next(got, page)
			part, err := decode[counted](c.Send(get(ctx, c, &got, &size)))
			if err != nil {
				return err
			}
			if err := l.Page(part.Items); err != nil {
				return err
			}
			got += len(part.Items)
			if got < part.Total && len(part.Items) > 0 && limit.Next(got, page) > 0 {
				continue
			}
			if err := l.Close(); err != nil {
				return err
			}
			if got < part.Total {
				c.More()
			}
			return nil
		}
	})
	limit.AddFlags(cmd)
	return cmd
}

func (s commands) imageList() *cobra.Command {
	var state, search string
	cmd := s.imageListing(verb.Verb{
		Use: "list", Short: "List images, newest first",
		Example: "  mainstay vms image list\n  mainstay vms image list --state completed --search debian",
	}, func(ctx context.Context, c *call, offset, limit *int) (*http.Response, error) {
		return c.API.ListImages(ctx, &vmapi.ListImagesParams{
			Offset: offset, Limit: limit, State: verb.Given(c, "state", vmapi.ImageState(state)),
			Q: verb.Given(c, "search", search), Tenant: s.of(),
		})
	})
	cmd.Flags().StringVar(&state, "state", "", "only those in this state, for example completed")
	cmd.Flags().StringVar(&search, "search", "", "only those with this text in the name, the distribution or the tenant")
	return cmd
}

func (s commands) imageISO() *cobra.Command {
	return s.imageListing(verb.Verb{
		Use: "iso", Short: "List images that are installation media, newest first", Example: "  mainstay vms image iso",
	}, func(ctx context.Context, c *call, offset, limit *int) (*http.Response, error) {
		return c.API.ListISOImages(ctx, &vmapi.ListISOImagesParams{Offset: offset, Limit: limit, Tenant: s.of()})
	})
}

// imageID returns the id of the image that an argument names by its id or its name.
func (s commands) imageID(ctx context.Context, c *call, named string) (string, error) {
	if _, err := uuid.Parse(named); err == nil {
		return named, nil
	}
	limit := page
	part, err := decode[vmapi.ImageList](c.Send(c.API.ListImages(ctx, &vmapi.ListImagesParams{
		Limit: &limit, Q: &named, Tenant: s.of(),
	})))
	if err != nil {
		return "", err
	}
	found := ""
	for _, i := range part.Items {
		switch {
		case i.Name != named && i.Image != named:
		case found == "" || i.State == vmapi.ImageStateCompleted:
			found = i.Id.String()
		}
	}
	if found == "" {
		return "", &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("there is no image %s; 'mainstay vms image list' lists them", named)}
	}
	return found, nil
}

func (s commands) imageShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show IMAGE", Short: "Show one image, by its name or id", Example: "  mainstay vms image show web",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := s.imageID(ctx, c, c.Args[0])
		if err != nil {
			return nil, err
		}
		return c.API.GetImage(ctx, id)
	})
}

func (s commands) imageResize() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "resize IMAGE GIB", Short: "Make the disk of an image larger; VMs that were made of it keep theirs",
		Example: "  mainstay vms image resize web 10",
	}, func(ctx context.Context, c *call) error {
		gib, err := strconv.Atoi(c.Args[1])
		if err != nil {
			return exit.Usagef("GIB must be a number, not %q", c.Args[1])
		}
		id, err := s.imageID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.Slow.ResizeImage(ctx, id, vmapi.ImageResizeSpec{SizeGb: gib}))
		i, err := decode[vmapi.Image](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "The disk of the image %s has %s.", i.Name, verb.Bytes(i.VirtualSizeBytes))
	})
}

func (s commands) imageDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete IMAGE", Short: "Delete an image that no VM is made of", Example: "  mainstay vms image delete web --yes",
	}, "Delete the image %s?", "Deleted the image %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := s.imageID(ctx, c, c.Args[0])
		if err != nil {
			return nil, err
		}
		return c.Slow.DeleteImage(ctx, id)
	})
}

func (s commands) imageLog() *cobra.Command {
	var keep bool
	cmd := s.Command(verb.Verb{
		Use: "log IMAGE", Short: "Print what the tools printed that make an image",
		Long:    "Print what the tools printed that make an image. With --follow, go on until the image is made. The last MiB is kept.",
		Example: "  mainstay vms image log web --follow",
	}, func(ctx context.Context, c *call) error {
		id, err := s.imageID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		for from := int64(0); ; {
			l, err := decode[vmapi.ImageLog](c.Send(c.API.GetImageLog(ctx, id, &vmapi.GetImageLogParams{Offset: &from})))
			if err != nil {
				return err
			}
			if _, err := io.WriteString(printable{c.Out.Out}, l.Text); err != nil {
				return err
			}
			more := l.Next > from
			if from = l.Next; l.Complete || !more && !keep {
				return nil
			}
			if !more {
				if err := breathe(ctx); err != nil {
					return err
				}
			}
		}
	})
	cmd.Flags().BoolVarP(&keep, "follow", "f", false, "go on until the image is made")
	return cmd
}

// breathe waits before a log is asked for again.
func breathe(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
