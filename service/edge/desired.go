package edge

import (
	"context"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// An agent learns with every heartbeat whether there is anything to pull: a
// number of its site goes up with each change of a desired state, a deployment or
// a policy pack. So ten thousand quiet sites cost their heartbeats and no more.

// desiredChanged raises the numbers of sites, in the transaction of the change.
// Sites are locked in the same order everywhere, after everything else.
func desiredChanged(ctx context.Context, tx *db.Tx, siteIDs ...string) error {
	const page = 500
	slices.Sort(siteIDs)
	for ids := range slices.Chunk(slices.Compact(siteIDs), page) {
		args := make([]any, len(ids))
		for i, id := range ids {
			args[i] = id
		}
		query := "INSERT INTO desired_revisions (site_id, revision) VALUES " + strings.TrimSuffix(
			strings.Repeat("(?, 1),", len(ids)), ",",
		) +
			" ON CONFLICT (site_id) DO UPDATE SET revision = desired_revisions.revision + 1"
		if _, err := tx.Exec(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// policyChanged raises the numbers of the sites that a pack binds.
func policyChanged(ctx context.Context, tx *db.Tx, p PolicyPack) error {
	if p.SiteID != "" {
		return desiredChanged(ctx, tx, p.SiteID)
	}
	var all []string
	if err := tx.Select(ctx, &all, "SELECT id FROM sites WHERE status <> 'revoked' ORDER BY id"); err != nil {
		return err
	}
	return desiredChanged(ctx, tx, all...)
}

// desiredRevisions reads the numbers of sites; one without changes has none.
func desiredRevisions(ctx context.Context, q db.Querier, siteIDs []string) (map[string]int64, error) {
	query, args, err := db.In("SELECT site_id, revision FROM desired_revisions WHERE site_id IN (?)", siteIDs)
	if err != nil {
		return nil, err
	}
	var rows []struct {
		SiteID   string `db:"site_id"`
		Revision int64  `db:"revision"`
	}
	if err := q.Select(ctx, &rows, query, args...); err != nil {
		return nil, err
	}
	revisions := make(map[string]int64, len(rows))
	for _, r := range rows {
		revisions[r.SiteID] = r.Revision
	}
	return revisions, nil
}
