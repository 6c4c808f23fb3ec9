package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Account is how a person logs in to the edge control plane.
var Account = client.Account{
	Service: &Service, Default: api.Default,
	Check: func(ctx context.Context, p client.Place) (string, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", err
		}
		r, err := c.GetMe(ctx)
		me, err := decode[edgeapi.Caller](send(ctx, r, err))
		if err == nil && me.Subject == "" {
			err = output.BadAnswer(errors.New("it does not say whose token it is"))
		}
		return me.Subject, err
	},
	Session: func(ctx context.Context, p client.Place, l client.Login) (string, time.Time, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", time.Time{}, err
		}
		r, err := c.Login(ctx, edgeapi.LoginRequest{Username: l.Username, Password: l.Password})
		session, err := decode[edgeapi.Session](send(ctx, r, err))
		return session.Token, session.ExpiresAt, err
	},
	End: func(ctx context.Context, p client.Place) error {
		c, send, err := api.Connect(p)
		if err != nil {
			return err
		}
		r, err := c.Logout(ctx)
		_, err = send(ctx, r, err)
		var refusal *rest.Refusal
		if errors.As(err, &refusal) && (refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusConflict) {
			return nil // the session is over already, or the token is not that of a session
		}
		return err
	},
}
