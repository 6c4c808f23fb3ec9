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
	return c.ID(ctx, "VM", name, false)
}

// ExactVMID is VMID for what cannot be undone: the beginning of an ID is not enough.
func ExactVMID(ctx context.Context, c *Call, name string) (string, error) {
	return c.ID(ctx, "VM", name, true)
}

// kinds are what arguments of the commands name.
var kinds = map[string]*verb.Kind[*hypervisorapi.Client]{
	"VM": {
		What: "VM", Listed: "mainstay vm list", Flags: []string{"vm", "into"}, AsTyped: true, Searched: true,
		List: func(ctx context.Context, c *Call, p verb.Page) (*http.Response, error) {
			return c.API.ListVMs(ctx, &hypervisorapi.ListVMsParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Get: func(ctx context.Context, c *Call, id string) (*http.Response, error) { return c.API.GetVM(ctx, id) },
		Object: verb.As(&Service, func(vm hypervisorapi.VM) verb.Object {
			return verb.Object{ID: vm.Id, Name: vm.Name, Owner: fmt.Sprintf("tenant %q", vm.Tenant)}
		}),
	},
	"BACKUP": {
		What: "backup", Listed: "mainstay vm backup list",
		List: func(ctx context.Context, c *Call, p verb.Page) (*http.Response, error) {
			return c.API.ListBackups(ctx, &hypervisorapi.ListBackupsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(b hypervisorapi.Backup) verb.Object { return verb.Object{ID: b.Id} }),
	},
	"OPERATION": {
		What: "operation", Listed: "mainstay vm operation list",
		List: func(ctx context.Context, c *Call, p verb.Page) (*http.Response, error) {
			return c.API.ListOperations(ctx, &hypervisorapi.ListOperationsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(o hypervisorapi.Operation) verb.Object { return verb.Object{ID: o.Id} }),
	},
	"IMAGE": {
		What: "image", Listed: "mainstay image list", Flags: []string{"image"}, AsTyped: true, Searched: true,
		List: func(ctx context.Context, c *Call, p verb.Page) (*http.Response, error) {
			return c.API.ListImages(ctx, &hypervisorapi.ListImagesParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Object: verb.As(&Service, func(i hypervisorapi.Image) verb.Object { return verb.Object{Name: i.Name} }),
	},
	"NODE": {
		What: "host", Listed: "mainstay fleet node list", Flags: []string{"node", "on", "to"}, AsTyped: true,
		List:   func(ctx context.Context, c *Call, _ verb.Page) (*http.Response, error) { return c.API.ListNodes(ctx) },
		Object: verb.As(&Service, func(n hypervisorapi.Node) verb.Object { return verb.Object{Name: n.Name} }),
	},
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
