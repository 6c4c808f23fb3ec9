package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Service is what the commands know of the hypervisor daemon.
var Service = client.Service{
	Unit: "hypervisor", Credential: "token",
	Name: "the hypervisor daemon", Flag: "--url", Start: "'mainstay dev' or 'mainstay serve hypervisor'",
	Hints: map[int]string{
		http.StatusUnauthorized:        "give a token with --token or HYPERVISOR_TOKEN; 'mainstay dev' leaves one in .mainstay/credentials.json",
		http.StatusForbidden:           "'mainstay vm whoami' shows whose token this is",
		http.StatusInsufficientStorage: "'mainstay image clean' removes from disk what nothing needs any more",
		http.StatusGatewayTimeout:      "'mainstay vm ping VM' asks the agent in the guest for an answer",
	},
	CodeHints: map[string]string{
		"agent_not_connected": "'mainstay vm wait VM --for agent' waits until it is connected; 'mainstay vm console VM' shows what the guest does",
	},
}

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
type Answer = client.Answer

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
	return &Call{
		Session: s,
		Cmd:     cmd,
		Args:    args,
		API:     api,
		Slow:    slow,
		Out:     output.NewPrinter(cmd.OutOrStdout(), s.format),
		access:  a,
	}, nil
}

// Table tells whether the answer is for a person's eyes rather than for a program.
func (c *Call) Table() bool { return c.format == output.Table }

// Send reads the answer to a request; it takes what a generated method returns.
func (c *Call) Send(r *http.Response, err error) (Answer, error) { return Service.Read(r, err) }

// Open is Send for an answer that the caller reads piece by piece, and closes.
func (c *Call) Open(r *http.Response, err error) (*http.Response, error) { return Service.Open(r, err) }

// Decode makes a value of an answer.
func Decode[T any](a Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }

// Socket opens the WebSocket at a path of the API, such as a VM's console.
func (c *Call) Socket(ctx context.Context, path string) (*websocket.Conn, error) {
	conn, r, err := c.access.socket(ctx, path, c.timeout)
	if err == nil {
		return conn, nil
	}
	if r != nil && r.StatusCode >= 400 {
		_, err = Service.Open(r, nil) // the library holds the body's first KiB
		return nil, err
	}
	return nil, Service.Explain(err)
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

// IsRefused tells whether the daemon refused with this code.
func IsRefused(err error, code string) bool {
	var r *rest.Refusal
	return errors.As(err, &r) && r.Code == code
}
