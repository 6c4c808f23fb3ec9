// Package tally maintains counts of objects by state in the transactions that change them, so that
// the overview need not count rows.
//
// Many transactions change the same few counts. So Add only collects the changes; they are written
// right before the transaction commits, in a fixed order, so that transactions cannot deadlock over
// the counts.
package tally

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Kinds of objects that are counted. The states are those of the objects.
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

type key struct{ org, kind, state string }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.org, other.org), cmp.Compare(k.kind, other.kind), cmp.Compare(k.state, other.state))
}

// changes holds what a transaction adds to the counts.
type changes map[key]int64

type changesKey struct{}

// Add adds delta, which may be negative, to the count of a state when the transaction commits.
func Add(tx *db.Tx, orgID, kind, state string, delta int64) {
	c, begun := tx.Value(changesKey{}).(changes)
	if !begun {
		c = changes{}
		tx.SetValue(changesKey{}, c)
		tx.BeforeCommit(func(ctx context.Context) error { return c.write(ctx, tx) })
	}
	c[key{orgID, kind, state}] += delta
}

// Move moves one object from one state to another. An empty state means that the object is created
// or deleted.
func Move(tx *db.Tx, orgID, kind, from, to string) {
	if from != "" {
		Add(tx, orgID, kind, from, -1)
	}
	if to != "" {
		Add(tx, orgID, kind, to, 1)
	}
}

func (c changes) write(ctx context.Context, tx *db.Tx) error {
	for _, k := range slices.SortedFunc(maps.Keys(c), key.compare) {
		if c[k] == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, `INSERT INTO tallies (org_id, kind, state, n) VALUES (?, ?, ?, ?)
			ON CONFLICT (org_id, kind, state) DO UPDATE SET n = tallies.n + excluded.n`, k.org, k.kind, k.state, c[k]); err != nil {
			return err
		}
	}
	return nil
}
