package edge

import (
	"context"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Every heartbeat tells the agent whether there is anything to pull: each site has a revision that
// increases with every change of a desired state, a deployment or a policy pack. So ten thousand
// sites without changes cost only their heartbeats.

// desiredChanged increases the revisions of sites, in the transaction of the change. To avoid
// deadlocks, every transaction locks sites last and in the same order.
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

// policyChanged increases the revisions of the sites that a pack applies to.
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

// desiredRevisions returns the revisions of sites. Sites without changes are missing from the map.
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
