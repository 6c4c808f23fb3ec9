package vms

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Account is how a person logs in to VM management.
var Account = client.Account{
	Service: &Service, Default: api.Default,
	Check: func(ctx context.Context, p client.Place) (string, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", err
		}
		r, err := c.GetMe(ctx)
		me, err := decode[vmapi.Me](send(ctx, r, err))
		if err == nil && me.Username == "" {
			err = output.BadAnswer(errors.New("it does not say whose token it is"))
		}
		return me.Username, err
	},
	Session: func(ctx context.Context, p client.Place, l client.Login) (string, time.Time, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", time.Time{}, err
		}
		return login(ctx, c, send, l)
	},
	NeedsCode: func(err error) bool {
		var refusal *rest.Refusal
		// The service's errors have no codes.
		return errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized && refusal.Message == codeRequired
	},
	End: func(ctx context.Context, p client.Place) error {
		c, send, err := api.Connect(p)
		if err != nil {
			return err
		}
		r, err := c.Logout(ctx, vmapi.Nothing{})
		_, err = send(ctx, r, err)
		var refusal *rest.Refusal
		if errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized {
			return nil // the token is revoked or expired already
		}
		return err
	},
}

// codeRequired is what the service answers if a login lacks the code of the second factor.
const codeRequired = "Two-factor code required"

func login(ctx context.Context, c *vmapi.Client, send verb.Send, l client.Login) (string, time.Time, error) {
	credentials := vmapi.Credentials{Username: l.Username, Password: &l.Password}
	if l.Code != "" {
		credentials.TotpCode = &l.Code
	}
	r, err := c.Login(ctx, credentials)
	s, err := decode[vmapi.Session](send(ctx, r, err))
	return s.Token, s.ExpiresAt, err
}

// devLogin exchanges what dev mode left for a token.
func devLogin(
	ctx context.Context, c *vmapi.Client, send verb.Send, credential func(name string) (string, error),
) (string, error) {
	username, err := credential("username")
	if err != nil || username == "" {
		return "", err
	}
	password, err := credential("password")
	if err != nil {
		return "", err
	}
	token, _, err := login(ctx, c, send, client.Login{Username: username, Password: password})
	return token, err
}

func (s commands) whoami() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "whoami", Short: "Show who you are and what you may do", Example: "  mainstay vms whoami",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetMe(ctx) })
}
