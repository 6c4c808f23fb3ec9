package verb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	// identifyTime limits the question which server answered.
	identifyTime = 2 * time.Second
	// ours begins the titles of the contracts of all services.
	ours = "Mainstay "
)

// identify returns an error that names the server, if err looks like an answer of another one than the
// command is for. Otherwise a wrong address would show as an object that does not exist. It asks the
// server only then.
func identify(ctx context.Context, s *client.Service, reach *Access, err error) error {
	var refusal *rest.Refusal
	foreign := errors.Is(err, output.ErrAnswer)
	if errors.As(err, &refusal) {
		foreign = refusal.Code == "" && refusal.Message == ""
		switch refusal.Status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		default:
			if !foreign {
				return err
			}
		}
	} else if !foreign {
		return err
	}
	title, known := reach.title(ctx)
	name := s.Kind
	switch {
	case !known || title == s.Title:
		return err
	case strings.HasPrefix(title, ours):
		return exit.Hinted(
			fmt.Errorf("%s answers, but is not %s", reach.Server, name),
			fmt.Sprintf("it says that it is the %s; name another with --server", output.Escape(strings.TrimPrefix(title, ours))),
		)
	case foreign:
		return exit.Hinted(
			fmt.Errorf("%s answers, but is not %s", reach.Server, name), "name another server with --server",
		)
	}
	return err
}

// title returns the title of the server's contract, or "" if it serves none. known is false if that
// cannot be told.
func (a *Access) title(ctx context.Context) (title string, known bool) {
	ctx, cancel := context.WithTimeout(ctx, identifyTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.root.JoinPath("openapi.yaml").String(), nil)
	if err != nil {
		return "", false
	}
	answer, err := (&http.Client{Transport: a.Transport}).Do(r) // without the credential
	if err != nil {
		return "", false
	}
	defer func() { _ = answer.Body.Close() }() // read only
	if answer.StatusCode >= http.StatusInternalServerError {
		return "", false // of a proxy, for example
	}
	if answer.StatusCode != http.StatusOK {
		return "", true
	}
	const most = 4 << 10 // the title is at the top
	lines := bufio.NewScanner(io.LimitReader(answer.Body, most))
	for lines.Scan() {
		if title, ok := strings.CutPrefix(lines.Text(), "  title: "); ok {
			return strings.TrimSpace(title), true
		}
	}
	return "", true
}
