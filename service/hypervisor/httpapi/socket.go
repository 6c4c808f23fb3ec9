package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// visitor is who holds a ticket.
type visitor struct {
	caller.Caller
	still func() error // checks the credentials again that the ticket stands for
}

// ownerOf returns the name under which a caller's tickets are counted.
func ownerOf(v visitor) string { return v.Key() }

// ticket issues a ticket for a socket to the VM. The request does not say which socket, so the
// ticket is valid for one use with any operation that accepts tickets.
func (a *API) ticket(ctx context.Context, id string) (string, time.Time, error) {
	r, err := a.store.VM(ctx, id)
	if err != nil {
		return "", time.Time{}, err
	}
	word, expires, err := a.issue(ctx, id)
	if err != nil {
		return "", time.Time{}, err
	}
	return word, expires, a.store.Note(ctx, openingOf(&r))
}

// subjectOf returns what a ticket must be for to open a socket: a VM, or a VM on another host.
func subjectOf(r *http.Request) string {
	node, id := r.PathValue("node"), r.PathValue("id")
	if node == "" {
		return id
	}
	return node + "\x00" + id // no path holds a NUL
}

// issue issues a ticket for all sockets of a subject.
func (a *API) issue(ctx context.Context, subject string) (string, time.Time, error) {
	var sockets []string
	for _, op := range a.shell.Contract().Operations() {
		if op.Credential == credentialTicket {
			sockets = append(sockets, op.ID)
		}
	}
	return a.tickets.Issue(visitor{caller.From(ctx), shell.Still(ctx)}, subject, sockets...)
}

// openingOf returns the audit entry for opening a VM's console or screen.
func openingOf(r *record.VM) audit.Entry {
	return audit.Entry{Action: "vm.console", Target: r.ID, Tenant: r.Tenant, Message: r.Name}
}

// opened returns the VM to which a request opens a socket. It writes the audit entry, unless the
// request has a ticket, whose issuing was audited.
//
// A request that cannot be upgraded opens nothing, so it leaves no entry, but is otherwise handled
// the same. The web console uses this to find out why a VM has no console, which browsers do not
// tell pages for failed WebSockets.
func (a *API) opened(r *http.Request) (record.VM, error) {
	found, err := a.store.VM(r.Context(), r.PathValue("id"))
	if err != nil || r.URL.Query().Get("ticket") != "" || relay.CheckUpgrade(r) != nil {
		return found, err
	}
	return found, a.store.Note(r.Context(), openingOf(&found))
}

// openConsole upgrades a request to a socket to the serial console.
func (a *API) openConsole(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	found, err := a.opened(r)
	if err != nil {
		return err
	}
	if found.Backend == backend.Sandbox {
		return a.serveChannel(w, r, &found, backend.ConsoleChannel) // every socket gets its own shell
	}
	query := r.URL.Query()
	from := relay.Position{Log: query.Get("log")}
	from.Offset, _ = strconv.ParseInt(query.Get("offset"), 10, 64) // the contract has checked it
	viewer, err := a.machines.Get(found.ID).Console(&found, from)
	if err != nil {
		return err
	}
	var greeting []byte
	if query.Has("offset") {
		if greeting, err = json.Marshal(viewer.Start()); err != nil {
			return err
		}
	}
	return a.serve(w, r, viewer, greeting)
}

// openScreen upgrades a request to a socket to the screen.
func (a *API) openScreen(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	found, err := a.opened(r)
	if err != nil {
		return err
	}
	return a.serveChannel(w, r, &found, backend.ScreenChannel)
}

// serveDisk upgrades a request to a socket on which the caller serves a disk of the VM.
func (a *API) serveDisk(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	if err := relay.CheckUpgrade(r); err != nil {
		return err
	}
	stream, err := a.life.ServeDisk(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return a.serve(w, r, stream, nil)
}

// serveChannel upgrades a request to a socket to a channel that only this caller uses.
func (a *API) serveChannel(w http.ResponseWriter, r *http.Request, found *record.VM, channel backend.Channel) error {
	instance, _ := a.machines.Get(found.ID).Process()
	if instance == nil {
		return fault.New(fault.Conflict,
			"the VM is %s; it has a %s while it runs", found.State, channel).WithCode("wrong_state")
	}
	if channel == backend.ConsoleChannel {
		// No shell is started without a socket. A screen is dialled anyway, since not every VM has
		// one.
		if err := relay.CheckUpgrade(r); err != nil {
			return err
		}
	}
	stream, err := instance.Dial(r.Context(), channel)
	if err != nil {
		return err
	}
	return a.serve(w, r, stream, nil)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, stream io.ReadWriteCloser, greeting []byte) error {
	until, cancel := context.WithCancel(r.Context()) // which ends with the caller's permission
	defer cancel()
	defer context.AfterFunc(a.machines.Ending(), cancel)()
	return relay.Serve(until, w, r, stream, relay.Options{Log: a.log, Greeting: greeting})
}
