package daemon

import (
	"context"
	"fmt"
	"net/http"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// VMID returns the ID of a VM that is given by name, by ID, or by the beginning of its ID. Names are
// unique only within a tenant; a name that several tenants use is an error.
func VMID(ctx context.Context, c *Call, name string) (string, error) {
	return vmID(ctx, c, name, false)
}

// ExactVMID is VMID for what cannot be undone: the beginning of an ID is not enough.
func ExactVMID(ctx context.Context, c *Call, name string) (string, error) {
	return vmID(ctx, c, name, true)
}

func vmID(ctx context.Context, c *Call, name string, exact bool) (string, error) {
	return verb.ID(ctx, c, verb.Lookup{What: "VM", List: "mainstay vm list", Exact: exact}, name,
		func(vm hypervisorapi.VM) verb.Object {
			return verb.Object{ID: vm.Id, Name: vm.Name, Owner: fmt.Sprintf("tenant %q", vm.Tenant)}
		},
		func(ctx context.Context, p verb.Page) (*http.Response, error) {
			return c.API.ListVMs(ctx, &hypervisorapi.ListVMsParams{Limit: p.Limit, Cursor: p.Cursor})
		})
}

// OfVM returns a Request for the VM in the first argument.
func OfVM(r func(ctx context.Context, c *Call, id string) (*http.Response, error)) Request {
	return func(ctx context.Context, c *Call) (*http.Response, error) {
		id, err := VMID(ctx, c, c.Args[0])
		if err != nil {
			return nil, err
		}
		return r(ctx, c, id)
	}
}
