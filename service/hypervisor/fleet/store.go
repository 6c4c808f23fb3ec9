package fleet

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
)

// nodeRow is a row of the table nodes.
type nodeRow struct {
	Name          string                           `db:"name"`
	URL           string                           `db:"url"`
	Version       string                           `db:"version"`
	Labels        db.JSON[hypervisorapi.Labels]    `db:"labels"`
	Backends      db.JSON[[]hypervisorapi.Backend] `db:"backends"`
	Cordoned      bool                             `db:"cordoned"`
	VCPUs         int                              `db:"vcpus"`
	MemoryMiB     int                              `db:"memory_mib"`
	FreeVCPUs     int                              `db:"free_vcpus"`
	FreeMemoryMiB int                              `db:"free_memory_mib"`
	VMs           int                              `db:"vms"`
	HeartbeatAt   db.Time                          `db:"heartbeat_at"`
}

// nodeRows returns all nodes by name. lock is Tx.ForUpdate or empty.
func nodeRows(ctx context.Context, q db.Querier, lock string) ([]nodeRow, error) {
	var rows []nodeRow
	err := q.Select(ctx, &rows, "SELECT * FROM nodes ORDER BY name"+lock)
	return rows, err
}

// findNode returns one node, or ErrNoRows. Invalid names are not looked up.
func findNode(ctx context.Context, q db.Querier, name string) (nodeRow, error) {
	var row nodeRow
	if !nodeName.MatchString(name) {
		return row, db.ErrNoRows
	}
	err := q.Get(ctx, &row, "SELECT * FROM nodes WHERE name = ?", name)
	return row, err
}

// putNode inserts or updates a node except its cordon, and returns the stored row.
func putNode(ctx context.Context, tx *db.Tx, n *nodeRow) (nodeRow, error) {
	var known, stored int
	if err := tx.Get(ctx, &known, "SELECT COUNT(*) FROM nodes WHERE name = ?", n.Name); err != nil {
		return nodeRow{}, err
	}
	if err := tx.Get(ctx, &stored, "SELECT COUNT(*) FROM nodes"); err != nil {
		return nodeRow{}, err
	}
	if known == 0 && stored >= MaxNodes {
		return nodeRow{}, fault.New(
			fault.Conflict, "the fleet has %d nodes, which is the most; deregister one that is gone", stored,
		)
	}
	var row nodeRow
	err := tx.Get(
		ctx,
		&row,
		`INSERT INTO nodes (name, url, version, labels, backends, cordoned, vcpus, memory_mib, free_vcpus, free_memory_mib, vms, heartbeat_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET url = excluded.url, version = excluded.version, labels = excluded.labels,
			backends = excluded.backends, vcpus = excluded.vcpus, memory_mib = excluded.memory_mib,
			free_vcpus = excluded.free_vcpus, free_memory_mib = excluded.free_memory_mib,
			vms = excluded.vms, heartbeat_at = excluded.heartbeat_at
		RETURNING *`,
		n.Name,
		n.URL,
		n.Version,
		n.Labels,
		n.Backends,
		false,
		n.VCPUs,
		n.MemoryMiB,
		n.FreeVCPUs,
		n.FreeMemoryMiB,
		n.VMs,
		n.HeartbeatAt,
	)
	return row, err
}

// addRoom adds to a node's free capacity, or subtracts with a negative sign.
func addRoom(ctx context.Context, tx *db.Tx, name string, sign int, size placement.Resources) error {
	_, err := tx.Exec(
		ctx, "UPDATE nodes SET free_vcpus = free_vcpus + ?, free_memory_mib = free_memory_mib + ? WHERE name = ?",
		sign*size.VCPUs, sign*size.MemoryMiB, name,
	)
	return err
}
