package storage

import (
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
)

func openDirectory(path, id string) (driver.Driver, error) { return directory.Open(path, id) }

// openCeph opens a cluster, which must have the fsid if one is given. gateway may be nil.
func (s *Service) openCeph(c cephCluster, fsid string, gateway *rgw.Gateway) (driver.Driver, error) {
	d, err := ceph.Open(ceph.Config{
		Connection: wire.Connection{ConfFile: c.conf, User: c.user}, FSID: fsid, Program: s.cfg.CephProgram, Log: s.log,
	})
	if err != nil || gateway == nil {
		return d, err
	}
	return cephWithBuckets{d, gateway}, nil
}

// cephWithBuckets is a cluster with its object gateway.
type cephWithBuckets struct {
	*ceph.Driver
	*rgw.Gateway
}

// Capabilities returns what both can do.
func (c cephWithBuckets) Capabilities() driver.Capabilities {
	can := c.Driver.Capabilities()
	can.Object = true
	return can
}
