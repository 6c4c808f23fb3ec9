package verb

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// largestPage is the API's largest page size.
const largestPage = 1000

// Page is the requested part of a list. Lists without pages ignore it.
type Page struct {
	Limit  *int
	Cursor *string
	// Search is a text that the objects must contain, for kinds whose lists are Searched.
	Search *string
}

// List returns a command that prints a list of T, over as many pages as necessary.
func List[T, A any](
	s *Session[A], v Verb, columns output.Columns[T], r func(context.Context, *Call[A], Page) (*http.Response, error),
) *cobra.Command {
	var limit Limit
	v.Check = func(cmd *cobra.Command, args []string) error {
		return limit.Filtered(cmd, args)
	}
	cmd := s.Command(v, func(ctx context.Context, c *Call[A]) error {
		l := output.NewList(c.Out, columns)
		more, err := c.Pages(limit.count, l.Page, func(p Page) (*http.Response, error) { return r(ctx, c, p) })
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
		if more {
			c.More()
		}
		return nil
	})
	limit.AddFlags(cmd)
	return cmd
}

// noEmptyFilters refuses empty values for the flags of a command itself. Other than those of all
// commands, they are filters and orders.
func noEmptyFilters(cmd *cobra.Command) error {
	return nothingEmpty(cmd, func(f *pflag.Flag) bool {
		return f.Value.Type() == "string" && cmd.LocalNonPersistentFlags().Lookup(f.Name) != nil
	})
}

// Filtered is the Check of a command that prints a list which is not one of List.
func (l *Limit) Filtered(cmd *cobra.Command, args []string) error {
	if err := noEmptyFilters(cmd); err != nil {
		return err
	}
	return l.Check(cmd, args)
}

// Limit is how many items a list prints: the values of --limit and --all.
type Limit struct {
	count int // 0: all
	all   bool
}

// AddFlags defines the flags.
func (l *Limit) AddFlags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.count, "limit", 100, "print at most so many")
	cmd.Flags().BoolVar(&l.all, "all", false, "print everything, however much it is")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
}

// Check is the Check of the command.
func (l *Limit) Check(*cobra.Command, []string) error {
	if l.all {
		l.count = 0
	} else if l.count < 1 {
		return exit.Usagef("--limit must be at least 1; --all asks for everything")
	}
	return nil
}

// Next returns the size of the next page of a list of which so many were printed: at most page, and 0
// when there are enough.
func (l *Limit) Next(printed, page int) int {
	if l.count == 0 {
		return page
	}
	return min(page, l.count-printed)
}

// Of returns as many of the items of a whole list as are to be printed.
func (l *Limit) Of(items []json.RawMessage) []json.RawMessage {
	if l.count > 0 {
		return items[:min(l.count, len(items))]
	}
	return items
}

// More tells people that a list is not complete.
func (c *Call[A]) More() {
	if c.Table() {
		c.Note("There is more: --limit asks for more of it, --all for everything.")
	}
}

// Pages passes the items of page after page to use, until there are limit (0 for all). It reports
// whether the server has more.
func (c *Call[A]) Pages(
	limit int, use func([]json.RawMessage) error, r func(Page) (*http.Response, error),
) (more bool, err error) {
	next := ""
	for got := 0; ; {
		size := largestPage
		if limit > 0 {
			size = min(size, limit-got)
		}
		p := Page{Limit: &size}
		if next != "" {
			p.Cursor = &next
		}
		a, err := c.Send(r(p))
		items, err := client.Decode[[]json.RawMessage](c.api.Service, a, err)
		if err != nil {
			return false, err
		}
		if over := got + len(items) - limit; limit > 0 && over > 0 {
			return true, use(items[:len(items)-over]) // from a list without pages
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
