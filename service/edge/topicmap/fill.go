package topicmap

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Described returns the number of the first event from which on the map knows all topics.
func Described(ctx context.Context, q db.Querier) (seq int64, err error) {
	err = q.Get(ctx, &seq, "SELECT value FROM counters WHERE name = 'topics'")
	return seq * Block, err
}

// Fill describes one more block of the events that were stored before there was a map. It reports
// whether there are more.
func Fill(ctx context.Context, d *db.DB) (more bool, err error) {
	err = d.Update(ctx, func(tx *db.Tx) error {
		var first, newest, oldest int64
		if err := tx.Get(
			ctx, &first, "SELECT value FROM counters WHERE name = 'topics'"+tx.ForUpdate(),
		); err != nil || first == 0 {
			return err
		}
		block := first - 1
		if err := tx.Get(ctx, &newest, "SELECT value FROM counters WHERE name = 'event'"); err != nil {
			return err
		}
		if newest/Block <= block {
			// Events still come to this block. They wait until it is described.
			if err := tx.Get(
				ctx, &newest, "SELECT value FROM counters WHERE name = 'event'"+tx.ForUpdate(),
			); err != nil {
				return err
			}
		}
		var events []Occurrence
		if err := tx.Select(
			ctx, &events, "SELECT seq, org_id, topic FROM events WHERE seq >= ? AND seq < ? ORDER BY seq",
			block*Block, (block+1)*Block,
		); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM event_topics WHERE block = ?", block); err != nil {
			return err
		}
		if err := write(ctx, tx, collect(block, events, nil)); err != nil {
			return err
		}
		if err := tx.Get(ctx, &oldest, "SELECT COALESCE(MIN(seq), ?) FROM events", block*Block); err != nil {
			return err
		}
		if oldest >= block*Block {
			block = 0 // there is nothing before it
		}
		more = block > 0
		_, err := tx.Exec(ctx, "UPDATE counters SET value = ? WHERE name = 'topics'", block)
		return err
	})
	return more && err == nil, err
}

// Expire deletes what the map has of events that were deleted.
func Expire(ctx context.Context, d *db.DB, page int64) error {
	_, err := d.DeletePages(
		ctx, page, `DELETE FROM event_topics WHERE (block, org_id, topic) IN
		(SELECT block, org_id, topic FROM event_topics WHERE block < (SELECT
			COALESCE((SELECT MIN(seq) FROM events), (SELECT value + 1 FROM counters WHERE name = 'event')) / ?)
		ORDER BY block LIMIT ?)`,
		Block,
	)
	return err
}
