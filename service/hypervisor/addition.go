package hypervisor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"aead.dev/minisign"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Addition is an image to take in.
type Addition struct {
	Name           string        `json:"name"`
	Source         string        `json:"source"` // where it comes from, for people
	Path           string        `json:"path"`   // of the disk or root file system
	Kernel, Initrd string        // instead of a path
	KernelArgs     string        `json:"kernel_args"`
	Signature      string        `json:"signature"`
	Uploaded       bool          `json:"uploaded"` // it lies in the folder of what is taken in
	SHA256         string        `json:"sha256"`   // of what was uploaded
	Incoming       string        `json:"incoming"`
	Demo           bool          `json:"demo"` // build the demonstration's guest
	Actor          caller.Caller `json:"actor"`
}

// Add begins to take in an image that lies on the host.
func (s *Service) Add(ctx context.Context, a Addition) (record.Operation, error) {
	switch {
	case !a.Demo && (a.Path == "") == (a.Kernel == ""):
		return record.Operation{}, fault.InvalidField("path", "give either path or kernel")
	case a.Initrd != "" && a.Kernel == "":
		return record.Operation{}, fault.InvalidField("initrd", "needs a kernel")
	case strings.ContainsFunc(a.KernelArgs, unicode.IsControl):
		return record.Operation{}, fault.InvalidField("kernel_args", "must not contain control characters")
	case a.Signature != "" && a.Path == "":
		return record.Operation{}, fault.InvalidField("signature", "takes a path: only disks are signed")
	case a.Demo && s.agentProgram() == "":
		return record.Operation{}, fault.New(fault.Unavailable, "the demo guest holds the guest agent, which is missing: set guest-agent to the path of mainstay-guest")
	}
	for field, path := range map[string]string{"path": a.Path, "kernel": a.Kernel, "initrd": a.Initrd} {
		if path == "" {
			continue
		}
		f, err := s.filesFor(ctx, "").ImageOrFolder(path)
		if err != nil {
			return record.Operation{}, renamed(err, field)
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
	return s.beginAddition(ctx, a)
}

func (s *Service) beginAddition(ctx context.Context, a Addition) (record.Operation, error) {
	if err := s.replaceable(ctx, a.Name); err != nil {
		return record.Operation{}, err
	}
	a.Actor = caller.From(ctx)
	if a.Incoming == "" {
		a.Incoming = record.NewID()
	}
	return s.operate.Begin(ctx, record.Operation{Kind: record.OperationImage, Image: a.Name}, a, audit.Entry{Action: "image.add", Target: a.Name, Message: withFiles(a.Source, "kernel", a.Kernel, "initrd", a.Initrd)})
}

// replaceable says whether an image may be put under a name. The demonstration's guest
// may be built again; otherwise names are not taken over.
func (s *Service) replaceable(ctx context.Context, name string) error {
	_, err := s.store.Image(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound), err == nil && name == demoImage:
		return nil
	case err == nil:
		return fault.New(fault.Conflict, "there is an image named %s already", name).WithCode("name_taken")
	}
	return err
}

// Upload takes in what a request carries. The bytes are on disk when it returns.
func (s *Service) Upload(ctx context.Context, name, signature string, r io.Reader) (record.Operation, error) {
	if err := s.replaceable(ctx, name); err != nil {
		return record.Operation{}, err
	}
	id := record.NewID()
	folder, err := s.contents.Incoming(id)
	if err != nil {
		return record.Operation{}, err
	}
	sum, err := catalog.Keep(ctx, r, filepath.Join(folder, uploadFile), s.contents.MaxSize())
	if err == nil {
		var op record.Operation
		if op, err = s.beginAddition(ctx, Addition{Name: name, Source: "uploaded by " + caller.From(ctx).Name, Signature: signature, Uploaded: true, SHA256: sum, Incoming: id}); err == nil {
			return op, nil
		}
	}
	return record.Operation{}, errors.Join(err, s.contents.Drop(id))
}

const uploadFile = "upload"

// demoImage is the name of the demonstration's guest.
const demoImage = "demo"

// incomingOf is where an addition, whose arguments these are, takes in its image.
func incomingOf(args string) string {
	var a Addition
	if err := json.Unmarshal([]byte(args), &a); err != nil {
		return ""
	}
	return a.Incoming
}

// runAddition is the job behind an addition. It can be repeated.
func (s *Service) runAddition(ctx context.Context, a Addition, progress func(float64)) error {
	defer s.hold()()
	// What was uploaded is kept for when the daemon is there again.
	defer func() {
		if !operation.BrokenOff(ctx) {
			_ = s.contents.Drop(a.Incoming) // else it is swept at the next start
		}
	}()
	content, valid, signedAt, err := s.take(ctx, a, progress)
	if err != nil {
		return err
	}
	i := record.Image{Name: a.Name, Kind: string(content.Kind), Source: a.Source, SHA256: content.SHA256,
		KernelArgs: a.KernelArgs, Size: content.Size, VirtualSize: content.VirtualSize,
		SignatureValid: valid, SignedAt: signedAt}
	return s.store.AddImage(ctx, &i, a.Demo)
}

// take makes a content of what an addition names.
func (s *Service) take(ctx context.Context, a Addition, progress func(float64)) (c catalog.Content, valid *bool, signedAt db.Time, err error) {
	folder, err := s.contents.Incoming(a.Incoming)
	if err != nil {
		return c, nil, signedAt, err
	}
	switch {
	case a.Demo:
		c, err = s.takeDemo(ctx, a.Incoming, progress)
		return c, nil, signedAt, err
	case a.Kernel != "":
		c, err = s.takeKernel(ctx, a)
		return c, nil, signedAt, err
	}
	path, sum := filepath.Join(folder, uploadFile), a.SHA256
	signature := a.Signature
	if !a.Uploaded {
		files := s.filesFor(ctx, "")
		f, folder, err := imageOrFolder(files, a.Path)
		if err != nil {
			return c, nil, signedAt, err
		}
		defer func() { _ = f.Close() }() // it was only read
		if folder {
			if a.Signature != "" {
				return c, nil, signedAt, fault.InvalidField("signature", "a root file system cannot have one")
			}
			c, err = s.takeFolder(ctx, a.Incoming, f)
			return c, nil, signedAt, err
		}
		if sum, err = catalog.Keep(ctx, f, path, s.contents.MaxSize()); err != nil {
			return c, nil, signedAt, err
		}
		if signature == "" {
			signature = signatureBeside(files, a.Path)
		}
	}
	progress(0.2)
	if signature != "" {
		good, at, err := s.verify(path, signature)
		if err != nil {
			return c, nil, signedAt, err
		}
		valid, signedAt = &good, at
	}
	c, err = s.contents.TakeDisk(ctx, path, sum, func(done float64) { progress(0.2 + 0.8*done) })
	return c, valid, signedAt, err
}

// filesFor are the files of the host, as the caller may name them in a request for a tenant.
func (s *Service) filesFor(ctx context.Context, tenant string) admission.Files {
	return s.policy.Files(caller.From(ctx).NamesHostFiles(tenant))
}

// withFiles is a message of the audit log with the paths of files of the host that the entry
// is about, each after its field's name; empty paths are left out.
func withFiles(message string, named ...string) string {
	for i := 0; i+1 < len(named); i += 2 {
		if path := named[i+1]; path != "" {
			message += "; " + named[i] + " " + path
		}
	}
	return message
}

// imageOrFolder opens what is at a path, and says whether that is a folder.
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

// signatureBeside is the signature that minisign put beside a file; empty: none.
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

func (s *Service) takeKernel(ctx context.Context, a Addition) (catalog.Content, error) {
	files := s.filesFor(ctx, "")
	kernel, err := files.Image(a.Kernel)
	if err != nil {
		return catalog.Content{}, renamed(err, "kernel")
	}
	defer func() { _ = kernel.Close() }() // it was only read
	if a.Initrd == "" {
		return s.contents.TakeKernel(ctx, a.Incoming, kernel, nil)
	}
	initrd, err := files.Image(a.Initrd)
	if err != nil {
		return catalog.Content{}, renamed(err, "initrd")
	}
	defer func() { _ = initrd.Close() }() // it was only read
	return s.contents.TakeKernel(ctx, a.Incoming, kernel, initrd)
}

// takeDemo builds the demonstration's guest. What was downloaded for it is kept.
func (s *Service) takeDemo(ctx context.Context, id string, progress func(float64)) (catalog.Content, error) {
	const steps = 4
	done := 0
	guest, err := demo.Build(ctx, demo.Options{Folder: filepath.Join(s.data, "demo"), Agent: s.agentProgram(), Progress: func(string) { done++; progress(float64(done) / steps) }})
	if err != nil {
		return catalog.Content{}, err
	}
	kernel, err := os.Open(guest.Kernel)
	if err != nil {
		return catalog.Content{}, err
	}
	defer func() { _ = kernel.Close() }() // it was only read
	initrd, err := os.Open(guest.Initrd)
	if err != nil {
		return catalog.Content{}, err
	}
	defer func() { _ = initrd.Close() }() // it was only read
	return s.contents.TakeKernel(ctx, id, kernel, initrd)
}

// takePath makes a content of an image that a VM's request names by its path.
func (s *Service) takePath(ctx context.Context, files admission.Files, path string) (catalog.Content, error) {
	f, isFolder, err := imageOrFolder(files, path)
	if err != nil {
		return catalog.Content{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	id := record.NewID()
	defer func() { _ = s.contents.Drop(id) }()
	if isFolder {
		return s.takeFolder(ctx, id, f)
	}
	folder, err := s.contents.Incoming(id)
	if err != nil {
		return catalog.Content{}, err
	}
	kept := filepath.Join(folder, uploadFile)
	sum, err := catalog.Keep(ctx, f, kept, s.contents.MaxSize())
	if err != nil {
		return catalog.Content{}, err
	}
	return s.contents.TakeDisk(ctx, kept, sum, nil)
}

// takeFolder makes a content of a folder that is open.
func (s *Service) takeFolder(ctx context.Context, id string, f *os.File) (catalog.Content, error) {
	check, err := s.policy.RefuseOwn()
	if err != nil {
		return catalog.Content{}, err
	}
	return s.contents.TakeRootFS(ctx, id, f, check, func(root *os.Root) error {
		if err := sandbox.Prepare(root); err != nil {
			return fault.Wrap(fault.Invalid, err, "path: the folder cannot be a sandbox's root file system: %v", err)
		}
		return nil
	})
}

var signedAtComment = regexp.MustCompile(`(?:^|\s)timestamp:(\d{1,12})(?:\s|$)`)

// verify holds a file against a minisign signature and the configured keys.
func (s *Service) verify(path, text string) (good bool, signedAt db.Time, err error) {
	var signature minisign.Signature
	if err := signature.UnmarshalText([]byte(text)); err != nil {
		return false, signedAt, fault.InvalidField("signature", "is no minisign signature")
	}
	if found := signedAtComment.FindStringSubmatch(signature.TrustedComment); found != nil {
		if seconds, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			signedAt = db.At(time.Unix(seconds, 0))
		}
	}
	f, err := os.Open(path) //nolint:gosec // below our own folder
	if err != nil {
		return false, signedAt, err
	}
	defer func() { _ = f.Close() }() // it was only read
	reader := minisign.NewReader(f)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return false, signedAt, err
	}
	for _, line := range s.doc.Images.PublicKeys {
		var key minisign.PublicKey
		if err := key.UnmarshalText([]byte(strings.TrimSpace(line))); err != nil {
			return false, signedAt, err
		}
		if reader.Verify(key, []byte(text)) {
			return true, signedAt, nil
		}
	}
	return false, signedAt, nil
}
