package guest

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Copy returns the command cp.
func (t Reach[A]) Copy() *cobra.Command {
	return t.Command(verb.Verb{
		Use:   "cp FROM TO",
		Short: "Copy a file into a guest or out of it, by its agent",
		Long: `Copy a file into or out of a guest through its agent, with its permissions. One of FROM and TO is VM:/PATH, the other a
local file; write a local name that contains a colon as ./NAME. If TO is a folder (or, in the guest, ends with /), the
file keeps its name there. An existing file is replaced. TO may be - for standard output.`,
		Example: strings.ReplaceAll("  GROUP cp nginx.conf web:/etc/nginx/\n  GROUP cp web:/var/log/syslog .\n  GROUP cp web:/etc/os-release -",
			"GROUP", t.Group),
	}, func(ctx context.Context, c *verb.Call[A]) error {
		fromVM, fromPath, fromGuest := guestPath(c.Args[0])
		toVM, toPath, toGuest := guestPath(c.Args[1])
		switch {
		case fromGuest && toGuest:
			return exit.Usagef("one of FROM and TO must be a local file")
		case fromGuest:
			return t.fetch(ctx, c, fromVM, fromPath, c.Args[1])
		case toGuest:
			return t.send(ctx, c, c.Args[0], toVM, toPath)
		}
		return exit.Usagef("one of FROM and TO must be in a guest: VM:/PATH, with an absolute path")
	})
}

// guestPath parses VM:/PATH.
func guestPath(argument string) (vm, guest string, ok bool) {
	vm, guest, ok = strings.Cut(argument, ":")
	ok = ok && vm != "" && !strings.ContainsAny(vm, "/.") && strings.HasPrefix(guest, "/")
	return vm, guest, ok
}

// send copies a local file to a guest.
func (t Reach[A]) send(ctx context.Context, c *verb.Call[A], local, vm, to string) error {
	source, err := c.OpenSource(local)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // read only
	if strings.HasSuffix(to, "/") {
		to = path.Join(to, filepath.Base(local))
	}
	a, err := c.Send(t.PutFile(ctx, c, vm, Place{to, fmt.Sprintf("%04o", source.Mode)}, source, source.Prepare()))
	file, err := client.Decode[file](t.Service, a, err)
	if err != nil {
		return err
	}
	_ = source.Close() // ends the progress line
	if file.Sha256 != source.Sum() {
		return fmt.Errorf(
			"what arrived at %s:%s is not what was sent: its SHA-256 is %s instead of %s", vm, output.Escape(to),
			output.Escape(file.Sha256), source.Sum(),
		)
	}
	return c.Done(a, "%s:%s has %s.", vm, to, verb.Bytes(file.Size))
}

// fetch copies a file from a guest.
func (t Reach[A]) fetch(ctx context.Context, c *verb.Call[A], vm, from, local string) error {
	if strings.HasSuffix(from, "/") {
		return exit.Usagef("%s:%s is a folder; files are copied one by one", vm, from)
	}
	if info, err := os.Stat(local); err == nil && info.IsDir() || strings.HasSuffix(local, "/") {
		local = filepath.Join(local, path.Base(from))
	}
	r, err := c.Open(t.GetFile(ctx, c, vm, from))
	if err != nil {
		return err
	}
	if local == "-" {
		return c.Print(r)
	}
	n, err := c.Save(r, local, modeOf(r))
	if err != nil {
		return err
	}
	return c.Say("%s has %s.", local, verb.Bytes(n))
}

// modeOf returns the permissions of the guest's file. A guest is not trusted with other mode bits.
func modeOf(r *http.Response) fs.FileMode {
	mode, err := strconv.ParseUint(r.Header.Get("X-File-Mode"), 8, 32)
	if err != nil {
		return 0o644
	}
	return fs.FileMode(mode) & fs.ModePerm
}
