package fleet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"sync/atomic"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// peer is a client for a node.
type peer struct {
	name string
	api  *hypervisorapi.Client
}

func (r *Registry) peer(n *nodeRow) (peer, error) {
	api, err := hypervisorapi.NewClient(
		n.URL+hypervisorapi.BasePath, rest.WithHTTPClient(r.http), rest.WithEditor(authorize(r.cfg.Token)),
	)
	return peer{n.Name, api}, err
}

// vmID matches valid ids of VMs. They are used in paths.
var vmID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// errNotSent is the error if nothing of a request was sent.
var errNotSent = errors.New("nothing was sent")

// create requests a VM. The error wraps errNotSent if the node cannot know of the request.
func (p peer) create(ctx context.Context, spec []byte, name, tenant string) (hypervisorapi.FleetVM, error) {
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(
		ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }},
	)
	res, err := p.api.CreateVMWithBody(traced, "application/json", bytes.NewReader(spec))
	if err != nil {
		// A dead connection of the pool is replaced only if nothing was written to it.
		var op *net.OpError
		if !connected.Load() || errors.As(err, &op) && op.Op == "dial" {
			err = errors.Join(errNotSent, err)
		}
		return hypervisorapi.FleetVM{}, err
	}
	var vm hypervisorapi.FleetVM
	if err := read(res, http.StatusCreated, maxVM, &vm); err != nil {
		return vm, err
	}
	if vm.Name != name {
		return vm, garbage("it made another VM than was asked for")
	}
	return vm, p.adopt(&vm, tenant)
}

// get returns one VM.
func (p peer) get(ctx context.Context, id string) (hypervisorapi.FleetVM, error) {
	res, err := p.api.GetVM(ctx, id)
	if err != nil {
		return hypervisorapi.FleetVM{}, err
	}
	var vm hypervisorapi.FleetVM
	if err := read(res, http.StatusOK, maxVM, &vm); err != nil {
		return vm, err
	}
	if vm.Id != id {
		return vm, garbage("it answers with another VM than was asked for")
	}
	return vm, p.adopt(&vm, "")
}

func (p peer) delete(ctx context.Context, id string) error {
	res, err := p.api.DeleteVM(ctx, id)
	if err != nil {
		return err
	}
	return read(res, http.StatusNoContent, 0, nil)
}

// adopt checks a VM that a node reports and sets its node. If tenant is set, the VM must be that
// tenant's.
func (p peer) adopt(vm *hypervisorapi.FleetVM, tenant string) error {
	if !vmID.MatchString(vm.Id) || !vm.State.Valid() || !vm.Backend.Valid() || vm.CreatedAt.Equal(time.Time{}) {
		return garbage("its answer is not in the form of a daemon's")
	}
	if tenant != "" && vm.Tenant != tenant {
		return garbage("it answers with another tenant's VM")
	}
	vm.Node = p.name
	if vm.Ips == nil {
		vm.Ips = []string{}
	}
	if vm.Pending == nil { // the host's version is earlier
		vm.Pending = []string{}
	}
	if vm.Labels == nil {
		vm.Labels = hypervisorapi.Labels{}
	}
	return nil
}
