package list

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Offset is a validated request for a part of a counted list, for contracts that promise offset,
// limit and total. Rows and Down are better for large lists.
type Offset struct{ Offset, Limit int }

// maxOffset limits the offset: a database reads all rows before it.
const maxOffset = 100_000

// ParseOffset parses the optional query parameters offset and limit. usual is the default limit.
// Values out of range are faults of kind Invalid.
func ParseOffset(offset, limit *int, usual int) (Offset, error) {
	p, err := ParsePage(limit, nil, usual, MaxRows)
	if err != nil {
		return Offset{}, err
	}
	o := Offset{Limit: p.Limit}
	if offset != nil {
		if o.Offset = *offset; o.Offset < 0 || o.Offset > maxOffset {
			return Offset{}, fault.InvalidField("offset", "must be between 0 and %d, not %d", maxOffset, o.Offset)
		}
	}
	return o, nil
}

// Columns maps the words of a contract that a list may be filtered and sorted by to SQL
// expressions. Client input never becomes SQL.
type Columns map[string]string

// OrderBy returns the ORDER BY clause for a query parameter such as "name" or "-created_at", where
// the dash means descending. unique is an expression that orders rows with equal values, so that
// pages neither repeat nor skip one. If the parameter is empty, usual is used.
func (c Columns) OrderBy(sort, usual, unique string) (string, error) {
	if sort == "" {
		sort = usual
	}
	word, descending := strings.CutPrefix(sort, "-")
	expression, known := c[word]
	if !known {
		return "", fault.InvalidField("sort", "must be one of %s, with a dash before it for descending", c.words())
	}
	direction := "ASC"
	if descending {
		direction = "DESC"
	}
	return fmt.Sprintf("ORDER BY %s %s, %s %s", expression, direction, unique, direction), nil
}

// Where returns the condition, with its arguments, that each of the given words has its value.
// Without values it is true for every row.
func (c Columns) Where(values map[string]string) (condition string, args []any, err error) {
	conditions := []string{"1 = 1"}
	for _, word := range slices.Sorted(maps.Keys(values)) {
		expression, known := c[word]
		if !known {
			return "", nil, fault.InvalidField(word, "is not a filter of this list; there are %s", c.words())
		}
		conditions, args = append(conditions, expression+" = ?"), append(args, values[word])
	}
	return strings.Join(conditions, " AND "), args, nil
}

func (c Columns) words() string { return strings.Join(slices.Sorted(maps.Keys(c)), ", ") }

// Search returns the condition, with its arguments, that one of the expressions contains the text,
// ignoring the case of ASCII letters. With an empty text it is true for every row.
func Search(text string, expressions ...string) (condition string, args []any) {
	if text == "" {
		return "1 = 1", nil
	}
	pattern := "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(lowerASCII(text)) + "%"
	conditions := make([]string, len(expressions))
	for i, expression := range expressions {
		// LOWER knows only the letters of ASCII in SQLite, and with this collation in PostgreSQL, too.
		conditions[i], args = `LOWER(`+expression+` COLLATE "C") LIKE ? ESCAPE '\'`, append(args, pattern)
	}
	return "(" + strings.Join(conditions, " OR ") + ")", args
}

func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

// WriteCSV writes rows as CSV (RFC 4180). It prefixes text that a spreadsheet would run as a
// formula with an apostrophe, which spreadsheets do not show.
func WriteCSV(w io.Writer, heads []string, rows [][]string) error {
	out := csv.NewWriter(w)
	for _, row := range slices.Concat([][]string{heads}, rows) {
		safe := make([]string, len(row))
		for i, text := range row {
			safe[i] = harmless(text)
		}
		if err := out.Write(safe); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// harmless follows OWASP's advice on CSV injection: these characters begin a formula, alone or
// after characters that spreadsheets skip.
func harmless(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(text)[0]) {
		return "'" + text
	}
	return text
}
