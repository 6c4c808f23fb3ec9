package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

const (
	// maxErrorBody bounds what is read of an answer that reports an error, in bytes.
	maxErrorBody = 1 << 20
	// maxAnswer bounds what is read of any other answer that is no file, in bytes: the
	// VMs of a large fleet fit.
	maxAnswer = 256 << 20
)

// Call is one run of a command.
type Call struct {
	*Session
	Cmd  *cobra.Command
	Args []string
	// API is for requests that are answered at once, within --timeout; Slow is for those
	// that take as long as they take.
	API, Slow *hypervisorapi.Client
	Out       *output.Printer

	access *access
}

// Answer is a success.
type Answer struct {
	Header http.Header
	Body   []byte
}

func (s *Session) begin(cmd *cobra.Command, args []string) (*Call, error) {
	a, err := s.access()
	if err != nil {
		return nil, err
	}
	api, err := a.client(s.timeout)
	if err != nil {
		return nil, err
	}
	slow, err := a.client(0)
	if err != nil {
		return nil, err
	}
	return &Call{Session: s, Cmd: cmd, Args: args, API: api, Slow: slow, Out: output.NewPrinter(cmd.OutOrStdout(), s.format), access: a}, nil
}

// Table tells whether the answer is for a person's eyes rather than for a program.
func (c *Call) Table() bool { return c.format == output.Table }

// Send reads the answer to a request; it takes what a generated method returns.
func (c *Call) Send(r *http.Response, err error) (Answer, error) {
	r, err = c.Open(r, err)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = r.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return Answer{}, transportError(fmt.Errorf("read the answer: %w", err))
	}
	return Answer{r.Header, body}, nil
}

// Open is Send for an answer that the caller reads piece by piece, and closes.
func (c *Call) Open(r *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, transportError(err)
	}
	if r.StatusCode < 400 {
		return r, nil
	}
	defer func() { _ = r.Body.Close() }()
	return nil, apiError(r)
}

// Decode makes a value of an answer.
func Decode[T any](a Answer, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		return v, exit.Hinted(fmt.Errorf("the answer is not as the API's contract says: %w", err),
			"is --url the hypervisor daemon, and of this version?")
	}
	return v, nil
}

// Socket opens the WebSocket at a path of the API, such as a VM's console.
func (c *Call) Socket(ctx context.Context, path string) (*websocket.Conn, error) {
	conn, r, err := c.access.socket(ctx, path, c.timeout)
	if err == nil {
		return conn, nil
	}
	if r != nil && r.StatusCode >= 400 {
		return nil, apiError(r) // the library holds the body's first KiB
	}
	return nil, transportError(err)
}

// Say tells a person what was done. Programs see it by the exit code.
func (c *Call) Say(format string, args ...any) error {
	if !c.Table() {
		return nil
	}
	_, err := fmt.Fprintln(c.Out.Out, output.Escape(fmt.Sprintf(format, args...)))
	return err
}

// Note tells a person something beside the answer.
func (c *Call) Note(format string, args ...any) {
	_, _ = fmt.Fprintln(c.Cmd.ErrOrStderr(), output.Escape(fmt.Sprintf(format, args...))) // the answer is what counts
}

// Done prints what a change answered: the object for programs, a sentence for people.
func (c *Call) Done(a Answer, format string, args ...any) error {
	return c.Out.ObjectAs(a.Body, func() error { return c.Say(format, args...) })
}

// apiError is what the daemon says went wrong.
func apiError(r *http.Response) error {
	// What could not be read is treated like an answer that is no error body.
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	var e hypervisorapi.Error
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		return coded(r, errors.New(client.Refused(r, "", "")))
	}
	details := []string{"code " + e.Code}
	if e.Field != nil && *e.Field != "" {
		details = append(details, "field "+*e.Field)
	}
	if e.Limit != nil && *e.Limit != "" {
		details = append(details, "limit "+*e.Limit)
	}
	err := coded(r, &Refused{Status: r.StatusCode, Word: e.Code, text: client.Refused(r, e.Error, e.RequestId, details...)})
	if e.Code == "agent_not_connected" {
		return exit.Hinted(err, "'mainstay vm wait VM --for agent' waits until it is connected; 'mainstay vm console VM' shows what the guest does")
	}
	return err
}

// Refused is what the daemon says is wrong with a request.
type Refused struct {
	Status int
	Word   string // the stable word of the error's code
	text   string
}

func (r *Refused) Error() string { return r.text }

// IsRefused tells whether the daemon refused with this code.
func IsRefused(err error, code string) bool {
	var r *Refused
	return errors.As(err, &r) && r.Word == code
}

func coded(r *http.Response, err error) error {
	e := &exit.Error{Code: exit.Failure, Err: err}
	switch r.StatusCode {
	case http.StatusNotFound:
		e.Code = exit.NotFound
	case http.StatusUnauthorized:
		e.Code = exit.Denied
		e.Hint = "give a token with --token or HYPERVISOR_TOKEN; 'mainstay dev' leaves one in .mainstay/credentials.json"
	case http.StatusForbidden:
		e.Code = exit.Denied
		e.Hint = "'mainstay vm whoami' shows whose token this is"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after := r.Header.Get("Retry-After"); after != "" {
			e.Hint = fmt.Sprintf("try again in %s s", output.Escape(after))
		}
	case http.StatusInsufficientStorage:
		e.Hint = "'mainstay image clean' removes from disk what nothing needs any more"
	case http.StatusGatewayTimeout:
		e.Hint = "'mainstay vm ping VM' asks the agent in the guest for an answer"
	}
	return e
}

// transportError is why there was no answer.
func transportError(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return exit.Hinted(errors.New(client.Failure(err, "").Error()),
			"start it with 'mainstay dev' or 'mainstay serve hypervisor', or name another with --url")
	}
	return client.Failure(err, "mainstay serve hypervisor")
}
