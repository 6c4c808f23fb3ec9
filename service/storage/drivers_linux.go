package storage

import (
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
)

func openDirectory(path, id string) (driver.Driver, error) { return directory.Open(path, id) }

// openCeph opens a cluster, which must have the fsid if one is given.
func (s *Service) openCeph(c cephCluster, fsid string) (driver.Driver, error) {
	return ceph.Open(ceph.Config{
		Connection: wire.Connection{ConfFile: c.conf, User: c.user}, FSID: fsid, Program: s.cfg.CephProgram, Log: s.log,
	})
}
