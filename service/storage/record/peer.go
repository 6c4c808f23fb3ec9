package record

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// States of peers.
const (
	PeerUnknown     = "unknown" // it was not asked yet
	PeerReachable   = "reachable"
	PeerUnreachable = "unreachable"
)

// Peer is a cluster that volumes can be mirrored to. The same peer stands for both directions.
type Peer struct {
	ID        string  `db:"id"`
	Name      string  `db:"name"`
	ClusterID string  `db:"cluster_id"`
	RemoteID  string  `db:"remote_id"` // empty: the gateway does not know the other cluster
	FSID      string  `db:"fsid"`      // of the other cluster
	OneWay    bool    `db:"one_way"`   // volumes are only copied from there
	SecretRef string  `db:"secret_ref"`
	State     string  `db:"state"`
	LastError string  `db:"last_error"`
	CreatedAt db.Time `db:"created_at"`
}

var errNoPeer = fault.New(fault.NotFound, "there is no such peer")

// Peers lists peers, newest first, before an id. cluster is the id of one of their clusters; empty: all.
func (s *Store) Peers(ctx context.Context, cluster, before string, limit int) (all []Peer, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM peers WHERE (? = '' OR cluster_id = ? OR remote_id = ?)
		AND (? = '' OR id < ?) ORDER BY id DESC LIMIT ?`, cluster, cluster, cluster, before, before, limit)
}

// Peer returns a peer by its id or its name.
func (s *Store) Peer(ctx context.Context, named string) (Peer, error) {
	return peerIn(ctx, s.db, named, "")
}

func peerIn(ctx context.Context, q db.Querier, named, lock string) (p Peer, err error) {
	err = q.Get(ctx, &p, "SELECT * FROM peers WHERE id = ? OR name = ?"+lock, named, named)
	if errors.Is(err, db.ErrNoRows) {
		err = errNoPeer
	}
	return p, err
}

// SiteOf returns the Ceph cluster at this site that a peer is for. cluster is its id; empty: there is only one.
func (s *Store) SiteOf(ctx context.Context, cluster string) (c Cluster, b Backend, err error) {
	var all []Cluster
	if err := s.db.Select(ctx, &all, `SELECT c.* FROM clusters c JOIN backends b ON b.id = c.backend_id
		WHERE b.type = ? AND (? = '' OR c.id = ?) ORDER BY c.id LIMIT 2`, TypeCeph, cluster, cluster); err != nil {
		return c, b, err
	}
	switch len(all) {
	case 0:
		return c, b, fault.InvalidField("cluster", "there is no Ceph cluster of this name")
	case 1:
		b, err = s.Backend(ctx, all[0].BackendID)
		return all[0], b, err
	}
	return c, b, fault.InvalidField("cluster", "there are several Ceph clusters: name one")
}

// CreatePeer stores a peer. The other cluster is the one with its fsid, if the gateway knows that.
func (s *Store) CreatePeer(ctx context.Context, p Peer) (Peer, error) {
	err := s.update(ctx, func(tx *db.Tx) error {
		p.ID, p.CreatedAt, p.State = NewID(), db.At(s.now()), PeerUnknown
		var remote Cluster
		err := tx.Get(ctx, &remote, "SELECT * FROM clusters WHERE native_id = ?", p.FSID)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		switch {
		case p.RemoteID != "" && p.RemoteID != remote.ID:
			return fault.InvalidField("remote_cluster", "the token is of another cluster: its fsid is %s", p.FSID)
		case remote.ID == p.ClusterID:
			return fault.InvalidField("secret_ref", "the token is of the cluster itself, not of another one")
		}
		p.RemoteID = remote.ID
		if err := tx.Insert(ctx, "peers", &p); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "peer.create", Target: p.ID, Message: p.Name + ", fsid " + p.FSID})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a peer named %s already, or another peer is this cluster", p.Name)
	}
	return p, err
}

// DeletePeer removes a peer that no mirror uses.
func (s *Store) DeletePeer(ctx context.Context, id string) (p Peer, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if p, err = peerIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		var n int64
		if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM mirrors WHERE peer_id = ?", p.ID); err != nil {
			return err
		}
		if n > 0 {
			return fault.New(fault.Conflict, "mirrors that use the peer: %d; disable them first", n)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM peers WHERE id = ?", p.ID); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "peer.delete", Target: p.ID, Message: p.Name})
	})
	return p, err
}

// SeePeer stores whether a peer could be reached.
func (s *Store) SeePeer(ctx context.Context, id string, failed error) error {
	state, message := PeerReachable, ""
	if failed != nil {
		state, message = PeerUnreachable, fault.From(failed).Message
	}
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE peers SET state = ?, last_error = ? WHERE id = ?", state, message, id)
		return err
	})
}

// MirroredPools lists the pools for images of the clusters that have peers, or are peers.
func (s *Store) MirroredPools(ctx context.Context) (all []Pool, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM pools WHERE kind = ? AND NOT missing AND (cluster_id IN
		(SELECT cluster_id FROM peers) OR cluster_id IN (SELECT remote_id FROM peers)) ORDER BY cluster_id, name`, driver.PoolRBD)
}

// PoolNamed returns the pool for images of a name. cluster is the id of its cluster; empty: there is only one.
func (s *Store) PoolNamed(ctx context.Context, cluster, pool string) (Place, error) {
	p, err := placeIn(ctx, s.db, "pool", cluster, pool)
	if fault.Is(err, fault.Invalid) && fault.From(err).Field == "pool" {
		err = fault.New(fault.NotFound, "there is no pool %s for images", pool)
	}
	return p, err
}
