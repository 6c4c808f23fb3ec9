package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// maxSignature is the largest minisign signature, in bytes.
const maxSignature = 4096

func added(_ *daemon.Call, op hypervisorapi.Operation) string {
	if op.Image == nil {
		return "Added the image."
	}
	return fmt.Sprintf("Added the image %s; 'mainstay vm run %s' runs it.", *op.Image, *op.Image)
}

func (s commands) buildDemo() *cobra.Command {
	return daemon.Operation(s.Session, verb.Verb{
		Use:   "build-demo",
		Short: "Build the image demo, a small guest that boots in seconds",
		Long: `Build the image demo, a small guest that boots in seconds, from the host's busybox and a kernel. The kernel is Debian's
for clouds, which is downloaded once (27 MB) unless 'make run' or apt has done so, or else one installed on the host.`,
		Example: "  mainstay image build-demo && mainstay vm run demo",
	}, func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		return c.API.BuildDemoImage(ctx, hypervisorapi.Nothing{})
	}, added)
}

func (s commands) create() *cobra.Command {
	var kernel, initrd, kernelArgs, signature string
	cmd := daemon.Operation(s.Session, verb.Verb{
		Use: "create NAME [PATH]", Aliases: []string{"add"},
		Short: "Take in an image that lies on the daemon's host",
		Long: `Make an image of a file on the daemon's host: PATH is a disk image, or a folder with the root file system of
sandboxes. For a guest that boots without a disk, give --kernel and --initrd instead. Paths are absolute paths on the
host.`,
		Example: "  mainstay image create debian-12 /srv/images/debian-12.qcow2\n  mainstay image create tiny --kernel /boot/vmlinuz --initrd /boot/initrd.img --kernel-args console=ttyS0",
	}, func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		request := hypervisorapi.ImageSpec{
			Name:       c.Args[0],
			Kernel:     verb.Given(c, "kernel", kernel),
			Initrd:     verb.Given(c, "initrd", initrd),
			KernelArgs: verb.Given(c, "kernel-args", kernelArgs),
		}
		if len(c.Args) > 1 {
			request.Path = &c.Args[1]
		}
		if (request.Path == nil) == (request.Kernel == nil) {
			return nil, exit.Usagef("give either PATH or --kernel")
		}
		if signature != "" {
			text, err := verb.ReadText("signature", signature, maxSignature)
			if err != nil {
				return nil, err
			}
			request.Signature = &text
		}
		return c.API.AddImage(ctx, nil, request)
	}, added)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return exit.Usagef("NAME is missing")
		case len(args) > 2:
			return exit.Usagef("unexpected argument %q", args[2])
		case len(args) == 2 && !filepath.IsAbs(args[1]):
			return exit.Hinted(
				exit.Usagef("PATH must be absolute, since it is one of the daemon's host, not %q", args[1]),
				"'mainstay image import' sends a file from here",
			)
		}
		return nil
	}
	f := cmd.Flags()
	f.StringVar(&kernel, "kernel", "", "path on the host of a kernel")
	f.StringVar(&initrd, "initrd", "", "path on the host of its initial RAM disk")
	f.StringVar(&kernelArgs, "kernel-args", "", "arguments of the kernel")
	f.StringVar(&signature, "signature", "", "file with the minisign signature of the file at PATH")
	return cmd
}

func (s commands) upload() *cobra.Command {
	var signature string
	cmd := s.Command(verb.Verb{
		Use:   "import NAME FILE",
		Short: "Send a disk image to the daemon's host and take it in",
		Long: `Send a disk image to the daemon's host and take it in. A minisign signature in FILE.minisig is sent with it, or that of
--signature.`,
		Example: "  mainstay image import debian-12 debian-12-genericcloud-amd64.qcow2\n  mainstay image import ours ours.img --signature keys/ours.minisig",
	}, func(ctx context.Context, c *daemon.Call) error {
		text, err := signatureOf(c.Args[1], signature)
		if err != nil {
			return err
		}
		source, err := c.OpenSource(c.Args[1])
		if err != nil {
			return err
		}
		return daemon.Follow(ctx, c, func() (*http.Response, error) {
			defer func() { _ = source.Close() }() // read only
			return c.Slow.UploadImageWithBody(
				ctx, c.Args[0], &hypervisorapi.UploadImageParams{Signature: text}, "application/octet-stream",
				source, source.Prepare(),
			)
		}, added)
	})
	cmd.Flags().StringVar(
		&signature, "signature", "", "file with the minisign signature (default: FILE.minisig if it is there)",
	)
	daemon.FollowFlag(cmd)
	return cmd
}

// signatureOf returns the signature of a file: from the named file, or from the .minisig file next
// to it if that exists.
func signatureOf(path, named string) (*string, error) {
	from := named
	if from == "" {
		from = path + ".minisig"
	}
	text, err := verb.ReadText("signature", from, maxSignature)
	if errors.Is(err, fs.ErrNotExist) && named == "" {
		return nil, nil
	}
	return &text, err
}
