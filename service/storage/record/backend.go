package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Backend is a storage system that volumes are made in.
type Backend struct {
	ID            string                       `db:"id"`
	Name          string                       `db:"name"`
	Type          string                       `db:"type"`
	Mode          string                       `db:"mode"`
	ConnectionRef string                       `db:"connection_ref"`
	Cordoned      bool                         `db:"cordoned"`
	Capabilities  db.JSON[driver.Capabilities] `db:"capabilities"`
	LastError     string                       `db:"last_error"`
	DiscoveredAt  db.Time                      `db:"discovered_at"`
	CreatedAt     db.Time                      `db:"created_at"`
}

// Modes of backends.
const (
	ManagedRook = "managed_rook"
	External    = "external"
	ReadOnly    = "read_only"
)

// Writable returns a fault if nothing can be made in the backend.
func (b *Backend) Writable() error {
	switch {
	case b.Mode == ReadOnly:
		return fault.New(fault.Conflict, "the backend %s is read-only", b.Name)
	case b.Cordoned:
		return fault.New(fault.Unavailable, "the backend %s is cordoned: it takes no new volumes; uncordon it, or use another "+
			"policy", b.Name).WithCode("BACKEND_CORDONED")
	}
	return nil
}

// Cluster is what a storage system has told about itself.
type Cluster struct {
	ID              string        `db:"id"`
	BackendID       string        `db:"backend_id"`
	NativeID        string        `db:"native_id"`
	Name            string        `db:"name"`
	Health          driver.Health `db:"health"`
	Summary         string        `db:"summary"`
	Raw             int64         `db:"raw_bytes"`
	Used            int64         `db:"used_bytes"`
	Available       int64         `db:"available_bytes"`
	Recovering      bool          `db:"recovering"`
	DegradedObjects int64         `db:"degraded_objects"`
	SeenAt          db.Time       `db:"seen_at"`
}

// Pool is a part of a cluster.
type Pool struct {
	ID          string          `db:"id"`
	ClusterID   string          `db:"cluster_id"`
	Name        string          `db:"name"`
	Kind        driver.PoolKind `db:"kind"`
	DeviceClass string          `db:"device_class"`
	Replicas    int64           `db:"replicas"`
	Used        int64           `db:"used_bytes"`
	Max         int64           `db:"max_bytes"`
	Health      driver.Health   `db:"health"`
	Missing     bool            `db:"missing"`
}

// OSD is a daemon of a cluster that stores data.
type OSD struct {
	ClusterID   string   `db:"cluster_id"`
	Number      int64    `db:"number"`
	Up          bool     `db:"up"`
	In          bool     `db:"in_cluster"`
	DeviceClass string   `db:"device_class"`
	Host        string   `db:"host"`
	Used        int64    `db:"used_bytes"`
	Capacity    int64    `db:"capacity_bytes"`
	Weight      *float64 `db:"weight"`
}

// AddBackend stores a backend, whose id it makes.
func (s *Store) AddBackend(ctx context.Context, b Backend) (Backend, error) {
	b.ID, b.CreatedAt = NewID(), db.At(s.now())
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Insert(ctx, "backends", &b); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "backend.create", Target: b.ID, Message: b.Type + " " + b.Name})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a backend named %s already", b.Name)
	}
	return b, err
}

// Backends lists all backends, oldest first.
func (s *Store) Backends(ctx context.Context) (all []Backend, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backends ORDER BY id")
}

// Backend returns a backend.
func (s *Store) Backend(ctx context.Context, id string) (Backend, error) {
	return backendIn(ctx, s.db, id, "")
}

func backendIn(ctx context.Context, q db.Querier, id, lock string) (b Backend, err error) {
	err = q.Get(ctx, &b, "SELECT * FROM backends WHERE id = ?"+lock, id)
	return b, db.NotFound(err, "there is no such backend")
}

// Cordon stores whether a backend takes new volumes.
func (s *Store) Cordon(ctx context.Context, id string, cordoned bool) (b Backend, err error) {
	action := "backend.uncordon"
	if cordoned {
		action = "backend.cordon"
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE backends SET cordoned = ? WHERE id = ?", cordoned, id); err != nil {
			return err
		}
		if b, err = backendIn(ctx, tx, id, ""); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: action, Target: id, Message: b.Name})
	})
	return b, err
}

// Clusters lists what all backends have told, oldest first. A backend that was never reached has no cluster.
func (s *Store) Clusters(ctx context.Context) (all []Cluster, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM clusters ORDER BY id")
}

// Cluster returns a cluster.
func (s *Store) Cluster(ctx context.Context, id string) (c Cluster, err error) {
	err = s.db.Get(ctx, &c, "SELECT * FROM clusters WHERE id = ?", id)
	return c, db.NotFound(err, "there is no such cluster")
}

// ClusterOf returns the cluster of a backend.
func (s *Store) ClusterOf(ctx context.Context, backend string) (c Cluster, err error) {
	err = s.db.Get(ctx, &c, "SELECT * FROM clusters WHERE backend_id = ?", backend)
	return c, db.NotFound(err, "the backend was not reached yet, so nothing is known of it")
}

// Pools lists the pools of a backend, or of all, by cluster and name. kind selects one kind; empty: all.
func (s *Store) Pools(ctx context.Context, backend, kind string) (all []Pool, err error) {
	return all, s.db.Select(ctx, &all, `SELECT p.* FROM pools p JOIN clusters c ON c.id = p.cluster_id
		WHERE (? = '' OR c.backend_id = ?) AND (? = '' OR p.kind = ?) ORDER BY p.cluster_id, p.name`, backend, backend, kind, kind)
}

// OSDs lists the OSDs of all clusters, by cluster and number.
func (s *Store) OSDs(ctx context.Context) (all []OSD, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM osds ORDER BY cluster_id, number")
}
