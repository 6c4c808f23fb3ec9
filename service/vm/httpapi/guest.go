package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// What is inside a VM, its console and screen, and its history are the daemon's: requests are passed on to it, and its
// answers back.

// credentialTicket is the x-credential of operations that accept a ticket in the query.
const credentialTicket = "ticket"

// reached returns the VM that a request names, if the daemon has it.
func (a *API) reached(r *http.Request) (record.VM, error) {
	vm, err := a.store.Named(r.Context(), r.PathValue("name"), tenantIn(r))
	switch {
	case err != nil:
	case !vm.Provisioned():
		err = fault.New(fault.Conflict, "the VM is not made yet")
	case vm.State == record.Missing:
		err = fault.New(fault.Conflict, "the VM is missing: the hypervisor daemon does not know it any more")
	}
	return vm, err
}

// tenantIn returns the parameter tenant of a request, or nil.
func tenantIn(r *http.Request) *string {
	query := r.URL.Query()
	if !query.Has("tenant") {
		return nil
	}
	return ref(query.Get("tenant"))
}

// subjectOf returns what a ticket must be for to open a socket: the VM as the request names it.
func subjectOf(r *http.Request) string {
	return r.PathValue("name") + "?" + r.URL.Query().Get("tenant") // no name has a question mark
}

// createTicket issues a ticket for a socket to the VM. It stands for the token of the request.
func (a *API) createTicket(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	vm, err := a.reached(r)
	if err != nil {
		return err
	}
	token, ok := auth.Bearer(r)
	if !ok {
		return errNoToken
	}
	word := auth.NewToken("mvt_")
	hash := auth.HashToken(word)
	ticket, err := a.store.AddTicket(r.Context(), record.Ticket{
		Hash: hash, Subject: subjectOf(r), Token: a.cfg.Tickets.Seal([]byte(token), hash),
	}, &vm)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusCreated, "application/json", vmapi.Ticket{
		Ticket: word, ExpiresAt: ticket.ExpiresAt.UTC(),
	})
}

// redeem returns the caller of a ticket, whose token must still be valid, also while the socket is open.
func (a *API) redeem(r *http.Request, word string) (caller.Caller, error) {
	if err := relay.CheckUpgrade(r); err != nil {
		return caller.Caller{}, err // and the ticket stays valid
	}
	ticket, err := a.store.TakeTicket(r.Context(), auth.HashToken(word))
	if err != nil {
		return caller.Caller{}, err
	}
	token, err := a.cfg.Tickets.Open(ticket.Token, ticket.Hash)
	if err != nil || ticket.Subject != subjectOf(r) {
		return caller.Caller{}, fault.Wrap(fault.Unauthenticated, err, "the ticket is not for this; ask for another")
	}
	c, err := a.holder(r.Context(), string(token))
	if err != nil {
		return caller.Caller{}, err
	}
	ctx := context.WithoutCancel(r.Context())
	shell.SetStill(r.Context(), func() error {
		now, err := a.holder(ctx, string(token))
		if err == nil && now != c {
			err = errNoToken
		}
		return err
	})
	return c, nil
}

// socketTo returns the handler that opens a socket to a channel of a VM.
//
// A request that is not a handshake opens nothing and leaves no entry, but the daemon is asked all the same:
// so a console finds out why a VM has no screen, which browsers do not tell of a socket that fails.
func (a *API) socketTo(channel string) func(http.ResponseWriter, *http.Request, caller.Caller) error {
	return func(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
		vm, err := a.reached(r)
		if err != nil {
			return err
		}
		upgrade := relay.CheckUpgrade(r)
		if fault.Is(upgrade, fault.Denied) {
			return upgrade
		}
		query := r.URL.Query()
		if upgrade == nil && query.Get("ticket") == "" { // issuing a ticket was noted
			if err := a.store.NoteOpening(r.Context(), &vm); err != nil {
				return err
			}
		}
		query.Del("ticket")
		query.Del("tenant")
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(a.cfg.Ending, cancel)()
		if upgrade == nil {
			if err := httpserve.ReserveStream(r); err != nil {
				return err
			}
			httpserve.Lasting(w, r)
		}
		err = a.driver.Forward(w, r.WithContext(ctx), driver.PlaceOf(&vm), channel, query, upgrade == nil)
		if upgrade != nil && fault.Is(err, fault.Internal) {
			return upgrade // the daemon wants a handshake, too
		}
		return err
	}
}

// history passes on what the daemon has measured of a VM.
func (a *API) history(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	vm, err := a.reached(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	query.Del("tenant")
	return a.driver.Forward(w, r, driver.PlaceOf(&vm), "history", query, false)
}

// inGuest returns the handler of an operation of the guest's agent.
func (a *API) inGuest(operation, action string) func(http.ResponseWriter, *http.Request, caller.Caller) error {
	return func(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
		return a.passToGuest(w, r, operation, audit.Entry{Action: action})
	}
}

// exec runs a program in a guest. The audit entry names it, without its arguments, which may be secret.
func (a *API) exec(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return httpserve.BodyError(err)
	}
	var program vmapi.Exec
	if err := json.Unmarshal(raw, &program); err != nil || len(program.Argv) == 0 {
		return fault.InvalidField("argv", "must be a list with a program")
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	detail, err := json.Marshal(map[string]string{"program": program.Argv[0]})
	if err != nil {
		return err
	}
	return a.passToGuest(w, r, "agent/exec", audit.Entry{Action: "vm.exec", Detail: string(detail)})
}

// passToGuest passes a request on to the agent of a guest, and writes the audit entry before it.
func (a *API) passToGuest(w http.ResponseWriter, r *http.Request, operation string, e audit.Entry) error {
	vm, err := a.reached(r)
	if err != nil {
		return err
	}
	e.Target, e.Tenant, e.Message = vm.ID, vm.Tenant, vm.Name
	if err := a.store.Note(r.Context(), e); err != nil {
		return err
	}
	query := r.URL.Query()
	query.Del("tenant")
	httpserve.Lasting(w, r)
	return a.driver.Forward(w, r, driver.PlaceOf(&vm), operation, query, false)
}
