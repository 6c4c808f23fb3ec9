package list_test

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
)

func TestOffsetsAreBounded(t *testing.T) {
	t.Parallel()
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		offset, limit *int
		want          list.Offset
		field         string
	}{
		{nil, nil, list.Offset{Limit: 20}, ""},
		{n(40), n(10), list.Offset{Offset: 40, Limit: 10}, ""},
		{n(-1), nil, list.Offset{}, "offset"},
		{n(100_001), nil, list.Offset{}, "offset"},
		{nil, n(0), list.Offset{}, "limit"},
		{nil, n(1001), list.Offset{}, "limit"},
	} {
		got, err := list.ParseOffset(c.offset, c.limit, 20)
		if f := fault.From(err); got != c.want || (err != nil) != (c.field != "") || err != nil && f.Field != c.field {
			t.Errorf("%v %v: %+v, %v; want %+v, %s", c.offset, c.limit, got, err, c.want, c.field)
		}
	}
}

var things = list.Columns{"name": "name", "size": "size"}

func TestRowsAreFoundFilteredAndSortedByWhatTheListAllows(t *testing.T) {
	t.Parallel()
	tables := dbtest.Migrations{"things": fstest.MapFS{"0001_things.sql": {Data: []byte(`-- +goose Up
CREATE TABLE things (name TEXT NOT NULL, size TEXT NOT NULL);
-- +goose Down
DROP TABLE things;
`)}}}
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for _, name := range []string{"Ball_1", "Ball%2", `Ball\3`, "Car", "doll"} {
				size := "small"
				if name == "Car" {
					size = "large"
				}
				if _, err := tx.Exec(t.Context(), "INSERT INTO things (name, size) VALUES (?, ?)", name, size); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ q, sort, size, want string }{
			{"", "", "", `Ball%2 Ball\3 Ball_1 Car doll`},
			{"ball", "", "", `Ball%2 Ball\3 Ball_1`},
			{"BALL_", "", "", "Ball_1"},
			{"l%", "", "", "Ball%2"},
			{`\`, "", "", `Ball\3`},
			{"' OR 1=1 --", "", "", ""},
			{"", "", "large", "Car"},
			{"a", "size", "", `Car Ball%2 Ball\3 Ball_1`},
			{"", "-name", "large", "Car"},
		} {
			found, args := list.Search(c.q, "name")
			filter := map[string]string{}
			if c.size != "" {
				filter["size"] = c.size
			}
			where, more, err := things.Where(filter)
			if err != nil {
				t.Fatal(err)
			}
			order, err := things.OrderBy(c.sort, "name", "name")
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			query := "SELECT name FROM things WHERE " + found + " AND " + where + " " + order
			if err := d.Select(t.Context(), &names, query, append(args, more...)...); err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(c.want)
			if !strings.HasPrefix(c.sort, "-") && c.sort == "" { // engines order punctuation as they like
				slices.Sort(names)
				slices.Sort(want)
			}
			if c.sort == "size" {
				names, want = names[:1], want[:1]
			}
			if !slices.Equal(names, want) {
				t.Errorf("%+v: %q", c, names)
			}
		}
	})
}

// Both engines find the same, whatever the letters.
func TestOnlyTheCaseOfASCIILettersIsIgnored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, dbtest.Migrations{}, func(t *testing.T, d *db.DB) {
		for _, c := range []struct {
			in, q string
			want  bool
		}{
			{"t1/CAFÉ", "CAFÉ", true}, {"t1/CAFÉ", "cafÉ", true}, {"t1/CAFÉ", "café", false}, {"t1/café", "CAFÉ", false},
			{"Σ", "Σ", true}, {"σ", "Σ", false}, {"Σ", "σ", false}, {"ς", "σ", false}, {"ς", "ς", true}, {"ΟΔΟΣ", "ΟΔΟΣ", true},
			{"ẞ", "ẞ", true}, {"ẞ", "ß", false}, {"ß", "ẞ", false}, {"ß", "ss", false},
			{"İ", "İ", true}, {"İ", "i", false}, {"I", "i", true}, {"ı", "I", false}, {"K", "k", true}, {"\u212a", "k", false},
		} {
			contains, args := list.Search(c.q, "text")
			var got int
			if err := d.Get(t.Context(), &got, "SELECT count(*) FROM (SELECT CAST(? AS TEXT) AS text) t WHERE "+contains,
				append([]any{c.in}, args...)...); err != nil {
				t.Fatal(err)
			}
			if (got == 1) != c.want {
				t.Errorf("%s in %s: %v, want %v", c.q, c.in, got == 1, c.want)
			}
		}
	})
}

func TestNothingThatAClientSendsBecomesSQL(t *testing.T) {
	t.Parallel()
	for _, sort := range []string{"price", "name; DROP TABLE things", "--name", "NAME", "-"} {
		if order, err := things.OrderBy(sort, "name", "name"); fault.From(err) == nil || fault.From(err).Field != "sort" {
			t.Errorf("%s: %s, %v", sort, order, err)
		}
	}
	if where, _, err := things.Where(map[string]string{"1=1 OR name": "x"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%s, %v", where, err)
	}
}

func TestCSVHoldsNoFormulas(t *testing.T) {
	t.Parallel()
	cells := []string{"plain", `quo"ted`, "com,ma", "=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", "＝1", "a=b", ""}
	var out strings.Builder
	if err := list.WriteCSV(&out, []string{"=head"}, [][]string{cells}); err != nil {
		t.Fatal(err)
	}
	in := csv.NewReader(strings.NewReader(out.String()))
	in.FieldsPerRecord = -1
	rows, err := in.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"plain", `quo"ted`, "com,ma", "'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "'\r=1", "'＝1", "a=b", ""}
	if rows[0][0] != "'=head" || !slices.Equal(rows[1], want) {
		t.Errorf("%q", rows)
	}
}
