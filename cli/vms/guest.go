package vms

import (
	"context"
	"io"
	"net/http"
	"net/url"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/guest"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// guests is how the service is asked for what is in guests.
func (s commands) guests() guest.Reach[*vmapi.Client] {
	return guest.Reach[*vmapi.Client]{
		Session: s.session, Service: &Service, Group: "mainstay vms", Screen: "screen",
		At: func(_ context.Context, _ *call, vm string) (string, url.Values, error) {
			query := url.Values{}
			if *s.tenant != "" {
				query.Set("tenant", *s.tenant)
			}
			return "api/vms/" + url.PathEscape(vm), query, nil
		},
		Exec: func(ctx context.Context, c *call, vm string, p guest.Program) (*http.Response, error) {
			return c.Slow.Exec(ctx, vm, &vmapi.ExecParams{Tenant: s.of()}, vmapi.Exec{
				Argv: p.Argv, Cwd: p.Cwd, Env: p.Env, Stdin: p.Stdin, Stream: p.Stream, TimeoutSeconds: p.TimeoutSeconds,
			})
		},
		PutFile: func(
			ctx context.Context, c *call, vm string, to guest.Place, body io.Reader, prepare rest.Editor,
		) (*http.Response, error) {
			params := vmapi.PutFileParams{Tenant: s.of(), Path: &to.Path, Mode: &to.Mode}
			return c.Slow.PutFileWithBody(ctx, vm, &params, "application/octet-stream", body, prepare)
		},
		GetFile: func(ctx context.Context, c *call, vm, path string) (*http.Response, error) {
			return c.Slow.GetFile(ctx, vm, &vmapi.GetFileParams{Tenant: s.of()}, vmapi.GetFile{Path: path})
		},
	}
}
