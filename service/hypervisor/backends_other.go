//go:build !linux

package hypervisor

import (
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

// localBackends are none: VMs take Linux. The daemon can be a fleet's registry here.
func (s *Service) localBackends(*configfile.Config) map[string]backend.Backend {
	return map[string]backend.Backend{}
}
