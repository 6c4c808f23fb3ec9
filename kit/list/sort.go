package list

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Sorts are the orders that a list can be read in, page by page. Rows with equal values are ordered
// by the column Unique, so that pages neither repeat nor skip one.
type Sorts struct {
	List   string            // the name of the list; cursors of other lists are refused
	Unique string            // a text column without equal values
	By     map[string]Column // the words of the contract, without a dash
	Usual  string            // the word that is used if none is given
}

// Column is a column that a list is sorted by. It must never be NULL, since NULL is neither before
// nor after a cursor.
type Column struct {
	Name   string
	Number bool // whether it holds BIGINT instead of TEXT
}

// Order is an order that was chosen from Sorts.
type Order struct {
	sorts      Sorts
	word       string // with the dash
	column     Column
	descending bool
}

// Order returns the order of a query parameter such as "name" or "-last_seen_at", where the dash
// means descending. An empty parameter means the usual order, an unknown one is a fault of kind
// Invalid.
func (s Sorts) Order(sort string) (Order, error) {
	if sort == "" {
		sort = s.Usual
	}
	word, descending := strings.CutPrefix(sort, "-")
	column, known := s.By[word]
	if !known {
		return Order{}, fault.InvalidField(
			"sort", "must be one of %s, with a dash before it for descending",
			strings.Join(slices.Sorted(maps.Keys(s.By)), ", "),
		)
	}
	return Order{sorts: s, word: sort, column: column, descending: descending}, nil
}

// Word returns the word of the contract for the column, without a dash.
func (o Order) Word() string { return strings.TrimPrefix(o.word, "-") }

// SQL returns the ORDER BY clause. table precedes the names of columns, with its dot, where several
// tables are read.
func (o Order) SQL(table string) string {
	direction := "ASC"
	if o.descending {
		direction = "DESC"
	}
	if o.column.Name == o.sorts.Unique {
		return fmt.Sprintf("ORDER BY %s%s %s", table, o.sorts.Unique, direction)
	}
	return fmt.Sprintf(
		"ORDER BY %s%s %s, %s%s %s", table, o.column.Name, direction, table, o.sorts.Unique, direction,
	)
}

// Key returns the key of a row for its cursor: the row's value in the order's column, as text, and
// its unique value.
func (o Order) Key(value, unique string) string {
	var key bytes.Buffer
	out := json.NewEncoder(&key)
	out.SetEscapeHTML(false) // it would only be longer
	// Texts always can be encoded.
	_ = out.Encode([]string{o.sorts.List, o.word, value, unique})
	return strings.TrimSuffix(key.String(), "\n")
}

// After returns the condition, with its arguments, that a row comes after the one that Key described.
// An empty key means the start of the list. A key of another list or another order is a fault of
// kind Invalid.
func (o Order) After(key string) (condition string, args []any, err error) {
	if key == "" {
		return "1 = 1", nil, nil
	}
	var parts []string
	if err := json.Unmarshal([]byte(key), &parts); err != nil || len(parts) != 4 ||
		parts[0] != o.sorts.List || parts[1] != o.word || strings.ContainsRune(parts[2]+parts[3], 0) {
		return "", nil, fault.InvalidField(
			"cursor", "is not one that this list has given out in this order; start again without it",
		)
	}
	than := ">"
	if o.descending {
		than = "<"
	}
	if o.column.Name == o.sorts.Unique {
		return o.sorts.Unique + " " + than + " ?", []any{parts[3]}, nil
	}
	var value any = parts[2]
	if o.column.Number {
		if value, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
			return "", nil, badCursor()
		}
	}
	return fmt.Sprintf("(%s, %s) %s (?, ?)", o.column.Name, o.sorts.Unique, than), []any{value, parts[3]}, nil
}
