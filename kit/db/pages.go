package db

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// DeletePages runs a DELETE until it finds less than a page, each time in a transaction of its own,
// so that no other writer waits long. The last placeholder of the query is the LIMIT of a subquery;
// DeletePages sets it to page. It returns how many rows are gone, also beside an error.
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
