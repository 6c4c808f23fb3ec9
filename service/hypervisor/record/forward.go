package record

import (
	"context"
	"fmt"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Forward leads a port of the host into the guest.
type Forward struct {
	Protocol    string `json:"protocol"`     // tcp or udp
	HostAddress string `json:"host_address"` // IPv4; 0.0.0.0: all of the host's
	HostPort    int    `json:"host_port"`
	GuestPort   int    `json:"guest_port"`
}

// anyAddress stands for all addresses of the host.
const anyAddress = "0.0.0.0"

// Overlaps reports whether two forwards want the same port of the host.
func (f Forward) Overlaps(g Forward) bool {
	return f.Protocol == g.Protocol && f.HostPort == g.HostPort &&
		(f.HostAddress == g.HostAddress || f.HostAddress == anyAddress || g.HostAddress == anyAddress)
}

// Equal reports whether two networks are the same.
func (n Network) Equal(m Network) bool {
	return n.Mode == m.Mode && n.Bridge == m.Bridge && n.IP == m.IP && slices.Equal(n.Forwards, m.Forwards)
}

// forwards returns the ports that a VM's process has and those that it is to have.
func (r *VM) forwards() []Forward {
	all := r.Spec.V.Network.Forwards
	if h := r.Running.V; h != nil {
		all = slices.Concat(all, h.Network.Forwards)
	}
	return all
}

// checkForwards returns a fault if another VM has a port of the host that a VM wants. The fault does not
// name the other VM, which may be another tenant's. Callers hold the lock of admissions.
func checkForwards(ctx context.Context, tx *db.Tx, r *VM) error {
	wanted := r.Spec.V.Network.Forwards
	if len(wanted) == 0 {
		return nil
	}
	var others []VM
	if err := tx.Select(ctx, &others, `SELECT * FROM vms WHERE id <> ? AND
		(spec LIKE '%"forwards"%' OR running LIKE '%"forwards"%')`, r.ID); err != nil {
		return err
	}
	for i := range others {
		for _, taken := range others[i].forwards() {
			if slices.ContainsFunc(wanted, taken.Overlaps) {
				return fault.New(fault.Conflict, "the %s port %d of %s is forwarded to another VM already",
					taken.Protocol, taken.HostPort, taken.HostAddress).WithCode("port_taken")
			}
		}
	}
	return nil
}

// String returns a forward as in events.
func (f Forward) String() string {
	return fmt.Sprintf("%s:%d:%d/%s", f.HostAddress, f.HostPort, f.GuestPort, f.Protocol)
}
