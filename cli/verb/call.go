package verb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Call is one run of a command.
type Call[A any] struct {
	*Session[A]
	Cmd *cobra.Command
	// Args are the arguments, with IDs in place of names where the command's kinds are looked up. Typed
	// are the arguments as they were typed.
	Args, Typed []string
	// API is for requests that respond immediately, within --timeout; Slow is for long requests and
	// streams, and has no time limit.
	API, Slow A
	Out       *output.Printer
	Reach     *Access

	found   map[[2]string]string         // IDs by kind and argument
	named   map[string]map[string]string // names by kind and ID
	readAll map[string]bool              // kinds whose list was read for names
}

func (s *Session[A]) begin(cmd *cobra.Command, args []string) (*Call[A], error) {
	a, err := s.Access()
	if err != nil {
		return nil, err
	}
	if a.Token == "" && s.api.DevLogin != nil {
		if a.Token, err = s.devLogin(cmd.Context(), a); err != nil {
			return nil, identify(cmd.Context(), s.api.Service, a, err)
		}
	}
	c := s.call(cmd, args)
	c.Reach = a
	c.Out.Names = func(kind string, ids []string) map[string]string { return c.names(cmd.Context(), kind, ids) }
	if c.API, err = s.Client(a, s.timeout); err != nil {
		return nil, err
	}
	c.Slow, err = s.Client(a, 0)
	return c, err
}

// call returns a call that reaches no server yet.
func (s *Session[A]) call(cmd *cobra.Command, args []string) *Call[A] {
	return &Call[A]{
		Session: s, Cmd: cmd, Args: slices.Clone(args), Typed: args,
		Out:   output.NewPrinter(cmd.OutOrStdout(), s.style),
		found: map[[2]string]string{}, named: map[string]map[string]string{}, readAll: map[string]bool{},
	}
}

// devLogin logs in with what dev mode left. It returns no token if there is nothing.
func (s *Session[A]) devLogin(ctx context.Context, a *Access) (string, error) {
	api, send, err := s.api.Connect(client.Place{Server: a.Server.String(), CAFile: s.caFile})
	if err != nil {
		return "", err
	}
	return s.api.DevLogin(ctx, api, send, func(name string) (string, error) {
		return s.Env.DevCredential(a.Server, s.api.Service.Unit, name)
	})
}

// Table reports whether the output is for people rather than programs.
func (c *Call[A]) Table() bool { return c.style.People() }

// Send reads a response. It takes the results of a generated client's method.
func (c *Call[A]) Send(r *http.Response, err error) (client.Answer, error) {
	return c.api.Service.Read(r, err)
}

// Open is Send for a response whose body the caller reads and closes.
func (c *Call[A]) Open(r *http.Response, err error) (*http.Response, error) {
	return c.api.Service.Open(r, err)
}

// Unversioned requests what a service serves without credentials, beside its API, such as "readyz".
func (c *Call[A]) Unversioned(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Reach.root.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	return client.HTTP(c.Reach.Transport, c.timeout).Do(r)
}

// Say prints what was done, for people. Programs use the exit code.
func (c *Call[A]) Say(format string, args ...any) error {
	if !c.Table() {
		return nil
	}
	_, err := fmt.Fprintln(c.Out.Out, output.Escape(fmt.Sprintf(format, args...)))
	return err
}

// Note prints additional information for people on standard error.
func (c *Call[A]) Note(format string, args ...any) {
	_, _ = fmt.Fprintln(c.Cmd.ErrOrStderr(), output.Escape(fmt.Sprintf(format, args...))) // only the result counts
}

// Done prints the result of a change: the object for programs, a sentence for people.
func (c *Call[A]) Done(a client.Answer, format string, args ...any) error {
	return c.Out.ObjectAs(a.Body, func() error { return c.Say(format, args...) })
}

// IsRefused reports whether the server refused with this code.
func IsRefused(err error, code string) bool {
	var r *rest.Refusal
	return errors.As(err, &r) && r.Code == code
}
