package workload

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/google/uuid"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations returns the migrations of this package's tables, which belong to the owner "workload".
func migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// row is a stored deployment.
type row struct {
	ID       string                           `db:"id"`
	Desired  db.JSON[edgeapi.AgentDeployment] `db:"desired"`
	Removed  bool                             `db:"removed"`
	Current  string                           `db:"current"`
	Failed   string                           `db:"failed"`
	Rollback string                           `db:"rollback"`
	Revision int64                            `db:"revision"`
	Status   string                           `db:"status"`
	Message  string                           `db:"message"`
	Reported bool                             `db:"reported"`
}

// agentRow holds the data that is stored once.
type agentRow struct {
	One      int64                         `db:"one"`
	Instance string                        `db:"instance"`
	Pulled   bool                          `db:"pulled"`
	Packs    db.JSON[[]edgeapi.PolicyPack] `db:"packs"`
}

type store struct{ db *db.DB }

// open creates the tables, and the ID that marks this agent's containers.
func (s store) open(ctx context.Context) (agentRow, error) {
	if err := s.db.Migrate(ctx, "workload", migrations()); err != nil {
		return agentRow{}, err
	}
	var a agentRow
	err := s.db.Get(ctx, &a, "SELECT * FROM workload_agent WHERE one = 1")
	if !errors.Is(err, db.ErrNoRows) {
		return a, err
	}
	a = agentRow{One: 1, Instance: uuid.NewString()}
	a.Packs.V = []edgeapi.PolicyPack{}
	return a, s.db.Update(ctx, func(tx *db.Tx) error { return tx.Insert(ctx, "workload_agent", a) })
}

// setDesired stores the desired state.
func (s store) setDesired(
	ctx context.Context, deployments []edgeapi.AgentDeployment, packs []edgeapi.PolicyPack,
) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(
			ctx, "UPDATE workload_agent SET pulled = TRUE, packs = ?", db.JSON[[]edgeapi.PolicyPack]{V: packs},
		); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE workloads SET removed = TRUE"); err != nil {
			return err
		}
		for _, d := range deployments {
			if err := upsert(ctx, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

func upsert(ctx context.Context, tx *db.Tx, d edgeapi.AgentDeployment) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO workloads (id, desired, removed, current, failed, rollback, revision, status, message, reported)
		VALUES (?, ?, FALSE, '', '', '', 0, 'pending', '', TRUE)
		ON CONFLICT (id) DO UPDATE SET desired = excluded.desired, removed = FALSE`,
		d.Id,
		db.JSON[edgeapi.AgentDeployment]{V: d},
	)
	return err
}

func (s store) list(ctx context.Context) ([]row, error) {
	rows := []row{}
	err := s.db.Select(ctx, &rows, "SELECT * FROM workloads ORDER BY id")
	return rows, err
}

// get reads one deployment. ok is false if it is unknown.
func (s store) get(ctx context.Context, id string) (r row, ok bool, err error) {
	err = s.db.Get(ctx, &r, "SELECT * FROM workloads WHERE id = ?", id)
	if errors.Is(err, db.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, err
}

func (s store) exec(ctx context.Context, query string, args ...any) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

// proved stores that a version works.
func (s store) proved(ctx context.Context, id, digest string) error {
	return s.exec(ctx, "UPDATE workloads SET current = ?, failed = '', rollback = '' WHERE id = ?", digest, id)
}

// disproved stores that a version does not work. rollback is the reason for asking the control
// plane to roll back, or empty if there is no version to return to.
func (s store) disproved(ctx context.Context, id, digest, rollback string) error {
	return s.exec(ctx, "UPDATE workloads SET failed = ?, rollback = ? WHERE id = ?", digest, rollback, id)
}

// setStatus stores the status of a deployment, to be reported if it has changed.
func (s store) setStatus(
	ctx context.Context, id string, revision int64, status, message string,
) (news bool, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(
			ctx,
			"UPDATE workloads SET revision = ?, status = ?, message = ?, reported = FALSE WHERE id = ? AND (revision <> ? OR status <> ? OR message <> ?)",
			revision, status, message, id, revision, status, message,
		)
		news = n > 0
		return err
	})
	return news, err
}

// reported stores that the control plane has received the status in r, unless it has changed since.
func (s store) reported(ctx context.Context, r row) error {
	return s.exec(
		ctx, "UPDATE workloads SET reported = TRUE WHERE id = ? AND revision = ? AND status = ? AND message = ?",
		r.ID, r.Revision, r.Status, r.Message,
	)
}

// rolledBack stores the result of a rollback by the control plane.
func (s store) rolledBack(ctx context.Context, r row, desired *edgeapi.AgentDeployment) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(
			ctx, "UPDATE workloads SET rollback = '' WHERE id = ? AND rollback = ?", r.ID, r.Rollback,
		); err != nil ||
			desired == nil {
			return err
		}
		_, err := tx.Exec(
			ctx, "UPDATE workloads SET desired = ? WHERE id = ? AND NOT removed",
			db.JSON[edgeapi.AgentDeployment]{V: *desired}, r.ID,
		)
		return err
	})
}

func (s store) forget(ctx context.Context, id string) error {
	return s.exec(ctx, "DELETE FROM workloads WHERE id = ? AND removed", id)
}
