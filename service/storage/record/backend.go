package record

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// The types of backends that are Ceph clusters or namespaces of Kubernetes, and of those that are inventory: a file
// tells what they have, and nothing is changed in them.
const (
	TypeCeph       = "ceph"
	TypeKubernetes = "kubernetes"
	TypeSAN        = "san"
	TypeCloudBlock = "cloud_block"
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
	case b.inventory():
		return b.errInventory()
	case b.Mode == ReadOnly:
		return fault.New(fault.Conflict, "the backend %s is read-only", b.Name)
	case b.Cordoned:
		return fault.New(fault.Unavailable, "the backend %s is cordoned: nothing new is made in it; uncordon it, or use another "+
			"policy or backend", b.Name).WithCode("backend_cordoned")
	}
	return nil
}

// inventory reports whether a file tells what the backend has.
func (b *Backend) inventory() bool { return b.Type == TypeSAN || b.Type == TypeCloudBlock }

func (b *Backend) errInventory() error {
	return fault.New(fault.Invalid, "the backend %s of the type %s is inventory: nothing is made or changed in it", b.Name,
		b.Type).WithCode("unsupported")
}

// foreign returns the fault for changes to a volume that the gateway did not make.
func (b *Backend) foreign() error {
	if b.inventory() {
		return b.errInventory()
	}
	return errForeign
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
	err := s.update(ctx, func(tx *db.Tx) error {
		if err := tx.Insert(ctx, "backends", &b); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "backend.create", Target: b.ID, Message: b.Type + " " + b.Name})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a backend named %s already", b.Name).WithField("name")
	}
	return b, err
}

// FirstBackend stores a backend if there is none yet, also if several replicas begin at once.
func (s *Store) FirstBackend(ctx context.Context, b Backend) (out Backend, made bool, err error) {
	all, err := s.Backends(ctx)
	if err != nil || len(all) > 0 {
		return b, false, err
	}
	out, err = s.AddBackend(ctx, b)
	if fault.Is(err, fault.Conflict) {
		return b, false, nil
	}
	return out, err == nil, err
}

// Backends lists all backends, oldest first.
func (s *Store) Backends(ctx context.Context) (all []Backend, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backends ORDER BY id")
}

// BackendsPage lists backends of a type, or of all types, oldest first, starting after an id.
func (s *Store) BackendsPage(ctx context.Context, kind, after string, limit int) (all []Backend, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backends WHERE id > ? AND (? = '' OR type = ?) ORDER BY id LIMIT ?",
		after, kind, kind, limit)
}

