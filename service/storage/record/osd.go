package record

import (
	"context"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// OSDArgs are the arguments of a job that changes an OSD.
type OSDArgs struct {
	ClusterID string
	Number    int64
	Change    driver.OSDChange
}

// ChangeOSD begins a job of a kind that changes an OSD. cluster is the id of its cluster; empty: there is only one with
// an OSD of that number.
func (s *Store) ChangeOSD(
	ctx context.Context, kind, cluster string, number int64, c driver.OSDChange, begin Begin,
) (o OSD, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if o, err = osdIn(ctx, tx, cluster, number); err != nil {
			return err
		}
		b, err := backendOfCluster(ctx, tx, o.ClusterID)
		if err != nil {
			return err
		}
		if b.Mode == ReadOnly {
			return fault.New(fault.Conflict, "the backend %s is read-only", b.Name)
		}
		var other string
		err = tx.Get(ctx, &other, `SELECT o.id FROM operations o JOIN jobs j ON j.id = o.id
			WHERE o.resource_id = ? AND j.finished_at IS NULL LIMIT 1`, o.Key())
		if err == nil {
			return fault.New(fault.Conflict, "the job %s changes osd.%d already", other, number)
		}
		if err := db.NotFound(err, "none"); !fault.Is(err, fault.NotFound) {
			return err
		}
		j = newJob(kind, "", TypeOSD, o.Key())
		if err := begin(ctx, tx, &j, OSDArgs{ClusterID: o.ClusterID, Number: number, Change: c}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: kind, Target: o.Key(), Message: fmt.Sprintf("osd.%d of the backend %s", number, b.Name),
		})
	})
	return o, j, err
}

// osdIn returns an OSD, and locks it until the end of the transaction.
func osdIn(ctx context.Context, tx *db.Tx, cluster string, number int64) (OSD, error) {
	var all []OSD
	if err := tx.Select(ctx, &all, "SELECT * FROM osds WHERE number = ? AND (? = '' OR cluster_id = ?) ORDER BY cluster_id LIMIT 2"+
		tx.ForUpdate(), number, cluster, cluster); err != nil {
		return OSD{}, err
	}
	switch len(all) {
	case 0:
		return OSD{}, fault.New(fault.NotFound, "there is no osd.%d", number)
	case 1:
		return all[0], nil
	}
	return OSD{}, fault.InvalidField("cluster", "several clusters have an osd.%d: name one", number)
}

func backendOfCluster(ctx context.Context, q db.Querier, cluster string) (b Backend, err error) {
	err = q.Get(ctx, &b, "SELECT b.* FROM backends b JOIN clusters c ON c.backend_id = b.id WHERE c.id = ?", cluster)
	return b, db.NotFound(err, "there is no such cluster")
}
