package list_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

var sorts = list.Sorts{
	List: "things", Unique: "id", Usual: "id",
	By: map[string]list.Column{"id": {Name: "id"}, "name": {Name: "name"}, "size": {Name: "size", Number: true}},
}

type sortedThing struct {
	ID   string `db:"id"`
	Name string `db:"name"`
	Size int64  `db:"size"`
}

func TestPagesOfEveryOrderHoldEachRowOnce(t *testing.T) {
	t.Parallel()
	tables := dbtest.Migrations{"sorted": fstest.MapFS{"0001_things.sql": {Data: []byte(`-- +goose Up
CREATE TABLE things (id TEXT PRIMARY KEY, name TEXT NOT NULL, size BIGINT NOT NULL);
-- +goose Down
DROP TABLE things;
`)}}}
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for i := range 23 {
				row := sortedThing{fmt.Sprintf("t'%02d", i), fmt.Sprintf(`n"%d`, i%3), int64(i % 4)}
				if err := tx.Insert(t.Context(), "things", row); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, sort := range []string{"", "id", "-id", "name", "-name", "size", "-size"} {
			order, err := sorts.Order(sort)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			if err := d.Select(t.Context(), &want, "SELECT id FROM things "+order.SQL("")); err != nil {
				t.Fatal(err)
			}
			for after := ""; ; {
				where, args, err := order.After(after)
				if err != nil {
					t.Fatal(err)
				}
				var rows []sortedThing
				if err := d.Select(
					t.Context(), &rows, "SELECT * FROM things WHERE "+where+" "+order.SQL("")+" LIMIT 5", args...,
				); err != nil {
					t.Fatal(err)
				}
				if len(rows) == 0 {
					break
				}
				for _, r := range rows {
					got = append(got, r.ID)
				}
				last := rows[len(rows)-1]
				value := map[string]string{"name": last.Name, "size": strconv.FormatInt(last.Size, 10)}
				after = order.Key(value[strings.TrimPrefix(sort, "-")], last.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q: %v, want %v", sort, got, want)
			}
		}
	})
}

func TestACursorOfAnotherListOrOrderIsRefused(t *testing.T) {
	t.Parallel()
	byName, err := sorts.Order("name")
	if err != nil {
		t.Fatal(err)
	}
	other := sorts
	other.List = "others"
	otherByName, err := other.Order("name")
	if err != nil {
		t.Fatal(err)
	}
	bySize, err := sorts.Order("-size")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		otherByName.Key("a", "b"), bySize.Key("1", "b"), "plain", `["things","name","a"]`, `["things","name","a","b","c"]`,
		`{"a":1}`, `["things","name",1,"b"]`, `["things","name","a\u0000","b"]`, "[", "null",
	} {
		if _, _, err := byName.After(key); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "cursor" {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, _, err := bySize.After(bySize.Key("1; DROP TABLE things", "b")); fault.From(err).Field != "cursor" {
		t.Errorf("a number that is none: %v", err)
	}
	for _, sort := range []string{"price", "--name", "NAME", "-", "name DESC"} {
		if _, err := sorts.Order(sort); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "sort" {
			t.Errorf("%s: %v", sort, err)
		}
	}
}

func TestTheLongestKeysStillMakeACursor(t *testing.T) {
	t.Parallel()
	order, err := sorts.Order("name")
	if err != nil {
		t.Fatal(err)
	}
	for _, letter := range []string{"\u2028", "𝒳", "\"", "<"} {
		key := order.Key(strings.Repeat(letter, 128), strings.Repeat(letter, 128))
		decoded, err := list.DecodeCursor(list.EncodeCursor(key))
		if err != nil || decoded != key {
			t.Errorf("%q: %v", letter, err)
		}
	}
}

func TestAPageThatEndsBeforeItIsFullLinksToWhereItStopped(t *testing.T) {
	t.Parallel()
	here := httptest.NewRequest("GET", "/v1/things?q=x", nil).URL
	ctx := list.WithURL(context.Background(), here)
	// The list has the numbers 10 to 1, the search is for those that 4 divides, and a page examines 3.
	fetch := func(before int64, limit int) (rows []int64, examined int64, err error) {
		if before == 0 {
			before = 11
		}
		for n := before - 1; n >= 1; n-- {
			if before-n > 3 {
				return rows, n + 1, nil
			}
			if n%4 == 0 && len(rows) < limit {
				rows = append(rows, n)
			}
		}
		return rows, 0, nil
	}
	var pages []string
	cursor := ""
	for {
		items, next, err := list.DownExamined(
			ctx, nil, &cursor, 2, fetch, func(n int64) int64 { return n }, func(n int64) int64 { return n },
		)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, fmt.Sprint(items))
		if next == nil {
			break
		}
		cursor = rest.NextCursor(map[string][]string{"Link": {*next}})
	}
	if got := strings.Join(pages, " "); got != "[8] [] [4] []" {
		t.Error(got)
	}
}
