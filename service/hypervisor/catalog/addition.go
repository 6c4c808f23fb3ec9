package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Addition is an image to import.
type Addition struct {
	Name           string        `json:"name"`
	Source         string        `json:"source"` // where it comes from, for people
	Path           string        `json:"path"`   // of the disk or root file system
	Kernel, Initrd string        // instead of a path
	KernelArgs     string        `json:"kernel_args"`
	Signature      string        `json:"signature"`
	Uploaded       bool          `json:"uploaded"` // it was uploaded to the incoming folder
	SHA256         string        `json:"sha256"`   // of the uploaded file
	Incoming       string        `json:"incoming"`
	Demo           bool          `json:"demo"` // build the demo guest
	Actor          caller.Caller `json:"actor"`
}

// Add starts an operation that imports an image from the host's files.
func (c *Catalog) Add(ctx context.Context, a Addition) (record.Operation, error) {
	switch {
	case !a.Demo && (a.Path == "") == (a.Kernel == ""):
		return record.Operation{}, fault.InvalidField("path", "give either path or kernel")
	case a.Initrd != "" && a.Kernel == "":
		return record.Operation{}, fault.InvalidField("initrd", "needs a kernel")
	case strings.ContainsFunc(a.KernelArgs, unicode.IsControl):
		return record.Operation{}, fault.InvalidField("kernel_args", "must not contain control characters")
	case a.Signature != "" && a.Path == "":
		return record.Operation{}, fault.InvalidField("signature", "takes a path: only disks are signed")
	case a.Demo && c.agent() == "":
		return record.Operation{}, fault.New(fault.Unavailable,
			"the demo guest holds the guest agent, which is missing: set guest-agent to the path of mainstay-guest")
	}
	for field, path := range map[string]string{"path": a.Path, "kernel": a.Kernel, "initrd": a.Initrd} {
		if path == "" {
			continue
		}
		f, err := c.files(ctx).ImageOrFolder(path)
		if err != nil {
			return record.Operation{}, admission.About(err, field)
		}
		if err := f.Close(); err != nil {
			return record.Operation{}, err
		}
	}
	a.Source = a.Path
	if a.Kernel != "" {
		a.Source = a.Kernel
	}
	if a.Demo {
		a.Source = "built of the host's packages"
	}
	return c.beginAddition(ctx, a)
}

func (c *Catalog) beginAddition(ctx context.Context, a Addition) (record.Operation, error) {
	if err := c.replaceable(ctx, a.Name); err != nil {
		return record.Operation{}, err
	}
	a.Actor = caller.From(ctx)
	if a.Incoming == "" {
		a.Incoming = record.NewID()
	}
	message := record.WithFiles(a.Source, "kernel", a.Kernel, "initrd", a.Initrd)
	op := record.NewOperation(record.OperationImage, "")
	op.Image = a.Name
	return c.operate.Begin(ctx, op, a,
		audit.Entry{Action: "image.add", Target: a.Name, Message: message})
}

// replaceable checks that an image may be stored under a name. Only the demo guest may be replaced.
func (c *Catalog) replaceable(ctx context.Context, name string) error {
	_, err := c.store.Image(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound), err == nil && name == DemoImage:
		return nil
	case err == nil:
		return fault.New(fault.Conflict, "there is an image named %s already", name).WithCode("name_taken")
	}
	return err
}

// Upload stores an image from a request and starts an operation that imports it. The bytes are on
// disk when it returns.
func (c *Catalog) Upload(ctx context.Context, name, signature string, r io.Reader) (record.Operation, error) {
	if err := c.replaceable(ctx, name); err != nil {
		return record.Operation{}, err
	}
	id := record.NewID()
	folder, err := c.contents.Incoming(id)
	if err != nil {
		return record.Operation{}, err
	}
	sum, err := Keep(ctx, r, filepath.Join(folder, uploadFile), c.contents.MaxSize())
	if err == nil {
		var op record.Operation
		op, err = c.beginAddition(ctx, Addition{
			Name: name, Source: "uploaded by " + caller.From(ctx).Name, Signature: signature,
			Uploaded: true, SHA256: sum, Incoming: id,
		})
		if err == nil {
			return op, nil
		}
	}
	return record.Operation{}, errors.Join(err, c.contents.Drop(id))
}

const uploadFile = "upload"

// DemoImage is the name of the demo guest's image.
const DemoImage = "demo"

// incomingOf returns the incoming folder's id from the arguments of an addition.
func incomingOf(args string) string {
	var a Addition
	if err := json.Unmarshal([]byte(args), &a); err != nil {
		return ""
	}
	return a.Incoming
}

// run is the job of an addition. It can be repeated.
func (c *Catalog) run(ctx context.Context, a Addition, progress func(float64)) error {
	defer c.Hold()()
	// If the daemon ends, the upload is kept for the repeated job.
	defer func() {
		if !operation.BrokenOff(ctx) {
			_ = c.contents.Drop(a.Incoming) // otherwise removed on the next start
		}
	}()
	content, valid, signedAt, err := c.take(ctx, a, progress)
	if err != nil {
		return err
	}
	i := record.Image{Name: a.Name, Kind: string(content.Kind), Source: a.Source, SHA256: content.SHA256,
		KernelArgs: a.KernelArgs, Size: content.Size, VirtualSize: content.VirtualSize,
		SignatureValid: valid, SignedAt: signedAt}
	return c.store.AddImage(ctx, &i, a.Demo)
}

