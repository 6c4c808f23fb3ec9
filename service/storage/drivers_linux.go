package storage

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/dr"
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

// maxToken is the most bytes of a file with a token.
const maxToken = 64 << 10

// openTokens reads the tokens of the setting mirror-peers.
func (s *Service) openTokens() (map[string]dr.Token, error) {
	files, err := parsePaths("mirror-peers", s.cfg.MirrorPeers)
	if err != nil {
		return nil, err
	}
	tokens := map[string]dr.Token{}
	for name, path := range files {
		raw, err := document.Read(path, maxToken)
		if err != nil {
			return nil, fault.InvalidField("mirror-peers", "%s: %s", name, fault.From(err).Message)
		}
		text := string(raw)
		token, err := ceph.ParseToken(text)
		if err != nil {
			return nil, fault.InvalidField("mirror-peers", "%s: %v", path, err)
		}
		warnReadable(s.log, path)
		tokens[name] = dr.Token{FSID: token.FSID, Text: text, Dial: func(ctx context.Context) error {
			return token.Dial(ctx, ceph.Config{Program: s.cfg.CephProgram, Log: s.log})
		}}
	}
	return tokens, nil
}