// NoteDiscovery writes the audit entry of a pass over a backend.
func (s *Store) NoteDiscovery(ctx context.Context, id string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		b, err := backendIn(ctx, tx, id, "")
		if err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "backend.discover", Target: id, Message: b.Name})
	})
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
	err = s.update(ctx, func(tx *db.Tx) error {
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

// Clusters lists what backends have told, oldest first, starting after an id. backend is the id or the name of one;
// empty: all. A backend that was never reached has no cluster.
func (s *Store) Clusters(ctx context.Context, backend, after string, limit int) (all []Cluster, err error) {
	return all, s.db.Select(ctx, &all, `SELECT c.* FROM clusters c JOIN backends b ON b.id = c.backend_id
		WHERE c.id > ? AND (? = '' OR b.id = ? OR b.name = ?) ORDER BY c.id LIMIT ?`, after, backend, backend, backend, limit)
}

// ClusterNamed returns the cluster with an id, or of the backend with a name.
func (s *Store) ClusterNamed(ctx context.Context, name string) (c Cluster, err error) {
	err = s.db.Get(ctx, &c, `SELECT c.* FROM clusters c JOIN backends b ON b.id = c.backend_id
		WHERE c.id = ? OR b.name = ?`, name, name)
	return c, db.NotFound(err, "there is no such cluster")
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

// ClusterIfKnown returns the cluster of a backend, if it was reached yet.
func (s *Store) ClusterIfKnown(ctx context.Context, backend string) (c Cluster, known bool, err error) {
	err = s.db.Get(ctx, &c, "SELECT * FROM clusters WHERE backend_id = ?", backend)
	if errors.Is(err, db.ErrNoRows) {
		return c, false, nil
	}
	return c, err == nil, err
}

// PoolFilter selects pools. Empty fields select all.
type PoolFilter struct {
	Backend string // its id or name
	Cluster string
	Kind    string
}

// Key orders pools: by cluster, then by name.
func (p Pool) Key() string { return p.ClusterID + "/" + p.Name }

// PoolsPage lists pools, starting after a key.
func (s *Store) PoolsPage(ctx context.Context, f PoolFilter, after string, limit int) (all []Pool, err error) {
	cluster, name, _ := strings.Cut(after, "/")
	return all, s.db.Select(ctx, &all, `SELECT p.* FROM pools p JOIN clusters c ON c.id = p.cluster_id
		JOIN backends b ON b.id = c.backend_id WHERE (? = '' OR b.id = ? OR b.name = ?) AND (? = '' OR c.id = ?)
		AND (? = '' OR p.kind = ?) AND (p.cluster_id > ? OR p.cluster_id = ? AND p.name > ?)
		ORDER BY p.cluster_id, p.name LIMIT ?`, f.Backend, f.Backend, f.Backend, f.Cluster, f.Cluster, f.Kind, f.Kind,
		cluster, cluster, name, limit)
}

// Counts returns how many pools a cluster has, and how many OSDs.
func (s *Store) Counts(ctx context.Context, cluster string) (pools, osds int, err error) {
	if err := s.db.Get(ctx, &pools, "SELECT COUNT(*) FROM pools WHERE cluster_id = ? AND NOT missing", cluster); err != nil {
		return 0, 0, err
	}
	return pools, osds, s.db.Get(ctx, &osds, "SELECT COUNT(*) FROM osds WHERE cluster_id = ?", cluster)
}

// Key orders OSDs: by cluster, then by number.
func (o OSD) Key() string { return fmt.Sprintf("%s/%d", o.ClusterID, o.Number) }

// SplitOSDKey returns the id of the cluster and the number in the Key of an OSD.
func SplitOSDKey(key string) (cluster string, number int64) {
	cluster, text, _ := strings.Cut(key, "/")
	number, _ = strconv.ParseInt(text, 10, 64) // Key has written it
	return cluster, number
}

// OSDsPage lists the OSDs of a cluster, or of all, starting after a key. host selects those of one host; empty: all.
func (s *Store) OSDsPage(ctx context.Context, cluster, host, after string, limit int) (all []OSD, err error) {
	last, number := "", int64(-1)
	if at, text, ok := strings.Cut(after, "/"); ok {
		last = at
		if number, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fault.InvalidField("cursor", "is not one of this list")
		}
	}
	return all, s.db.Select(ctx, &all, `SELECT * FROM osds WHERE (? = '' OR cluster_id = ?) AND (? = '' OR host = ?)
		AND (cluster_id > ? OR cluster_id = ? AND number > ?) ORDER BY cluster_id, number LIMIT ?`,
		cluster, cluster, host, host, last, last, number, limit)
}

// Node is a host of a cluster, with its OSDs together.
type Node struct {
	ClusterID string `db:"cluster_id"`
	Host      string `db:"host"`
	OSDs      int64  `db:"osds"`
	Up        int64  `db:"osds_up"`
	In        int64  `db:"osds_in"`
	Used      int64  `db:"used_bytes"`
	Capacity  int64  `db:"capacity_bytes"`
}

// Key orders hosts: by cluster, then by name.
func (n Node) Key() string { return n.ClusterID + "/" + n.Host }

// Nodes lists the hosts of a cluster, or of all, starting after a key.
func (s *Store) Nodes(ctx context.Context, cluster, after string, limit int) (all []Node, err error) {
	last, host, _ := strings.Cut(after, "/")
	return all, s.db.Select(ctx, &all, `SELECT cluster_id, host, COUNT(*) AS osds,
		SUM(CASE WHEN up THEN 1 ELSE 0 END) AS osds_up, SUM(CASE WHEN in_cluster THEN 1 ELSE 0 END) AS osds_in,
		CAST(SUM(used_bytes) AS BIGINT) AS used_bytes, CAST(SUM(capacity_bytes) AS BIGINT) AS capacity_bytes
		FROM osds WHERE (? = '' OR cluster_id = ?) AND (cluster_id > ? OR cluster_id = ? AND host > ?)
		GROUP BY cluster_id, host ORDER BY cluster_id, host LIMIT ?`, cluster, cluster, last, last, host, limit)
}
