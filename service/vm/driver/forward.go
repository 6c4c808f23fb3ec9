package driver

import (
	"net/http"
	"net/url"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/forward"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Forward passes a request on to an operation of a VM at the daemon, such as "agent/exec", and the answer back.
// socket says that the request is a valid handshake of a WebSocket. It fails if nothing was answered.
func (d *Driver) Forward(
	w http.ResponseWriter, r *http.Request, at Place, operation string, query url.Values, socket bool,
) error {
	to, err := url.Parse(d.base(at.Node) + "/v1/vms/" + url.PathEscape(at.ID) + "/" + operation)
	if err != nil {
		return err
	}
	to.RawQuery = query.Encode()
	ctx := forTenant(r.Context(), at.Tenant)
	as := &http.Request{Header: http.Header{}}
	if err := d.authorize(ctx, as); err != nil {
		return err
	}
	_, err = forward.Serve(w, r.WithContext(ctx), forward.Target{
		URL: to, Header: as.Header, Transport: d.http.Transport, Socket: socket,
		Refused: func(res *http.Response) error {
			_, err := rest.Read(res, nil)
			return err
		},
	})
	if fault.Is(err, fault.TooLarge) {
		return err
	}
	return d.translate(ctx, at, err)
}

// base returns the URL of a host's API.
func (d *Driver) base(node string) string {
	base := d.cfg.URL
	if node != "" {
		base += "/fleet/nodes/" + url.PathEscape(node)
	}
	return base + hypervisorapi.BasePath
}
