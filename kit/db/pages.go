package db

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// DeletePages repeats a DELETE until it removes fewer than page rows, each time in its own
// transaction so that other writers do not wait long. The last placeholder of the query is the
// LIMIT of a subquery; DeletePages sets it to page. It returns the number of deleted rows, also
// with an error.
func (d *DB) DeletePages(ctx context.Context, page int64, query string, args ...any) (int64, error) {
	if page < 1 {
		return 0, fault.New(fault.Internal, "db: a page has at least one row, not %d", page)
	}
	args = append(args[:len(args):len(args)], page)
	var total int64
	for {
		var n int64
		err := d.Update(ctx, func(tx *Tx) (err error) {
			n, err = tx.Exec(ctx, query, args...)
			return err
		})
		if err != nil {
			return total, err
		}
		total += n
		if n < page {
			return total, nil
		}
	}
}