// take makes a content from the source of an addition.
func (c *Catalog) take(
	ctx context.Context, a Addition, progress func(float64),
) (out Content, valid *bool, signedAt db.Time, err error) {
	folder, err := c.contents.Incoming(a.Incoming)
	if err != nil {
		return out, nil, signedAt, err
	}
	switch {
	case a.Demo:
		out, err = c.takeDemo(ctx, a.Incoming, progress)
		return out, nil, signedAt, err
	case a.Kernel != "":
		out, err = c.takeKernel(ctx, a)
		return out, nil, signedAt, err
	}
	path, sum := filepath.Join(folder, uploadFile), a.SHA256
	signature := a.Signature
	if !a.Uploaded {
		files := c.files(ctx)
		f, folder, err := imageOrFolder(files, a.Path)
		if err != nil {
			return out, nil, signedAt, err
		}
		defer func() { _ = f.Close() }() // it was only read
		if folder {
			if a.Signature != "" {
				return out, nil, signedAt, fault.InvalidField("signature", "a root file system cannot have one")
			}
			out, err = c.takeFolder(ctx, a.Incoming, f)
			return out, nil, signedAt, err
		}
		if sum, err = Keep(ctx, f, path, c.contents.MaxSize()); err != nil {
			return out, nil, signedAt, err
		}
		if signature == "" {
			signature = signatureBeside(files, a.Path)
		}
	}
	progress(0.2)
	if signature != "" {
		good, at, err := c.verify(path, signature)
		if err != nil {
			return out, nil, signedAt, err
		}
		valid, signedAt = &good, at
	}
	out, err = c.contents.TakeDisk(ctx, path, sum, func(done float64) { progress(0.2 + 0.8*done) })
	return out, valid, signedAt, err
}

// imageOrFolder opens a path and reports whether it is a folder.
func imageOrFolder(files admission.Files, path string) (f *os.File, folder bool, err error) {
	if f, err = files.ImageOrFolder(path); err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, info.IsDir(), nil
}

// signatureBeside returns the minisign signature next to a file, or "" if there is none.
func signatureBeside(files admission.Files, path string) string {
	f, err := files.Image(path + ".minisig")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return ""
	}
	return string(raw)
}

func (c *Catalog) takeKernel(ctx context.Context, a Addition) (Content, error) {
	files := c.files(ctx)
	kernel, err := files.Image(a.Kernel)
	if err != nil {
		return Content{}, admission.About(err, "kernel")
	}
	defer func() { _ = kernel.Close() }() // it was only read
	if a.Initrd == "" {
		return c.contents.TakeKernel(ctx, a.Incoming, kernel, nil)
	}
	initrd, err := files.Image(a.Initrd)
	if err != nil {
		return Content{}, admission.About(err, "initrd")
	}
	defer func() { _ = initrd.Close() }() // it was only read
	return c.contents.TakeKernel(ctx, a.Incoming, kernel, initrd)
}

// takeDemo builds the demo guest. Its downloads are kept.
func (c *Catalog) takeDemo(ctx context.Context, id string, progress func(float64)) (Content, error) {
	const steps = 4
	done := 0
	guest, err := demo.Build(ctx, demo.Options{
		Folder: filepath.Join(c.data, "demo"), Agent: c.agent(),
		Progress: func(string) { done++; progress(float64(done) / steps) },
	})
	if err != nil {
		return Content{}, err
	}
	kernel, err := os.Open(guest.Kernel)
	if err != nil {
		return Content{}, err
	}
	defer func() { _ = kernel.Close() }() // it was only read
	initrd, err := os.Open(guest.Initrd)
	if err != nil {
		return Content{}, err
	}
	defer func() { _ = initrd.Close() }() // it was only read
	return c.contents.TakeKernel(ctx, id, kernel, initrd)
}

// takePath makes a content from an image that a VM's request names by path.
func (c *Catalog) takePath(ctx context.Context, files admission.Files, path string) (Content, error) {
	f, isFolder, err := imageOrFolder(files, path)
	if err != nil {
		return Content{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	id := record.NewID()
	defer func() { _ = c.contents.Drop(id) }()
	if isFolder {
		return c.takeFolder(ctx, id, f)
	}
	folder, err := c.contents.Incoming(id)
	if err != nil {
		return Content{}, err
	}
	kept := filepath.Join(folder, uploadFile)
	sum, err := Keep(ctx, f, kept, c.contents.MaxSize())
	if err != nil {
		return Content{}, err
	}
	return c.contents.TakeDisk(ctx, kept, sum, nil)
}

// takeFolder makes a content from an open folder.
func (c *Catalog) takeFolder(ctx context.Context, id string, f *os.File) (Content, error) {
	check, err := c.policy.RefuseOwn()
	if err != nil {
		return Content{}, err
	}
	return c.contents.TakeRootFS(ctx, id, f, check, func(root *os.Root) error {
		if err := sandbox.Prepare(root); err != nil {
			return fault.Wrap(fault.Invalid, err, "path: the folder cannot be a sandbox's root file system: %v", err)
		}
		return nil
	})
}
