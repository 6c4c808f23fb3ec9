package daemon

import (
	"context"
	"errors"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// Account is how a person logs in to a hypervisor daemon.
var Account = client.Account{
	Service: &Service, Default: api.Default,
	Check: func(ctx context.Context, p client.Place) (string, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", err
		}
		r, err := c.GetMe(ctx)
		me, err := Decode[hypervisorapi.Me](send(ctx, r, err))
		if err == nil && me.Name == "" {
			err = output.BadAnswer(errors.New("it does not say whose token it is"))
		}
		return me.Name, err
	},
}
