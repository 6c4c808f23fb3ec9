package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// largestPage is the API's largest page size.
const largestPage = 1000

// page is the requested part of a list.
type page struct {
	limit  *int
	cursor *string
}

// list returns a command that prints a list of T, over as many pages as necessary.
func list[T any](
	s *session, v verb, columns output.Columns[T], r func(context.Context, *call, page) (*http.Response, error),
) *cobra.Command {
	var limit int
	var all bool
	cmd := s.command(v, func(ctx context.Context, c *call) error {
		if all {
			limit = 0
		} else if limit < 1 {
			return exit.Usagef("--limit must be at least 1; --all asks for everything")
		}
		l := output.NewList(c.out, columns)
		more, err := c.pages(limit, l.Page, func(p page) (*http.Response, error) { return r(ctx, c, p) })
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
		if more && c.format == output.Table {
			_, err = fmt.Fprintln(
				c.cmd.ErrOrStderr(), "There is more: --limit asks for more of it, --all for everything.",
			)
		}
		return err
	})
	cmd.Flags().IntVar(&limit, "limit", 100, "print at most so many")
	cmd.Flags().BoolVar(&all, "all", false, "print everything, however much it is")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
	return cmd
}

// pages passes the items of page after page to use, until there are limit (0 for all). It reports
// whether the server has more.
func (c *call) pages(
	limit int, use func([]json.RawMessage) error, r func(page) (*http.Response, error),
) (more bool, err error) {
	next := ""
	for got := 0; ; {
		size := largestPage
		if limit > 0 {
			size = min(size, limit-got)
		}
		p := page{limit: &size}
		if next != "" {
			p.cursor = &next
		}
		a, err := c.send(r(p))
		items, err := decode[[]json.RawMessage](a, err)
		if err != nil {
			return false, err
		}
		if err := use(items); err != nil {
			return false, err
		}
		got += len(items)
		before := next
		next = rest.NextCursor(a.Header)
		if next == "" || limit > 0 && got >= limit {
			return next != "", nil
		}
		if next == before {
			return false, errors.New("the server names the same next page twice; the list is not complete")
		}
	}
}
