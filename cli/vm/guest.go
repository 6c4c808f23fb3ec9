package vm

import (
	"context"
	"io"
	"net/http"
	"net/url"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/guest"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func pathOf(id string) string { return "v1/vms/" + id }

// guests is how the daemon is asked for what is in guests.
func (s commands) guests() guest.Reach[*hypervisorapi.Client] {
	return guest.Reach[*hypervisorapi.Client]{
		Session: s.Session, Service: &daemon.Service, Group: "mainstay vm", Screen: "vnc",
		At: func(ctx context.Context, c *daemon.Call, vm string) (string, url.Values, error) {
			id, err := daemon.VMID(ctx, c, vm)
			return pathOf(id), nil, err
		},
		Exec: func(ctx context.Context, c *daemon.Call, vm string, p guest.Program) (*http.Response, error) {
			id, err := daemon.VMID(ctx, c, vm)
			if err != nil {
				return nil, err
			}
			return c.Slow.Exec(ctx, id, hypervisorapi.Exec{
				Argv: p.Argv, Cwd: p.Cwd, Env: p.Env, Stdin: p.Stdin, Stream: p.Stream, TimeoutSeconds: p.TimeoutSeconds,
			})
		},
		PutFile: func(
			ctx context.Context, c *daemon.Call, vm string, to guest.Place, body io.Reader, prepare rest.Editor,
		) (*http.Response, error) {
			id, err := daemon.VMID(ctx, c, vm)
			if err != nil {
				return nil, err
			}
			return c.Slow.PutFileWithBody(
				ctx, id, &hypervisorapi.PutFileParams{Path: &to.Path, Mode: &to.Mode}, "application/octet-stream", body, prepare,
			)
		},
		GetFile: func(ctx context.Context, c *daemon.Call, vm, path string) (*http.Response, error) {
			id, err := daemon.VMID(ctx, c, vm)
			if err != nil {
				return nil, err
			}
			return c.Slow.GetFile(ctx, id, hypervisorapi.GetFile{Path: path})
		},
	}
}
