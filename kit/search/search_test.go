package search_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/search"
)

func TestTheTextOfARowIsBoundedAndHasItsLabelsLast(t *testing.T) {
	t.Parallel()
	if got := search.Text(map[string]string{"Zone": "NORTH", "a": "b"}, "ID", "Öfen"); got != "id\nöfen\nzone=north\na=b" {
		t.Errorf("%q", got)
	}
	for _, letter := range []string{"x", "Ü", "€", "𝒳"} {
		got := search.Text(map[string]string{"k": "v"}, "id", strings.Repeat(letter, 1024))
		if len(got) > 1024 || len(got) < 1020 || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes", letter, len(got))
		}
	}
}

type thing struct {
	ID     string `db:"id"`
	Name   string `db:"name"`
	Owner  string `db:"owner"`
	Search string `db:"search"`
}

var things = list.Sorts{List: "things", Unique: "id", Usual: "id", By: map[string]list.Column{
	"id": {Name: "id"}, "name": {Name: "name"},
}}

func TestRowsAreDescribedAndFoundWithinTheScope(t *testing.T) {
	t.Parallel()
	tables := dbtest.Migrations{"things": fstest.MapFS{"0001_things.sql": {Data: []byte(`-- +goose Up
CREATE TABLE things (id TEXT PRIMARY KEY, name TEXT NOT NULL, owner TEXT NOT NULL, search TEXT NOT NULL);
-- +goose Down
DROP TABLE things;
`)}}}
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		names := []string{"Pump", "100%", `a_\b`, "ÖLPUMPE", "pump", "ΟΔΟΣ", "οδος"}
		steps := 0
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for i, name := range names {
				row := thing{ID: fmt.Sprint("t", i), Name: name, Owner: []string{"x", "y"}[i%2]}
				if err := tx.Insert(t.Context(), "things", row); err != nil {
					return err
				}
			}
			for more := true; more; steps++ {
				n, err := search.Describe(t.Context(), tx, "things", "id", 2, func(r *thing) (id, text string) {
					return r.ID, search.Text(nil, r.ID, r.Name)
				})
				if err != nil {
					return err
				}
				more = n == 2
			}
			return nil
		}); err != nil || steps != 4 {
			t.Fatalf("%d steps, %v", steps, err)
		}
		find := func(p search.Page) string {
			t.Helper()
			var rows []thing
			p.Table, p.ID, p.Sorts, p.Limit = "things", "id", things, 100
			if _, err := p.Read(t.Context(), d, &rows); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, r := range rows {
				ids = append(ids, r.ID)
			}
			return strings.Join(ids, " ")
		}
		all, mine, second := db.All(), db.Where("owner = ?", "x"), db.Where("id = ?", "t1")
		for _, tt := range []struct {
			page search.Page
			want string
		}{
			{search.Page{Scope: all}, "t0 t1 t2 t3 t4 t5 t6"},
			{search.Page{Scope: all, Text: "PUMP"}, "t0 t3 t4"},
			{search.Page{Scope: all, Text: "öl"}, "t3"},
			{search.Page{Scope: all, Text: "ΟΔΟΣ"}, "t5 t6"},
			{search.Page{Scope: all, Text: "οδος"}, "t5 t6"},
			{search.Page{Scope: all, Text: "οδοσ"}, "t5 t6"},
			{search.Page{Scope: all, Text: "%"}, "t1"},
			{search.Page{Scope: all, Text: "_"}, "t2"},
			{search.Page{Scope: all, Text: `\`}, "t2"},
			{search.Page{Scope: mine, Text: "pump", Sort: "-id"}, "t4 t0"},
			{search.Page{Scope: all, Text: "pump", Or: &second}, "t0 t1 t3 t4"},
			{search.Page{Scope: mine, Text: "pump", Or: &second}, "t0 t4"}, // never more than the scope
			{search.Page{Text: "pump", Or: &second}, ""},                   // no scope: nothing
		} {
			if got := find(tt.page); got != tt.want {
				t.Errorf("%+v: %q, want %q", tt.page, got, tt.want)
			}
		}
		for field, p := range map[string]search.Page{
			"q": {Scope: all, Text: "a\x00"}, "sort": {Scope: all, Sort: "owner"}, "cursor": {Scope: all, After: "x"},
		} {
			p.Table, p.ID, p.Sorts, p.Limit = "things", "id", things, 1
			if _, err := p.Read(t.Context(), d, &[]thing{}); !fault.Is(err, fault.Invalid) || fault.From(err).Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}
