package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// maxErrorBody bounds what is read of an answer that reports an error.
const maxErrorBody = 1 << 20

// call is one run of a command.
type call struct {
	*session
	cmd  *cobra.Command
	args []string
	api  *edgeapi.Client
	out  *output.Printer
}

// answer is a success.
type answer struct {
	header http.Header
	body   []byte
}

func (s *session) begin(cmd *cobra.Command, args []string) (*call, error) {
	api, err := s.client(s.timeout)
	if err != nil {
		return nil, err
	}
	return &call{session: s, cmd: cmd, args: args, api: api, out: output.NewPrinter(cmd.OutOrStdout(), s.format)}, nil
}

// send reads the answer to a request; it takes what a generated method returns.
func (c *call) send(r *http.Response, err error) (answer, error) {
	if err != nil {
		return answer{}, transportError(err)
	}
	// A body that was read to its end closes without an error that matters.
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode >= 400 {
		return answer{}, apiError(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return answer{}, transportError(fmt.Errorf("read the answer: %w", err))
	}
	return answer{r.Header, body}, nil
}

// decode makes a value of an answer.
func decode[T any](a answer, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		return v, exit.Hinted(fmt.Errorf("the answer is not as the API's contract says: %w", err),
			"is --server the edge control plane, and of this version?")
	}
	return v, nil
}

// apiError is what the server says went wrong.
func apiError(r *http.Response) error {
	// What could not be read is treated like an answer that is no error body.
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	var e edgeapi.Error
	if json.Unmarshal(body, &e) != nil || e.Error.Message == "" {
		return codedError(r, errors.New(client.Refused(r, "", "")))
	}
	details := []string{"code " + e.Error.Code}
	if e.Error.Field != nil && *e.Error.Field != "" {
		details = append(details, "field "+*e.Error.Field)
	}
	return codedError(r, errors.New(client.Refused(r, e.Error.Message, e.Error.RequestId, details...)))
}

func codedError(r *http.Response, err error) error {
	e := &exit.Error{Code: exit.Failure, Err: err}
	switch r.StatusCode {
	case http.StatusNotFound:
		e.Code = exit.NotFound
	case http.StatusUnauthorized:
		e.Code = exit.Denied
		e.Hint = "give a token with --token or EDGE_TOKEN; 'mainstay edge login' makes one"
	case http.StatusForbidden:
		e.Code = exit.Denied
		e.Hint = "'mainstay edge whoami' shows whose token this is"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := r.Header.Get("Retry-After"); after != "" {
			e.Hint = fmt.Sprintf("try again in %s s", output.Escape(after))
		}
	}
	return e
}

// transportError is why there was no answer.
func transportError(err error) error { return client.Failure(err, "mainstay dev") }
