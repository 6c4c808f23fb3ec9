package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// VMID returns the id of a VM that is given by id or by name. Names are unique only within a
// tenant; a name that several tenants use is an error.
func VMID(ctx context.Context, c *Call, name string) (string, error) {
	if uuid.Validate(name) == nil {
		return name, nil
	}
	var found []hypervisorapi.VM
	_, err := c.Pages(0, func(items []json.RawMessage) error {
		for _, item := range items {
			vm, err := Decode[hypervisorapi.VM](Answer{Body: item}, nil)
			if err != nil {
				return err
			}
			if vm.Name == name || vm.Id == name {
				found = append(found, vm)
			}
		}
		return nil
	}, func(p verb.Page) (*http.Response, error) {
		return c.API.ListVMs(ctx, &hypervisorapi.ListVMsParams{Limit: p.Limit, Cursor: p.Cursor})
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", &exit.Error{
			Code: exit.NotFound,
			Err:  fmt.Errorf("there is no VM %s", output.Escape(name)),
			Hint: "'mainstay vm list' shows what there is",
		}
	case len(found) > 1:
		which := make([]string, len(found))
		for i, vm := range found {
			which[i] = fmt.Sprintf("%s (tenant %q)", vm.Id, vm.Tenant)
		}
		return "", exit.Usagef(
			"several VMs have the name %s; name one by its id: %s", output.Escape(name),
			output.Escape(strings.Join(which, ", ")),
		)
	}
	return found[0].Id, nil
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
