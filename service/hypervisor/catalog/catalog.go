package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config holds the dependencies of a Catalog.
type Config struct {
	Data   string // the daemon's data folder
	Images *configfile.Images
	Policy *admission.Policy
	// AgentProgram returns the path of the guest agent's program, or "" if there is none now.
	AgentProgram func() string
	Store        *record.Store
	Operations   *operation.Runner
}

// Catalog holds the images of this host.
type Catalog struct {
	data     string
	images   *configfile.Images
	policy   *admission.Policy
	agent    func() string
	store    *record.Store
	operate  *operation.Runner
	contents *Contents
	cleaning sync.RWMutex // held for reading while contents are used that no VM refers to yet
}

// Open creates the catalog's folder if needed and registers the operation that imports images.
func Open(cfg Config) (*Catalog, error) {
	contents, err := OpenContents(filepath.Join(cfg.Data, "images"), int64(cfg.Images.MaxGiB)*record.GiB)
	if err != nil {
		return nil, err
	}
	c := &Catalog{
		data: cfg.Data, images: cfg.Images, policy: cfg.Policy, agent: cfg.AgentProgram,
		store: cfg.Store, operate: cfg.Operations, contents: contents,
	}
	operation.Register(c.operate, record.OperationImage, operation.Kind[Addition]{
		Run: func(ctx context.Context, a Addition, progress func(float64)) error {
			return c.run(shell.As(ctx, a.Actor), a, progress)
		},
		Cancelled: func(_ context.Context, a Addition) error { return contents.Drop(a.Incoming) },
	})
	operation.Register(c.operate, record.OperationResize, operation.Kind[resizing]{
		Run: func(ctx context.Context, a resizing, progress func(float64)) error {
			return c.runResize(shell.As(ctx, a.Actor), a, progress)
		},
		Cancelled: func(_ context.Context, a resizing) error { return contents.Drop(a.Incoming) },
	})
	return c, nil
}

// files returns access to host files with the caller's permissions.
func (c *Catalog) files(ctx context.Context) admission.Files {
	return c.policy.Files(caller.From(ctx).NamesHostFiles(""))
}

// Content returns a content by its SHA-256.
func (c *Catalog) Content(sum string) (Content, error) { return c.contents.Get(sum) }

// Find resolves an image's name or path to its content and kernel arguments.
func (c *Catalog) Find(ctx context.Context, files admission.Files, name string) (Content, string, error) {
	if !strings.Contains(name, "/") {
		i, err := c.store.Image(ctx, name)
		if fault.Is(err, fault.NotFound) {
			hint := ""
			if files.Any() {
				hint = "; it may also be an absolute path"
			}
			return Content{}, "", fault.InvalidField("image", "there is no image %q in the catalog%s", name, hint)
		}
		if err != nil {
			return Content{}, "", err
		}
		if err := c.usable(&i); err != nil {
			return Content{}, "", err
		}
		content, err := c.contents.Get(i.SHA256)
		return content, i.KernelArgs, err
	}
	if c.images.RequireSigned {
		return Content{}, "", fault.InvalidField("image",
			"must be a signed image of the catalog, since images.require_signed is set")
	}
	content, err := c.takePath(ctx, files, name)
	return content, "", err
}

// usable checks that VMs may be created from an image.
func (c *Catalog) usable(i *record.Image) error {
	switch {
	case i.Locked:
		return fault.New(fault.Conflict, "the image %s is locked", i.Name).WithCode("image_locked")
	case c.images.RequireSigned && (i.SignatureValid == nil || !*i.SignatureValid):
		return admission.RefuseField("images.require_signed", "image",
			"%s has no good signature, which images.require_signed demands", i.Name)
	}
	return nil
}

// Hold prevents contents from being cleaned until the returned function is called.
func (c *Catalog) Hold() func() {
	c.cleaning.RLock()
	return c.cleaning.RUnlock
}

// Clean removes contents that nothing refers to, and returns how many files and bytes it removed.
func (c *Catalog) Clean(ctx context.Context) (files int, bytes int64, err error) {
	// A blocking Lock would make all creators of VMs wait while one image is being imported.
	for patience := 50; !c.cleaning.TryLock(); patience-- {
		if patience == 0 {
			return 0, 0, fault.New(fault.Conflict,
				"images are being taken in, or VMs made; try again when that is over").WithCode("images_in_use")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	defer c.cleaning.Unlock()
	needed, err := c.store.NeededContents(ctx)
	if err != nil {
		return 0, 0, err
	}
	if files, bytes, err = c.contents.Clean(needed); err != nil {
		return files, bytes, err
	}
	message := fmt.Sprintf("%d contents, %d bytes", files, bytes)
	return files, bytes, c.store.Note(ctx, audit.Entry{Action: "image.clean", Message: message})
}

// Export opens the disk of an image. The caller must close it.
func (c *Catalog) Export(ctx context.Context, name string) (*os.File, error) {
	i, err := c.store.Image(ctx, name)
	if err != nil {
		return nil, err
	}
	if i.Kind != string(Disk) {
		return nil, fault.New(fault.Conflict, "the image %s is not a disk", i.Name).WithCode("not_a_disk")
	}
	content, err := c.contents.Get(i.SHA256)
	if err != nil {
		return nil, err
	}
	return os.Open(content.DiskPath())
}

// SweepIncoming removes incoming folders that no open operation uses.
func (c *Catalog) SweepIncoming(ctx context.Context) error {
	open, err := c.store.OpenArgs(ctx, record.OperationImage)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, args := range open {
		keep[incomingOf(args)] = true
	}
	return c.contents.DropAll(func(id string) bool { return keep[id] })
}
