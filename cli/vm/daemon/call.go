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

// Service describes the hypervisor daemon to package client.
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
	// API is for requests that respond immediately, within --timeout; Slow is for long requests and
	// has no time limit.
	API, Slow *hypervisorapi.Client
	Out       *output.Printer

	access *access
}

// Answer is a successful response.
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

// Table reports whether the output is for people rather than programs.
func (c *Call) Table() bool { return c.format == output.Table }

// Send reads a response. It takes the results of a generated client's method.
func (c *Call) Send(r *http.Response, err error) (Answer, error) { return Service.Read(r, err) }

// Open is Send for a response whose body the caller reads and closes.
func (c *Call) Open(r *http.Response, err error) (*http.Response, error) { return Service.Open(r, err) }

// Decode decodes a response.
func Decode[T any](a Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }

// Socket opens the WebSocket at a path of the API, such as a VM's console.
func (c *Call) Socket(ctx context.Context, path string) (*websocket.Conn, error) {
	conn, r, err := c.access.socket(ctx, path, c.timeout)
	if err == nil {
		return conn, nil
	}
	if r != nil && r.StatusCode >= 400 {
		_, err = Service.Open(r, nil) // the library keeps the body's first KiB
		return nil, err
	}
	return nil, Service.Explain(err)
}

// Say prints what was done, for people. Programs use the exit code.
func (c *Call) Say(format string, args ...any) error {
	if !c.Table() {
		return nil
	}
	_, err := fmt.Fprintln(c.Out.Out, output.Escape(fmt.Sprintf(format, args...)))
	return err
}

// Note prints additional information for people on standard error.
func (c *Call) Note(format string, args ...any) {
	_, _ = fmt.Fprintln(c.Cmd.ErrOrStderr(), output.Escape(fmt.Sprintf(format, args...))) // only the result counts
}

// Done prints the result of a change: the object for programs, a sentence for people.
func (c *Call) Done(a Answer, format string, args ...any) error {
	return c.Out.ObjectAs(a.Body, func() error { return c.Say(format, args...) })
}

// IsRefused reports whether the daemon refused with this code.
func IsRefused(err error, code string) bool {
	var r *rest.Refusal
	return errors.As(err, &r) && r.Code == code
}
