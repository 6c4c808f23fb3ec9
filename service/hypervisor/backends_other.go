//go:build !linux

package hypervisor

import "github.com/mainstay-infra/mainstay/service/hypervisor/backend"

// localBackends are none: VMs take Linux. The daemon can be a fleet's registry here.
func (s *Service) localBackends() map[string]backend.Backend { return map[string]backend.Backend{} }

func tapCounters(string) (received, sent int64) { return 0, 0 }

func memoryOfHost() int { return 0 }

func descendants(int) []int { return nil }
