//go:build linux

package cloudhypervisor

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
)

// These are for tests.
var (
	ConfigOf = configOf
	Count    = count
	Put      = put
	Get      = get
)

// Launch launches the program of a VM and makes no call.
func (b *Backend) Launch(ctx context.Context, s *backend.Spec) (*restsocket.VM, error) {
	return restsocket.Launch(ctx, b.program(s))
}
