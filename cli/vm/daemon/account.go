package daemon

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
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
		return me.Name, err
	},
}
