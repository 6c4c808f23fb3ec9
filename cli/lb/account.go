package lb

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// Account is how a person logs in to a load balancer: with one of its keys, which have no names.
var Account = client.Account{
	Service: &Service, Default: api.Default,
	Check: func(ctx context.Context, p client.Place) (string, error) {
		c, send, err := api.Connect(p)
		if err != nil {
			return "", err
		}
		r, err := c.GetNode(ctx)
		node, err := decode[lbapi.Node](send(ctx, r, err))
		if err == nil && node.Interface == "" {
			err = output.BadAnswer(errors.New("it does not describe a node"))
		}
		return "", err
	},
}
