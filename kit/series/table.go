package series

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Table is a table of the service with counts per minute. Besides the columns below it has the
// column minute (db.Time), which is unique together with Key. The service chooses its indexes for
// its own queries: one that begins with minute is for reading all series and for DeleteBefore.
type Table struct {
	Name string
	// Key are the columns that identify a series.
	Key []string
	// First are columns that are set by the first increment of a minute and not changed later.
	First []string
	// Sums are the columns that are added up, of type BIGINT.
	Sums []string
	// upsert is the statement of Add; see NewTable.
	upsert string
}

// NewTable prepares the statements of a table. The names become SQL, so they must be constants of
// the program.
func NewTable(t Table) Table {
	columns := strings.Join(append(append(append([]string{"minute"}, t.Key...), t.First...), t.Sums...), ", ")
	sums := make([]string, len(t.Sums))
	for i, c := range t.Sums {
		sums[i] = fmt.Sprintf("%s = %s.%s + excluded.%s", c, t.Name, c, c)
	}
	t.upsert = fmt.Sprintf(
		"INSERT INTO %s (%s) VALUES (?%s) ON CONFLICT (minute, %s) DO UPDATE SET %s", t.Name, columns,
		strings.Repeat(", ?", len(t.Key)+len(t.First)+len(t.Sums)), strings.Join(t.Key, ", "), strings.Join(sums, ", "),
	)
	return t
}

// Add adds increments to the minute of a time. values are those of Key, First and Sums, in this
// order.
func (t Table) Add(ctx context.Context, tx *db.Tx, at time.Time, values ...any) error {
	_, err := tx.Exec(ctx, t.upsert, append([]any{db.At(floor(at, time.Minute))}, values...)...)
	return err
}

// Read sums the rows that meet a condition by the steps of a window, in ascending order of time.
// dest points to a slice of structs with a field for the column minute, the start of the step, and
// one for each of Sums. Steps without rows are omitted.
func (t Table) Read(
	ctx context.Context, q db.Querier, dest any, w Window, condition string, args ...any,
) error {
	sums := make([]string, len(t.Sums))
	for i, c := range t.Sums {
		sums[i] = fmt.Sprintf("CAST(SUM(%s) AS BIGINT) AS %s", c, c)
	}
	query := fmt.Sprintf(
		"SELECT minute, %s FROM (SELECT minute - minute %% ? AS minute, %s FROM %s WHERE minute >= ? AND minute < ? AND (%s)) AS steps"+
			" GROUP BY minute ORDER BY minute",
		strings.Join(sums, ", "), strings.Join(t.Sums, ", "), t.Name, condition,
	)
	return q.Select(ctx, dest, query, append([]any{w.Step.Microseconds(), db.At(w.From), db.At(w.To)}, args...)...)
}

// DeleteBefore deletes the minutes before a time, in small transactions.
func (t Table) DeleteBefore(ctx context.Context, d *db.DB, before time.Time) error {
	key := "minute, " + strings.Join(t.Key, ", ")
	_, err := d.DeletePages(ctx, deletePage, fmt.Sprintf(
		"DELETE FROM %s WHERE (%s) IN (SELECT %s FROM %s WHERE minute < ? LIMIT ?)", t.Name, key, key, t.Name,
	), db.At(before))
	return err
}

// deletePage is how many rows one transaction deletes.
const deletePage = 2000
