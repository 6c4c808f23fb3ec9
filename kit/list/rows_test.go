package list_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// walk follows the links of a list to its end.
func walk(
	t *testing.T, page func(ctx context.Context, cursor *string) ([]string, *string, error),
) (all []string, pages int) {
	t.Helper()
	here, err := url.Parse("/v1/things?state=up")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cursor := list.WithURL(t.Context(), here), ""
	for {
		items, next, err := page(ctx, &cursor)
		if err != nil {
			t.Fatal(err)
		}
		all, pages = append(all, items...), pages+1
		if next == nil {
			return all, pages
		}
		if cursor = rest.NextCursor(http.Header{"Link": {*next}}); cursor == "" || pages > 10 {
			t.Fatalf("page %d leads to %s", pages, *next)
		}
	}
}

func TestPagesOfAListHoldEveryRowOnce(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	three := 3
	got, pages := walk(t, func(ctx context.Context, cursor *string) ([]string, *string, error) {
		return list.Rows(ctx, &three, cursor, 100, func(after string, limit int) ([]string, error) {
			at, _ := slices.BinarySearch(names, after+"\x00")
			return names[at:min(at+limit, len(names))], nil
		}, func(s string) string { return s }, func(s string) string { return s + "!" })
	})
	if !slices.Equal(got, []string{"a!", "b!", "c!", "d!", "e!"}) || pages != 2 {
		t.Errorf("%v on %d pages", got, pages)
	}
	two := 2
	got, pages = walk(t, func(ctx context.Context, cursor *string) ([]string, *string, error) {
		return list.Down(ctx, &two, cursor, 100, func(before int64, limit int) ([]int64, error) {
			if before == 0 {
				before = 5
			}
			var rows []int64
			for n := before - 1; n > 0 && len(rows) < limit; n-- {
				rows = append(rows, n)
			}
			return rows, nil
		}, func(n int64) int64 { return n }, func(n int64) string { return strconv.FormatInt(n, 10) })
	})
	if !slices.Equal(got, []string{"4", "3", "2", "1"}) || pages != 2 {
		t.Errorf("%v on %d pages", got, pages)
	}
}

func TestACursorOfAnotherListIsRefused(t *testing.T) {
	t.Parallel()
	here := list.WithURL(t.Context(), &url.URL{Path: "/v1/numbers"})
	one := 1
	number := func(n int64) int64 { return n }
	_, next, err := list.Down(list.WithURL(t.Context(), &url.URL{Path: "/v1/others"}), &one, nil, 10,
		func(int64, int) ([]int64, error) { return []int64{3, 2}, nil }, number, number)
	if err != nil || next == nil {
		t.Fatalf("%v, %v", next, err)
	}
	other, _, _ := strings.Cut(strings.TrimPrefix(*next, "</v1/others?cursor="), ">")
	cursors := []string{other}
	for _, key := range []string{"a", "0", "-1", "99999999999999999999"} {
		cursors = append(cursors, list.EncodeCursor(key))
	}
	for _, cursor := range cursors {
		_, _, err := list.Down(here, nil, &cursor, 10, func(int64, int) ([]int64, error) {
			t.Errorf("%s: rows are read", cursor)
			return nil, nil
		}, number, number)
		if f := fault.From(err); f == nil || f.Field != "cursor" {
			t.Errorf("%s: %v", cursor, err)
		}
	}
}

func TestAnEmptyListIsNotNull(t *testing.T) {
	t.Parallel()
	here := list.WithURL(t.Context(), &url.URL{Path: "/v1/nothing"})
	items, next, err := list.Rows(here, nil, nil, 10, func(string, int) ([]int, error) { return nil, nil },
		func(int) string { return "" }, func(n int) int { return n })
	if items == nil || len(items) != 0 || next != nil || err != nil {
		t.Errorf("%v %v %v", items, next, err)
	}
}
