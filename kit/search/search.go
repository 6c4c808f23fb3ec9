// Package search finds rows by a text, and reads lists of them page by page.
//
// A table that is searched has the column search, which holds all that a search looks at, as Fold
// writes it, so that both engines find the same. The service writes it whenever it writes
// what it is made of. It is the last column of the indexes by which the lists are read, so that a
// search that finds nothing reads only an index.
package search

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// MaxText limits the column search, in bytes. PostgreSQL has at most 2,704 bytes in an entry of an
// index, and some of them hold a name and an ID besides.
const MaxText = 1024

// Fold returns a text with the case of its letters removed. A final sigma becomes a common one: both
// are the lower case of one letter, and which of them is written depends on what follows.
func Fold(text string) string { return strings.ReplaceAll(strings.ToLower(text), "ς", "σ") }

// Text returns the column search of a row. Words and labels (as key=value) are apart from each
// other, so that no text is found across two of them. It is never empty, and leaves out what is
// after 1,024 bytes; labels are last.
func Text(labels map[string]string, words ...string) string {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	all := Fold(strings.Join(words, "\n"))
	if len(all) <= MaxText {
		return all
	}
	end := MaxText
	for !utf8.RuneStart(all[end]) {
		end--
	}
	return all[:end]
}

// Page is a request for a page of a table with the column search.
type Page struct {
	Table, ID string // the table, and its primary key
	Sorts     list.Sorts
	Scope     db.Scope
	Text      string    // must be contained in the column search, ignoring case; empty: everything
	Or        *db.Scope // rows that a search finds whatever their column search holds; nil: none
	Sort      string    // as list.Sorts.Order takes it
	After     string    // as list.Order.After takes it
	Limit     int
}

// Contains returns the condition, with its argument, that the column search of a row contains a text.
// The parts of the column are lines, so a line end and a text find parts that begin with the text.
func Contains(wanted string) (condition, arg string) {
	like := strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(Fold(wanted))
	return `search LIKE ? ESCAPE '\'`, "%" + like + "%"
}

// Read selects the rows into dest, a pointer to a slice, and returns their order. A text, an order or
// a key that nothing can have is a fault of kind Invalid.
func (p Page) Read(ctx context.Context, q db.Querier, dest any) (list.Order, error) {
	order, err := p.Sorts.Order(p.Sort)
	if err != nil {
		return list.Order{}, err
	}
	if err := text.Check("q", p.Text); err != nil {
		return list.Order{}, err
	}
	where, args := p.Scope.SQL()
	after, more, err := order.After(p.After)
	if err != nil {
		return list.Order{}, err
	}
	where, args = where+" AND "+after, append(args, more...)
	if p.Text != "" {
		found, arg := Contains(p.Text)
		args = append(args, arg)
		if p.Or != nil {
			or, more := p.Or.SQL()
			found, args = "("+found+" OR ("+or+"))", append(args, more...)
		}
		where += " AND " + found
	}
	// The inner query reads an index alone, and only the rows that were found are read whole. CROSS
	// JOIN has SQLite begin with it.
	return order, q.Select(
		ctx, dest, fmt.Sprintf(
			"SELECT whole.* FROM (SELECT %[1]s AS found FROM %[2]s WHERE %[3]s %[4]s LIMIT ?) page "+
				"CROSS JOIN %[2]s whole WHERE whole.%[1]s = page.found %[5]s",
			p.ID, p.Table, where, order.SQL(""), order.SQL("whole."),
		), append(args, p.Limit)...)
}

// Describe writes the column search of at most limit rows that a migration left without it, and
// returns how many there were. id is the table's primary key, and of returns a row's value of it and
// its column search. The table should have an index of the rows whose column search is empty.
func Describe[T any](
	ctx context.Context, tx *db.Tx, table, id string, limit int, of func(*T) (id, text string),
) (int, error) {
	var rows []T
	if err := tx.Select(ctx, &rows, fmt.Sprintf(
		"SELECT * FROM %s WHERE search = '' ORDER BY %s LIMIT ?%s", table, id, tx.ForUpdateSkipLocked(),
	), limit); err != nil {
		return 0, err
	}
	for i := range rows {
		key, described := of(&rows[i])
		if _, err := tx.Exec(
			ctx, fmt.Sprintf("UPDATE %s SET search = ? WHERE %s = ?", table, id), described, key,
		); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}
