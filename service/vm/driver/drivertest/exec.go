package drivertest

import (
	"encoding/json"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// Guest has f answer for the agents of all guests: it is given a VM's name and a program with its
// arguments, and returns how the program ended, or nil if the guest does not have it. Until it is
// called, no guest has an agent.
func (d *Daemon) Guest(f func(vm string, argv []string) *hypervisorapi.ExecOutcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guest = f
}

func (d *Daemon) exec(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		var spec hypervisorapi.Exec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			return 400, errorBody(400, "%v", err)
		}
		if vm.State != "running" {
			return 409, errorBody(409, "the VM is %s; its agent can be reached while it runs", vm.State)
		}
		if value(vm.ServedDisk, false) {
			return 200, d.looked(vm, spec.Argv)
		}
		if d.guest == nil {
			return 409, hypervisorapi.Error{Code: "no_agent", Error: "the VM was made without an agent", RequestId: "r"}
		}
		out := d.guest(vm.Name, spec.Argv)
		if out == nil {
			return 400, hypervisorapi.Error{
				Code: "agent_not_found", Error: "the guest refuses: argv: there is no program " + spec.Argv[0] + " in PATH",
				RequestId: "r",
			}
		}
		return 200, *out
	})
}
