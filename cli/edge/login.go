package edge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) login() *cobra.Command {
	var username string
	cmd := s.Command(verb.Verb{
		Use: "login", Short: "Exchange username and password for a token of 12 hours",
		Long: `Exchange username and password for a token of 12 hours, and print the token.

The password is the one in EDGE_PASSWORD, else the first line of standard input. There is no flag for it, since other
users of the machine can see flags.`,
		Example: `  export EDGE_TOKEN=$(mainstay edge login --username admin < password.txt)
  EDGE_PASSWORD=... mainstay edge login -o json`,
	}, func(ctx context.Context, c *call) error {
		password, err := password(c)
		if err != nil {
			return err
		}
		a, err := c.Send(c.API.Login(ctx, edgeapi.LoginRequest{Username: username, Password: password}))
		if err != nil {
			return err
		}
		session, err := decode[edgeapi.Session](a, nil)
		if err != nil {
			return err
		}
		// Print only the token, so that a shell can put it into EDGE_TOKEN.
		return c.Out.ObjectAs(a.Body, func() error {
			_, err := fmt.Fprintln(c.Out.Out, output.Escape(session.Token))
			return err
		})
	})
	cmd.Flags().StringVarP(&username, "username", "u", "admin", "who to log in as")
	return cmd
}

func password(c *call) (string, error) {
	if p := c.Env.Getenv("EDGE_PASSWORD"); p != "" {
		return p, nil
	}
	in := c.Cmd.InOrStdin()
	if output.IsTerminal(in) {
		return "", exit.Hinted(exit.Usagef("the password is missing: EDGE_PASSWORD or standard input"),
			"read -rs EDGE_PASSWORD && export EDGE_PASSWORD reads it without showing it")
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password: %w", err)
	}
	p := strings.TrimRight(line, "\r\n")
	if p == "" {
		return "", exit.Usagef("the password is missing: EDGE_PASSWORD or standard input")
	}
	return p, nil
}

func (s *session) logout() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "logout", Short: "End the session whose token this is",
		Example: "  mainstay edge logout --token TOKEN",
	}, func(ctx context.Context, c *call) error {
		if _, err := c.Send(c.API.Logout(ctx)); err != nil {
			return err
		}
		return c.Say("The session is over.")
	})
}

func (s *session) whoami() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "whoami", Short: "Show whose token this is and what it may do",
		Example: "  mainstay edge whoami",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetMe(ctx) })
}

func (s *session) version() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "version", Short: "Show what the server was built from",
		Example: "  mainstay edge version -o json",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetVersion(ctx) })
}
