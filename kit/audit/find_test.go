package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// stuff adds entries to the table alone. Find does not look at hashes.
func stuff(t *testing.T, d *db.DB, first, last int, begin time.Time) {
	t.Helper()
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		for seq := first; seq <= last; seq++ {
			e := audit.Entry{
				Seq: int64(seq), ID: fmt.Sprint(seq), Time: db.At(begin.Add(time.Duration(seq) * time.Second)), Result: audit.OK,
				Actor: fmt.Sprint("actor-", seq%2), Action: fmt.Sprint("thing.", seq%3), Target: fmt.Sprint("target-", seq%1000),
				Tenant: fmt.Sprint("org-", seq%5), Site: fmt.Sprint("site-", seq%7), Message: fmt.Sprintf("100%% of %d_", seq),
				Detail: "{}",
			}
			if seq%4 == 0 {
				e.Result = audit.Denied
			}
			if err := tx.Insert(t.Context(), "audit_entries", e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestThePagesOfFindHoldWhatListFinds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		stuff(t, d, 1, 3000, begin)
		stuff(t, d, 4001, 7000, begin)
		org, none := "org-3", "org-9"
		for _, filter := range []audit.Filter{
			{}, {Before: 4500}, {Tenant: &org}, {Tenant: &none}, {Site: "site-2"}, {Actor: "actor-1"}, {Action: "thing.2"},
			{Target: "target-17"}, {Result: audit.Denied}, {Tenant: &org, Actor: "actor-1"}, {Tenant: &none, Actor: "actor-1"},
			{Tenant: &org, Site: "site-2", Action: "thing.2", Result: audit.Denied}, {Actor: "actor-1", Action: "thing.9"},
			{Without: "thing.1"}, {Text: "OF 1000_"}, {Text: "%"}, {Text: "nothing"}, {Text: "' OR 1=1 --"}, {Text: `\`},
			{Tenant: &org, Text: "5_"}, {From: begin.Add(4500 * time.Second), To: begin.Add(4600 * time.Second)},
			{To: begin.Add(2999 * time.Second), Actor: "actor-0"}, {From: begin.Add(9 * time.Hour)}, {To: begin},
			{From: begin.Add(3500 * time.Second), Text: "of 4001_"},
		} {
			filter.Limit = 100_000
			want, err := f.List(t.Context(), d, filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []audit.Entry
			filter.Limit = 700
			for pages := 0; ; pages++ {
				page, examined, err := f.Find(t.Context(), d, filter)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, page...)
				if len(page) == filter.Limit {
					examined = page[len(page)-1].Seq
				}
				if examined == 0 {
					break
				}
				if pages > 50 || filter.Before > 0 && examined >= filter.Before {
					t.Fatalf("%+v does not end", filter)
				}
				filter.Before = examined
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %d entries, want %d", filter, len(got), len(want))
			}
		}
	})
}

func TestAPageOfFindExaminesABoundedNumberOfEntries(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		f := open(t, d)
		stuff(t, d, 1, 12_000, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		for _, tt := range []struct {
			filter audit.Filter
			want   int64
		}{
			{audit.Filter{Text: "nothing"}, 10_001},
			{audit.Filter{Text: "nothing", Before: 10_001}, 8_001},
			{audit.Filter{Text: "nothing", Before: 1_000}, 0},
			{audit.Filter{Actor: "actor-1", Text: "nothing"}, 8_001},
			{audit.Filter{Actor: "actor-1", Result: audit.Error}, 2_001},
			{audit.Filter{Without: "thing.0", Result: audit.Error}, 0},
			{audit.Filter{Actor: "actor-9", Text: "nothing"}, 0},
		} {
			tt.filter.Limit = 10
			entries, examined, err := f.Find(t.Context(), d, tt.filter)
			if err != nil || examined != tt.want || len(entries) > 0 {
				t.Errorf("%+v: %d entries, examined down to %d, want %d; %v", tt.filter, len(entries), examined, tt.want, err)
			}
		}
	})
}

func TestFindRefusesASpanThatEndsBeforeItBegins(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, _, err := open(t, d).Find(t.Context(), d, audit.Filter{From: at, To: at, Limit: 1}); err != nil {
		t.Error(err)
	}
	_, _, err := open(t, d).Find(t.Context(), d, audit.Filter{From: at.Add(time.Second), To: at, Limit: 1})
	if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "from" {
		t.Error(err)
	}
}

// planReader is a reader that also asks SQLite how it will read.
type planReader struct {
	*db.DB
	plans []string
}

func (p *planReader) explain(ctx context.Context, query string, args []any) error {
	var rows []struct {
		ID      int    `db:"id"`
		Parent  int    `db:"parent"`
		NotUsed int    `db:"notused"`
		Detail  string `db:"detail"`
	}
	err := p.DB.Select(ctx, &rows, "EXPLAIN QUERY PLAN "+query, args...)
	for _, r := range rows {
		p.plans = append(p.plans, r.Detail)
	}
	return err
}

func (p *planReader) Get(ctx context.Context, dest any, query string, args ...any) error {
	return errors.Join(p.explain(ctx, query, args), p.DB.Get(ctx, dest, query, args...))
}

func (p *planReader) Select(ctx context.Context, dest any, query string, args ...any) error {
	return errors.Join(p.explain(ctx, query, args), p.DB.Select(ctx, dest, query, args...))
}

// A filter that an index answers, and one that bounds the entries, must not be answered by another
// index, which has more entries between the same numbers.
func TestFindReadsByOneIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	f := open(t, d)
	stuff(t, d, 1, 10, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	org := "org-3"
	for index, filter := range map[string]audit.Filter{
		"audit_by_target": {Target: "t", Site: "s", Action: "a", Actor: "b", Tenant: &org, Result: audit.OK},
		"audit_by_site":   {Site: "s", Action: "a", Actor: "b", Tenant: &org, Result: audit.OK, Text: "x"},
		"audit_by_action": {Action: "a", Actor: "b", Tenant: &org, Result: audit.OK, Text: "x"},
		"audit_by_actor":  {Actor: "b", Tenant: &org, Result: audit.OK, Without: "a"},
		"audit_by_tenant": {Tenant: &org, Result: audit.OK, Text: "x", Without: "a"},
		"audit_by_result": {Result: audit.OK, Text: "x", Without: "a"},
		"PRIMARY KEY":     {Text: "x", Without: "a"},
	} {
		p := &planReader{DB: d}
		if _, _, err := f.Find(t.Context(), p, filter); err != nil {
			t.Fatal(err)
		}
		if len(p.plans) != 2 {
			t.Errorf("%+v: %d queries", filter, len(p.plans))
		}
		for _, plan := range p.plans {
			if !strings.Contains(plan, index) || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("%+v: %s", filter, plan)
			}
		}
	}
}
