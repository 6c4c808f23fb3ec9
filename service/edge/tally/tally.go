// Package tally counts objects by state in the transactions that change them, so
// that the overview need not count rows.
package tally

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Kinds of things that are counted. The states are those of the objects.
const (
	Org        = "org"
	Site       = "site"
	Device     = "device"
	OTA        = "ota"
	Campaign   = "campaign"
	Deployment = "deployment"
	Route      = "route"
	Delivery   = "delivery"
	DeadLetter = "deadletter"
	Alert      = "alert"
	PolicyPack = "policy_pack"
)

// Add counts delta objects into a state, or out of it when delta is negative.
func Add(ctx context.Context, tx *db.Tx, orgID, kind, state string, delta int64) error {
	if delta == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `INSERT INTO tallies (org_id, kind, state, n) VALUES (?, ?, ?, ?)
		ON CONFLICT (org_id, kind, state) DO UPDATE SET n = tallies.n + excluded.n`, orgID, kind, state, delta)
	return err
}

// Move takes one object from a state to another. An empty state stands for
// outside: it is made or goes away.
func Move(ctx context.Context, tx *db.Tx, orgID, kind, from, to string) error {
	if from == to {
		return nil
	}
	if from != "" {
		if err := Add(ctx, tx, orgID, kind, from, -1); err != nil {
			return err
		}
	}
	if to == "" {
		return nil
	}
	return Add(ctx, tx, orgID, kind, to, 1)
}
