//go:build !linux

package storage

import (
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/dr"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
)

func openDirectory(_, _ string) (driver.Driver, error) {
	return nil, fault.New(fault.Unavailable, "backends of the type nfs need Linux")
}

func (s *Service) openTokens() (map[string]dr.Token, error) {
	if len(s.cfg.MirrorPeers) > 0 {
		return nil, fault.InvalidField("mirror-peers", "mirroring needs Linux")
	}
	return nil, nil
}

func (s *Service) openCeph(_ cephCluster, _ string, _ *rgw.Gateway) (driver.Driver, error) {
	return nil, fault.New(fault.Unavailable, "backends of the type ceph need Linux")
}
