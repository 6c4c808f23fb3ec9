package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/forward"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// ofHost reports whether an operation is one of a host, which the registry forwards, and not of the
// registry itself.
func ofHost(op *contract.Operation) bool { return strings.HasPrefix(op.Path, "/v1/") }

// forwardLimit is the time limit for operations of other hosts that should be answered at once.
const forwardLimit = 45 * time.Second

// forward passes a request on to another host of the fleet. The shell has identified and admitted the
// caller, and checked the request, as for the same operation of this host.
func (a *API) forward(w http.ResponseWriter, r *http.Request, op *contract.Operation, c caller.Caller) error {
	path, err := pathOf(op, r)
	if err != nil {
		return err
	}
	to := fleet.Forwarding{
		Node: r.PathValue("node"), Path: path, Query: r.URL.RawQuery, Tenant: c.Tenant, Actor: c.Name,
	}
	if op.ID == "CreateTicket" {
		return a.forwardTicket(w, r, to)
	}
	if op.Credential == credentialTicket {
		query := r.URL.Query()
		query.Del("ticket") // it is this daemon's
		to.Query = query.Encode()
		upgrade := relay.CheckUpgrade(r)
		if fault.Is(upgrade, fault.Denied) {
			return upgrade
		}
		to.Socket = upgrade == nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.machines.Ending(), cancel)()
	switch {
	case to.Socket || op.Time == contract.Stream:
		if err := httpserve.ReserveStream(r); err != nil {
			return err
		}
		httpserve.Lasting(w, r)
	case op.Time == contract.Usual:
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, forwardLimit)
		defer end()
	}
	status, err := Forward(a.fleet, w, r.WithContext(ctx), to)
	if err != nil {
		return err
	}
	if op.Audit != "" && op.Audit != "none" && status < http.StatusBadRequest {
		a.noteFleet(r.Context(), "fleet."+op.Audit, strings.TrimSuffix(to.Node+"/"+r.PathValue("id"), "/"), c.Tenant, "")
	}
	return nil
}

// Forward sends a request to a node and passes its answer on. It ends with the request's context. It returns the
// status that was answered, or an error if nothing was.
func Forward(to *fleet.Registry, w http.ResponseWriter, r *http.Request, f fleet.Forwarding) (status int, err error) {
	target, err := to.Route(r.Context(), f)
	if err != nil {
		return 0, err
	}
	if status, err = forward.Serve(w, r, target); err != nil {
		err = f.Fault(err)
	}
	return status, err
}

// forwardTicket issues a ticket of this daemon for a VM of another host. So it ends with the caller's
// credentials here, which the other host cannot check.
func (a *API) forwardTicket(w http.ResponseWriter, r *http.Request, to fleet.Forwarding) error {
	to.Path, to.Query = strings.TrimSuffix(to.Path, "/tickets"), ""
	if err := a.fleet.Probe(r.Context(), to); err != nil {
		return err
	}
	word, expires, err := a.issue(r.Context(), subjectOf(r))
	if err != nil {
		return err
	}
	a.noteFleet(r.Context(), "fleet.vm.console", to.Node+"/"+r.PathValue("id"), to.Tenant, "")
	return rest.WriteJSON(w, http.StatusCreated, "application/json", hypervisorapi.Ticket{Ticket: word, ExpiresAt: expires})
}

// pathOf returns the escaped path of an operation with the values that the request has. Values that
// could lead to another operation are refused.
func pathOf(op *contract.Operation, r *http.Request) (string, error) {
	segments := strings.Split(op.Path, "/")
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") {
			continue
		}
		v := r.PathValue(strings.Trim(s, "{}"))
		if v == "" || v == "." || v == ".." || strings.ContainsAny(v, "/\\") {
			return "", fault.New(fault.NotFound, "no such path")
		}
		segments[i] = url.PathEscape(v)
	}
	return strings.Join(segments, "/"), nil
}
