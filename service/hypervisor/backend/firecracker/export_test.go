//go:build linux

package firecracker

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
)

// Calls, JailerArgs and Launch are for tests.
var (
	Calls      = calls
	JailerArgs = jailerArgs
)

// Launch launches the program of a VM and makes no call.
func (b *Backend) Launch(ctx context.Context, s *backend.Spec) (*restsocket.VM, error) {
	p, _, err := b.program(s)
	if err != nil {
		return nil, err
	}
	return restsocket.Launch(ctx, p)
}
