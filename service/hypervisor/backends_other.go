//go:build !linux

package hypervisor

import (
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

// localBackends returns none: running VMs requires Linux. The daemon can still be a fleet registry.
func (s *Service) localBackends(*configfile.Config) map[string]backend.Backend {
	return map[string]backend.Backend{}
}
