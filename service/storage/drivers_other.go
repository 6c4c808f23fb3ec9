//go:build !linux

package storage

import (
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
)

func openDirectory(_, _ string) (driver.Driver, error) {
	return nil, fault.New(fault.Unavailable, "backends of the type nfs need Linux")
}

func (s *Service) openCeph(_ cephCluster, _ string, _ *rgw.Gateway) (driver.Driver, error) {
	return nil, fault.New(fault.Unavailable, "backends of the type ceph need Linux")
}
