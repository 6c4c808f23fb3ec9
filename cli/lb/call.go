package lb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// maxAnswer bounds what is read of an answer, in bytes: 65,535 backends fit.
const maxAnswer = 64 << 20

// call is one run of a command.
type call struct {
	cmd  *cobra.Command
	args []string
	api  *lbapi.Client
	out  *output.Printer
}

// read reads the answer to a request; it takes what a generated method returns.
func read(r *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, transportError(err)
	}
	defer func() { _ = r.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return nil, transportError(fmt.Errorf("read the answer: %w", err))
	}
	if r.StatusCode >= 400 {
		return nil, apiError(r, body)
	}
	return body, nil
}

// decode makes a value of an answer.
func decode[T any](body []byte, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, exit.Hinted(fmt.Errorf("the answer is not as the API's contract says: %w", err), "is --server the load balancer, and of this version?")
	}
	return v, nil
}

// apiError is what the server says went wrong.
func apiError(r *http.Response, body []byte) error {
	e := &exit.Error{Code: exit.Failure}
	var answer lbapi.Error
	if json.Unmarshal(body, &answer) != nil || answer.Error.Message == "" {
		e.Err = errors.New(client.Refused(r, "", ""))
	} else {
		e.Err = errors.New(client.Refused(r, answer.Error.Message, answer.Error.RequestId, "code "+answer.Error.Code))
	}
	switch r.StatusCode {
	case http.StatusNotFound:
		e.Code, e.Hint = exit.NotFound, "'mainstay lb backends' shows what there is"
	case http.StatusUnauthorized:
		e.Code, e.Hint = exit.Denied, "set LB_API_KEY, or name a file with the key: --api-key-file"
	case http.StatusForbidden:
		e.Code, e.Hint = exit.Denied, "the key is a read-only one; changes need an admin key"
	case http.StatusServiceUnavailable:
		e.Hint = "'mainstay lb node' says what is wrong"
	}
	return e
}

// transportError is why there was no answer.
func transportError(err error) error { return client.Failure(err, "mainstay serve lb") }
