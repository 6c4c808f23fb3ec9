package list

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// MaxRows is the largest page size.
const MaxRows = 1000

type hereKey struct{}

// WithURL returns a context that holds the request's URL, for the links to further pages.
func WithURL(ctx context.Context, here *url.URL) context.Context {
	return context.WithValue(ctx, hereKey{}, here)
}

// Rows serves a page of a list that is ordered by a text key. It calls fetch for one row more than
// the page holds, after a key (empty: from the start), and returns the translated rows. next is the
// Link header for the next page, nil on the last page. usual is the default limit.
//
// The context must come from WithURL.
func Rows[T, A any](
	ctx context.Context, limit *int, cursor *string, usual int,
	fetch func(after string, limit int) ([]T, error), key func(T) string, translate func(T) A,
) (items []A, next *string, err error) {
	return Examined(ctx, limit, cursor, usual, func(after string, limit int) ([]T, string, error) {
		rows, err := fetch(after, limit)
		return rows, "", err
	}, key, translate)
}

// Examined is Rows for a list whose fetch examines a bounded number of rows, so that a search which
// finds little costs no more than one which finds much. examined is the key of the last row that
// fetch looked at, empty if it looked at all there are. The page then may have fewer items than the
// limit, or none, and a link to the next page, which continues after that row.
func Examined[T, A any](
	ctx context.Context, limit *int, cursor *string, usual int,
	fetch func(after string, limit int) (rows []T, examined string, err error),
	key func(T) string, translate func(T) A,
) (items []A, next *string, err error) {
	here, ok := ctx.Value(hereKey{}).(*url.URL)
	if !ok {
		return nil, nil, fault.New(fault.Internal, "list: the context does not know the URL")
	}
	p, err := ParsePage(limit, cursor, usual, MaxRows)
	if err != nil {
		return nil, nil, err
	}
	mark := markOf(here)
	if p.After != "" {
		if p.After, ok = strings.CutPrefix(p.After, mark); !ok || p.After == "" {
			return nil, nil, badCursor()
		}
	}
	rows, last, err := fetch(p.After, p.Limit+1)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		last = key(rows[p.Limit-1])
	}
	if last != "" {
		next = new(NextLink(here, EncodeCursor(mark+last)))
	}
	return Each(rows, translate), next, nil
}

// markLength is the length of a mark, in characters.
const markLength = 6

// markOf returns the mark of a list, with which its cursors begin, so that those of other lists are
// refused. It follows from the path, which is different for each list.
func markOf(here *url.URL) string {
	sum := sha256.Sum256([]byte(here.Path))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:markLength]
}

// Down is Rows for a list in descending order of a number, newest first. before is the number below
// which the page begins; 0 means from the newest.
func Down[T, A any](
	ctx context.Context, limit *int, cursor *string, usual int,
	fetch func(before int64, limit int) ([]T, error), number func(T) int64, translate func(T) A,
) (items []A, next *string, err error) {
	return DownExamined(ctx, limit, cursor, usual, func(before int64, limit int) ([]T, int64, error) {
		rows, err := fetch(before, limit)
		return rows, 0, err
	}, number, translate)
}

// DownExamined is Examined for a list in descending order of a number. examined is the lowest number
// that fetch looked at, 0 if it looked at all there are.
func DownExamined[T, A any](
	ctx context.Context, limit *int, cursor *string, usual int,
	fetch func(before int64, limit int) (rows []T, examined int64, err error),
	number func(T) int64, translate func(T) A,
) (items []A, next *string, err error) {
	return Examined(ctx, limit, cursor, usual, func(after string, limit int) (rows []T, examined string, err error) {
		var before int64
		if after != "" {
			if before, err = strconv.ParseInt(after, 10, 64); err != nil || before <= 0 {
				return nil, "", badCursor()
			}
		}
		rows, last, err := fetch(before, limit)
		if last > 0 {
			examined = strconv.FormatInt(last, 10)
		}
		return rows, examined, err
	}, func(row T) string { return strconv.FormatInt(number(row), 10) }, translate)
}

// Each translates rows. The result is never nil, since contracts have no null lists.
func Each[T, A any](rows []T, translate func(T) A) []A {
	items := make([]A, len(rows))
	for i, row := range rows {
		items[i] = translate(row)
	}
	return items
}
